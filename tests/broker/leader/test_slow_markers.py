"""While the markers of a transaction are missing: its decision stands, and everybody is told to come again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.broker.group_talk import committed_offset, find_group, txn_commit
from tests.broker.wire import (
    Client,
    add,
    batch,
    clients,
    end,
    ended,
    fetch,
    init,
    init_answer,
    new_topic,
    on_the_loop,
    produce,
    values,
    wait_until,
)

from fencepost.broker.leader.markers import LocalMarkers
from fencepost.coordinator.transaction.markers import Marker, Results
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

client = clients()
COME_AGAIN = ErrorCode.CONCURRENT_TRANSACTIONS


class Away:
    """Every partition's leader is away until `back`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        patch.setattr(LocalMarkers, "write", self._refuse)

    @staticmethod
    def _refuse(_: LocalMarkers, marker: Marker, partitions: Sequence[TopicPartition]) -> Results:  # noqa: ARG004
        return dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def over(self) -> None:
        """The leaders are back, and nobody says so."""
        self._patch.undo()

    def back(self, client: Client) -> None:
        self.over()
        on_the_loop(client.broker, client.broker.node.transactions.retry_markers)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    return Away(monkeypatch)


def state(client: Client) -> str:
    answer = client.ask(DescribeTransactionsRequest(transactional_ids=["t"]))
    return str(answer.transaction_states[0].transaction_state)


def written(client: Client, pair: ProducerIdAndEpoch, topic: str, value: str = "x") -> int:
    return produce(client, topic, batch(value, pair=pair, sequence=0, transactional=True), "t").error_code


@pytest.mark.parametrize("commit", [False, True])
def test_nobody_goes_on_before_the_markers_are_there(client: Client, away: Away, commit: bool) -> None:
    find_group(client)
    topic, other, pair = new_topic(client), new_topic(client), init(client, "t")
    assert written(client, pair, topic) == ErrorCode.NONE
    assert txn_commit(client, "t", pair, topic, 5) == [ErrorCode.NONE]
    following = ended(client, "t", pair, commit=commit)
    assert state(client) == ("PrepareCommit" if commit else "PrepareAbort")
    assert (values(fetch(client, topic)), fetch(client, topic).last_stable_offset) == ([], 0)
    assert committed_offset(client, topic, stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT

    for caller in (pair, following):
        assert end(client, "t", caller, commit=commit).error_code == COME_AGAIN
        assert end(client, "t", caller, commit=not commit).error_code == COME_AGAIN
    assert init_answer(client, "t").error_code == init_answer(client, "t", following).error_code == COME_AGAIN
    assert add(client, "t", following, other) == COME_AGAIN
    data = batch("next", pair=following, sequence=0, transactional=True)
    for version in (3, 10, 11):
        told = produce(client, other, data, "t", version=version)
        assert told.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "older clients do not know 51 there"
    for version in (12, 13):
        assert produce(client, other, data, "t", version=version).error_code == COME_AGAIN
    for version in range(7):
        assert txn_commit(client, "t", following, topic, 6, group="h", version=version) == [COME_AGAIN]

    away.back(client)
    assert state(client) == ("CompleteCommit" if commit else "CompleteAbort")
    assert values(fetch(client, topic)) == (["x"] if commit else [])
    assert committed_offset(client, topic, stable=True) == (5 if commit else -1, ErrorCode.NONE)
    again = end(client, "t", pair, commit=commit)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, *following)
    assert produce(client, other, data, "t").error_code == ErrorCode.NONE
    ended(client, "t", following)
    assert values(fetch(client, other)) == ["next"]


def test_they_are_tried_again_without_being_asked(client: Client, away: Away) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert written(client, pair, topic) == ErrorCode.NONE
    ended(client, "t", pair)
    assert state(client) == "PrepareCommit"
    away.over()
    wait_until("the commit is complete", lambda: state(client) == "CompleteCommit")
    assert values(fetch(client, topic)) == ["x"]


def test_one_transaction_that_waits_holds_up_no_other(client: Client, away: Away) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert written(client, pair, topic) == ErrorCode.NONE
    ended(client, "t", pair)
    other = init(client, "u")
    data = batch("y", pair=other, sequence=0, transactional=True)
    assert produce(client, topic, data, "u").error_code == ErrorCode.NONE
    away.back(client)
    ended(client, "u", other)
    assert values(fetch(client, topic)) == ["x", "y"]


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_without_a_coordinator_a_write_is_to_be_tried_again(client: Client, version: int) -> None:
    """KAFKA-15459: what coordinators say is nothing that a producer knows as an answer to Produce."""
    topic = new_topic(client)
    data = batch("x", pair=(5, 0), sequence=0, transactional=True)
    told = produce(client, topic, data, "t", version=version)
    assert told.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert version < 8 or "NOT_COORDINATOR" in (told.error_message or "")


@pytest.mark.promise("890.older-codes")
@pytest.mark.parametrize("version", range(7))
def test_without_a_coordinator_a_commit_of_offsets_is_to_be_sent_elsewhere(client: Client, version: int) -> None:
    topic = new_topic(client)
    assert txn_commit(client, "t", (5, 0), topic, 1, version=version) == [ErrorCode.NOT_COORDINATOR]
