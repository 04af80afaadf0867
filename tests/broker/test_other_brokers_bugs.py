"""Bugs of brokers other than Apache Kafka (facts §13.6), each under the number of its report.

Two are of clients and not of brokers: librdkafka's "abort control message out of order", and sequence state that is
dropped when a topic vanishes from metadata.  The power loss of Redpanda 6018 is in
tests/simulation/test_durability_bugs.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.group_talk import committed_offset, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    clients,
    end,
    ended,
    fetch,
    init,
    killed_copy,
    new_topic,
    on_the_loop,
    produce,
    values,
)

from fencepost.broker import Broker, running_broker
from fencepost.broker.leader.markers import LocalMarkers
from fencepost.coordinator.transaction.markers import Marker
from fencepost.protocol.batch import headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, ProducerId, ProducerIdAndEpoch, TopicPartition

client = clients()
INT32_MAX = 2**31 - 1


def part_of(pair: ProducerIdAndEpoch, value: str = "v", sequence: int = 0) -> bytes:
    return batch(value, pair=pair, sequence=sequence, transactional=True)


def written(client: Client, topic: str, pair: ProducerIdAndEpoch, value: str = "v", sequence: int = 0) -> int:
    return int(produce(client, topic, part_of(pair, value, sequence), "t").error_code)


def hold_markers_back(patch: pytest.MonkeyPatch) -> None:
    refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
    patch.setattr(LocalMarkers, "write", lambda _, __, partitions: dict.fromkeys(partitions, refuse))


@pytest.mark.parametrize("commit", [False, True])
def test_redpanda_3232_no_data_of_the_next_epoch_before_the_marker(
    client: Client, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers know an aborted transaction by its producer id alone: it would be taken for part of it."""
    topic, pair = new_topic(client), init(client, "t")
    assert written(client, topic, pair, "first") == ErrorCode.NONE
    with monkeypatch.context() as patch:
        hold_markers_back(patch)
        following = ended(client, "t", pair, commit=commit)
        assert written(client, topic, following, "second") == ErrorCode.CONCURRENT_TRANSACTIONS
    on_the_loop(client.broker, client.broker.node.transactions.retry_markers)
    assert written(client, topic, following, "second") == ErrorCode.NONE
    ended(client, "t", following)
    assert values(fetch(client, topic)) == (["first", "second"] if commit else ["second"])


def test_redpanda_6018_the_first_half_of_a_transaction_survives_a_kill(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    with running_broker(data=tmp_path / "alive", settings=SETTINGS) as broker:
        client = Client(broker)
        one, two, pair = new_topic(client), new_topic(client), init(client, "t")
        assert written(client, one, pair, "first half") == ErrorCode.NONE
        killed_copy(broker, killed)
        client.close()
    with running_broker(data=killed, settings=SETTINGS) as broker:
        client = Client(broker)
        assert written(client, two, pair, "second half") == ErrorCode.NONE
        ended(client, "t", pair)
        assert values(fetch(client, one)) == ["first half"]
        assert values(fetch(client, two)) == ["second half"]
        client.close()


@pytest.mark.promise("2014.read-uncommitted")
def test_redpanda_6630_7819_uncommitted_readers_see_what_was_aborted_and_others_do_not(client: Client) -> None:
    topic, pair = new_topic(client), init(client, "t")
    expected = []
    for number in range(20):
        assert written(client, topic, pair, f"{number}") == ErrorCode.NONE
        pair = ended(client, "t", pair, commit=number % 3 != 0)
        expected += [f"{number}"] if number % 3 else []
    assert written(client, topic, pair, "open") == ErrorCode.NONE
    every = fetch(client, topic, committed=False)
    assert every.aborted_transactions is None
    assert values(every) == [*(f"{number}" for number in range(20)), "open"]
    assert values(fetch(client, topic)) == expected
    found: list[str] = []
    offset = 0
    while offset < 40:
        shown = fetch(client, topic, offset, max_bytes=300)
        found += values(shown)
        offset = max(header.last_offset for _, header in headers(shown.records or b"")) + 1
    assert found == expected


def test_redpanda_17827_24468_10588_a_participant_says_again_that_it_is_done(client: Client) -> None:
    """A coordinator that lost its notes sends markers again: to partitions that have them, and to empty ones."""
    topic, pair = new_topic(client, 2), init(client, "t")
    assert written(client, topic, pair) == ErrorCode.NONE
    following = ended(client, "t", pair)
    marker = Marker(ProducerId(pair.producer_id), Epoch(following.producer_epoch), LeaderEpoch(0), True, 2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for _ in range(3):
        told = on_the_loop(client.broker, lambda: client.broker.node.local_markers.write(marker, places))
        assert told == dict.fromkeys(places, ErrorCode.NONE)
        assert ended(client, "t", pair) == following, "and so does the coordinator"
        assert end(client, "t", following, version=4).error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == ["v"]
    assert written(client, topic, following, "next") == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [False, True])
def test_ydb_51053_a_registered_partition_without_a_write_is_no_obstacle(
    client: Client, version: int, commit: bool
) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    assert end(client, "t", pair, commit=commit, version=version).error_code == ErrorCode.NONE
    (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert state.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")


@pytest.mark.parametrize("version", range(6))
def test_ydb_52731_an_end_while_the_last_is_being_completed_comes_again(
    client: Client, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert written(client, topic, pair) == ErrorCode.NONE
    with monkeypatch.context() as patch:
        hold_markers_back(patch)
        following = ended(client, "t", pair)
        early = end(client, "t", following, version=version)
        assert early.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    on_the_loop(client.broker, client.broker.node.transactions.retry_markers)
    assert values(fetch(client, topic)) == ["v"]


def test_starlight_79_kop_1283_what_is_being_completed_is_not_used_for_the_next(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_group(client)
    topic, other, pair = new_topic(client), new_topic(client), init(client, "t")
    assert written(client, topic, pair) == ErrorCode.NONE
    with monkeypatch.context() as patch:
        hold_markers_back(patch)
        following = ended(client, "t", pair)
        for _ in range(3):
            assert add(client, "t", following, other) == ErrorCode.CONCURRENT_TRANSACTIONS
            assert txn_commit(client, "t", following, topic, 5) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
        assert [each.topic for each in state.topics] == [topic]
    on_the_loop(client.broker, client.broker.node.transactions.retry_markers)
    assert committed_offset(client, topic, stable=True) == (-1, ErrorCode.NONE)
    assert values(fetch(client, topic)) == ["v"]


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_kafkajs_302_a_clock_that_differs_decides_nothing(
    client: Client, skew_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a transaction may do depends on its state; only time-outs on the time of the broker."""
    topic, other, pair = new_topic(client), new_topic(client), init(client, "t", timeout_ms=900_000)
    stamped = batch("v", pair=pair, sequence=0, transactional=True, timestamp=1)
    assert produce(client, topic, stamped, "t").error_code == ErrorCode.NONE
    shift(client.broker, skew_ms if skew_ms < 0 else 600_000, monkeypatch)
    assert written(client, topic, pair, "w", 1) == ErrorCode.NONE
    assert written(client, other, pair) == ErrorCode.NONE
    following = ended(client, "t", pair)
    assert written(client, topic, following) == ErrorCode.NONE
    ended(client, "t", following, commit=False)
    assert values(fetch(client, topic)) == ["v", "w"]


def shift(broker: Broker, by_ms: int, patch: pytest.MonkeyPatch) -> None:
    """Another time from now on."""
    now = broker.node.clock.now
    patch.setattr(broker.node.clock, "now", lambda: Milliseconds(now() + by_ms), raising=False)


def test_kafkajs_sequences_go_on_at_0_after_the_largest(client: Client) -> None:
    topic = new_topic(client)
    for sequence, error in [
        (INT32_MAX - 1, ErrorCode.NONE),
        (INT32_MAX - 1, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, ErrorCode.NONE),
    ]:
        records = ["a", "b", "c"] if sequence == INT32_MAX - 1 else ["d"]
        answer = produce(client, topic, batch(*records, pair=(800, 0), sequence=sequence))
        assert answer.error_code == error, sequence
    assert values(fetch(client, topic)) == ["a", "b", "c", "d", "d"], "what was sent again is written once"
