"""What the node counts (KIP-890: VerificationFailureRate, VerificationTimeMs)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.wire import SETTINGS, Client, add, batch, ended, init, new_topic, produce, serving

from fencepost.broker import running_broker
from fencepost.broker.metrics import measure
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds


@pytest.mark.promise("890.abortable", "890.metrics")
def test_verifications_and_their_failures_are_counted() -> None:
    with serving() as broker:
        client = Client(broker)
        topic, pair = new_topic(client), init(client, "id")
        record = batch("x", pair=pair, sequence=0, transactional=True)
        answered = produce(client, topic, record, "id", version=11)
        assert answered.error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert (broker.node.counters.verifications, broker.node.counters.verification_failures) == (1, 1)
        assert produce(client, topic, record, "id", version=12).error_code == ErrorCode.NONE
        assert (broker.node.counters.verifications, broker.node.counters.verification_failures) == (2, 1)
        assert broker.node.counters.requests[0] == 2
        shown, bean = measure(broker.node, broker.node.clock.now()), "kafka.server:type=AddPartitionsToTxnManager,name="
        assert shown[bean + "VerificationFailureRate:Count"] == 1
        assert shown[bean + "VerificationTimeMs:Count"] == 2
        assert 0 < shown[bean + "VerificationTimeMs:Mean"] <= shown[bean + "VerificationTimeMs:Max"]
        client.close()


def test_open_and_late_transactions_are_seen() -> None:
    """KIP-664, metrics: late is what is open for five minutes longer than any transaction may be."""
    late = "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount:Value"
    with serving(transaction_max_timeout_ms=100_000) as broker:
        client = Client(broker)
        topics, pair, began = [new_topic(client), new_topic(client)], init(client, "id"), broker.node.clock.now()
        for topic in topics:
            record = batch("x", pair=pair, sequence=0, transactional=True)
            assert produce(client, topic, record, "id", version=12).error_code == ErrorCode.NONE
        assert measure(broker.node, began)["fencepost:type=TransactionalIds,state=Ongoing:Value"] == 1
        producers = "kafka.server:type=ReplicaManager,name=ProducerIdCount:Value"
        assert measure(broker.node, began)[producers] == 2, "each partition knows it"
        for later, expected in ((0, 0), (399_000, 0), (460_000, 2)):
            assert measure(broker.node, Milliseconds(began + later))[late] == expected
        ended(client, "id", pair)
        assert measure(broker.node, Milliseconds(began + 460_000))[late] == 0
        client.close()


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_a_transaction_is_verified_once_for_each_partition(version: int) -> None:
    with serving() as broker:
        client = Client(broker)
        topics, pair = [new_topic(client), new_topic(client)], init(client, "id")
        for transaction in (1, 2):
            if version < 12:
                for topic in topics:
                    assert add(client, "id", pair, topic) == ErrorCode.NONE
            for sequence in range(5):
                for topic in topics:
                    record = batch("x", pair=pair, sequence=sequence, transactional=True)
                    assert produce(client, topic, record, "id", version=version).error_code == ErrorCode.NONE
            pair = ended(client, "id", pair)
            assert broker.node.counters.verifications == transaction * len(topics)
        client.close()


def test_a_restart_begins_to_count_anew_and_what_is_open_is_not_verified_again(tmp_path: Path) -> None:
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic, other, pair = new_topic(client), new_topic(client), init(client, "id")
        record = batch("x", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, record, "id", version=12).error_code == ErrorCode.NONE
        assert broker.node.counters.verifications == 1
        client.close()
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client, metrics = Client(broker), broker.node.counters
        assert (metrics.verifications, metrics.verification_failures, metrics.verification_time_ms) == (0, 0, 0)
        for version in (11, 12):
            record = batch("y", pair=pair, sequence=version - 10, transactional=True)
            assert produce(client, topic, record, "id", version=version).error_code == ErrorCode.NONE
        assert metrics.verifications == 0, "its transaction is open here"
        record = batch("z", pair=pair, sequence=0, transactional=True)
        assert produce(client, other, record, "id", version=10).error_code == ErrorCode.INVALID_TXN_STATE
        assert produce(client, other, record, "id", version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert (metrics.verifications, metrics.verification_failures) == (2, 2)
        assert metrics.verification_time_ms > 0
        assert produce(client, other, record, "id", version=12).error_code == ErrorCode.NONE
        assert (metrics.verifications, metrics.verification_failures) == (3, 2)
        client.close()
