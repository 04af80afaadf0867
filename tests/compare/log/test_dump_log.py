"""Apache Kafka's own kafka-dump-log reads every file of a Fencepost data directory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.broker import Broker
from fencepost.client import Admin, Producer
from fencepost.coordinator.transaction.state import State

DUMP = "org.apache.kafka.tools.DumpLogSegments"


async def fill(data: Path) -> None:
    """Two committed transactions, one aborted, offsets in one of them, several segments; then a clean stop."""
    async with Broker(data=data, listen="127.0.0.1:0", settings={"log.segment.bytes": "1048576"}) as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.create_topic("orders", partitions=1)
        async with Producer(broker.bootstrap_servers, transactional_id="payments") as producer:
            await producer.init_transactions()
            for number in range(3):
                await producer.begin_transaction()
                for record in range(20):
                    await producer.send("orders", bytes(40_000), key=b"%d-%d" % (number, record), partition=0)
                if number == 1:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dump") / "data"
    asyncio.run(fill(folder))
    return folder


@pytest.mark.compare
def test_segments_and_indexes_are_read(kafka_tool: Callable[..., str], data: Path) -> None:
    partition = data / "orders-0"
    segments = sorted(partition.glob("*.log"))
    assert len(segments) > 1
    printed = kafka_tool(DUMP, "--deep-iteration", "--files", ",".join(map(str, segments)))
    assert printed.count("isControl: true") == 3
    assert "isTransactional: true" in printed
    assert "isvalid: false" not in printed
    for kind in ("index", "timeindex"):
        files = ",".join(str(path) for path in sorted(partition.glob(f"*.{kind}")))
        printed = kafka_tool(DUMP, "--index-sanity-check", "--files", files)
        assert "corrupt" not in printed.lower()
        assert "mismatch" not in printed.lower()


@pytest.mark.compare
def test_the_aborted_transaction_is_in_the_index(kafka_tool: Callable[..., str], data: Path) -> None:
    files = ",".join(str(path) for path in sorted((data / "orders-0").glob("*.txnindex")))
    assert len(re.findall(r"producerId: \d+ firstOffset: \d+ lastOffset: \d+", kafka_tool(DUMP, "--files", files))) == 1


@pytest.mark.compare
def test_producer_snapshots_are_read(kafka_tool: Callable[..., str], data: Path) -> None:
    newest = max((data / "orders-0").glob("*.snapshot"))
    assert "producerId:" in kafka_tool(DUMP, "--files", str(newest))


@pytest.mark.promise("890.record")
@pytest.mark.compare
def test_the_coordinators_journal_is_decoded(kafka_tool: Callable[..., str], data: Path) -> None:
    files = ",".join(str(path) for path in data.glob("__transaction_state-*/*.log") if path.stat().st_size)
    printed = kafka_tool(DUMP, "--transaction-log-decoder", "--files", files)
    assert "payments" in printed
    for status in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        assert f'"transactionStatus":{int(status)}' in printed
