"""A task reads its range and nothing else, whatever the broker answers, and whoever stops in the middle."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Admin, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.messages import FetchRequest, FetchResponse
from fencepost.protocol.messages.list_offsets import EARLIEST
from fencepost.protocol.record_columns import record_batches
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark import reading as reading_module
from fencepost.spark.reading import RangeReader, read_range

AT = TopicPartition("read", 0)
COUNT = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker(flush="os") as broker:
        with Admin(broker.bootstrap_servers) as admin, Producer(broker.bootstrap_servers, linger_ms=0) as producer:
            admin.create_topic(AT.topic, partitions=1)
            for number in range(COUNT):
                producer.send(AT.topic, b"%d" % number, partition=0).result()
        yield broker


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch gives one record."""
    monkeypatch.setattr("fencepost.spark.reading._FETCH_BYTES", 1)


def reading(broker: Broker, end: int = COUNT) -> Iterator[pa.RecordBatch]:
    rest: tuple[Any, ...] = (Isolation.READ_COMMITTED, ["value"], True, None, 300 if end > COUNT else 60_000)
    return read_range(broker.bootstrap_servers, None, AT, 0, end, *rest)


def test_a_broker_that_throttles_the_reader_costs_no_record(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers with no partition at all (KIP-219)."""
    call, asked = Cluster.call, 0

    async def throttled(self: Cluster, node_id: int, message: Any, **how: Any) -> Any:
        nonlocal asked
        asked += isinstance(message, FetchRequest)
        if isinstance(message, FetchRequest) and asked % 3 == 1:
            return FetchResponse(throttle_time_ms=1, responses=[])
        return await call(self, node_id, message, **how)

    monkeypatch.setattr(Cluster, "call", throttled)
    found = [value for batch in reading(broker) for value in batch.column(0).to_pylist()]
    assert found == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_range_behind_the_end_of_its_log_has_an_end(
    broker: Broker, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a log was cut while its batch was planned: where losses are accepted, there is nothing to read."""
    asked = 0

    async def counted(*given: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 5, "it asks again and again"
        return await fetch_partition(*given, **named)

    monkeypatch.setattr(reading_module, "fetch_partition", counted)
    rest: tuple[Any, ...] = (Isolation.READ_COMMITTED, ["value"], fails)
    rows = read_range(broker.bootstrap_servers, None, AT, COUNT + 3, COUNT + 5, *rest)
    if fails:
        with pytest.raises(BrokerError, match=f"was to be read from offset {COUNT + 3}, but ends at {COUNT}"):
            list(rows)
    else:
        assert list(rows) == []


@pytest.mark.parametrize("end", range(1, COUNT + 1))
def test_what_a_broker_gives_behind_the_range_is_not_unfolded(
    broker: Broker, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer may have a thousand times as much in it, where values are much alike."""
    unfolded: list[int] = []

    def noted(data: memoryview, batches: list[tuple[int, BatchHeader]], *rest: Any) -> Iterator[pa.RecordBatch]:
        unfolded.extend(header.base_offset for _, header in batches)
        return record_batches(data, batches, *rest)

    monkeypatch.setattr(reading_module, "_FETCH_BYTES", 1024 * 1024)
    monkeypatch.setattr(reading_module, "record_batches", noted)
    assert [value for batch in reading(broker, end) for value in batch.column(0).to_pylist()] == [
        b"%d" % number for number in range(end)
    ]
    assert unfolded == list(range(end))


@pytest.mark.parametrize("end", [COUNT, COUNT + 1])
@pytest.mark.parametrize("taken", range(COUNT + 1))
def test_a_reader_that_has_rows_enough_leaves_nothing_behind(
    broker: Broker, taken: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As after LIMIT: the fetch that is under way, one ahead, is ended, also one that waits for what never comes."""
    with caplog.at_level(logging.WARNING, "asyncio"):
        rows = reading(broker, end)
        for _ in range(taken):
            next(rows)
        del rows
        gc.collect()
    assert not caplog.records


@pytest.mark.parametrize(("first", "goes_on_at"), [(7, 7), (100, 10)])
def test_of_records_that_are_gone_those_of_the_range_are_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: int, goes_on_at: int
) -> None:
    async def listed(_: object, places: list[TopicPartition], which: int, __: object) -> Any:
        return dict.fromkeys(places, (first if which == EARLIEST else 200, None))

    monkeypatch.setattr(reading_module, "list_offsets", listed)
    cluster: Any = SimpleNamespace(forget_topic=lambda _: None, deadline=lambda _: None)
    reader = RangeReader(cluster, TopicPartition("t", 0), 10, Isolation.READ_UNCOMMITTED, False, None)
    assert asyncio.run(reader._passed_over(3)) == goes_on_at
    (said,) = caplog.messages
    assert said.endswith(f": t-0 from offset 3 to {goes_on_at - 1}")
