"""The coordinator is elsewhere and answers a leader late, or not at all: meanwhile things happen.

For each answer the test says when it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from tests.broker.group_talk import committed_offset, find_group, txn_commit, txn_commit_request
from tests.broker.metadata.test_deleted_topics import make_again
from tests.broker.wire import (
    NOW,
    Client,
    add,
    batch,
    clients,
    ended,
    fetch,
    init,
    new_topic,
    on_the_loop,
    produce_request,
    values,
    wait_until,
)

from fencepost.broker.leader.registrar import Answer, LocalRegistrar, Question
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.types import Milliseconds, ProducerIdAndEpoch

client = clients()
IMPLICIT, EXPLICIT = 12, 11


class SlowRegistrar:
    """What is asked is answered at once, but the answer comes when the test says so."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._local = LocalRegistrar(client.broker.node.transactions, client.broker.node.storage)
        self.held: list[asyncio.Event] = []
        self.loses = False

    def ask(self, question: Question) -> Awaitable[Answer]:
        go = asyncio.Event()
        self.held.append(go)
        return self._answer(go, Answer.lost(question) if self.loses else self._local.ask(question))

    async def _answer(self, go: asyncio.Event, answer: Answer) -> Answer:
        await go.wait()
        return answer

    def wait_for(self, count: int) -> None:
        wait_until("the coordinator is asked", lambda: len(self.held) == count)

    def release(self) -> None:
        on_the_loop(self._client.broker, self.held[-1].set)


@pytest.fixture
def registrar(client: Client) -> SlowRegistrar:
    slow = SlowRegistrar(client)
    client.broker.node.registrar = slow
    return slow


def opened(client: Client, version: int) -> tuple[str, ProducerIdAndEpoch]:
    topic, pair = new_topic(client), init(client, "t")
    if version == EXPLICIT:
        assert add(client, "t", pair, topic) == ErrorCode.NONE
    return topic, pair


def send(
    client: Client, topic: str, pair: ProducerIdAndEpoch, value: str, sequence: int = 0, version: int = IMPLICIT
) -> None:
    data = batch(value, pair=pair, sequence=sequence, transactional=True)
    client.send(produce_request(client, topic, [data], "t"), version=version)


def error_of(answered: Client) -> int:
    return int(answered.receive().responses[0].partition_responses[0].error_code)


@pytest.mark.promise("360.still-unknown")
@pytest.mark.parametrize("version", [EXPLICIT, IMPLICIT])
def test_a_write_whose_transaction_has_ended_meanwhile_is_refused(
    client: Client, registrar: SlowRegistrar, version: int
) -> None:
    """KAFKA-14884: it would be open for ever, since its marker is written already."""
    topic, pair = opened(client, version)
    other = Client(client.broker)
    send(other, topic, pair, "late", version=version)
    registrar.wait_for(1)
    ended(client, "t", pair, commit=False)
    registrar.release()
    assert error_of(other) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH)
    fetched = fetch(client, topic)
    assert fetched.last_stable_offset == fetched.high_watermark == 1, "there is the marker, and nothing is open"
    other.close()


class SetClock:
    """Tells the time that the test sets."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> Milliseconds:
        return Milliseconds(self.at)


def test_a_write_that_waited_is_appended_at_the_time_when_it_is(client: Client, registrar: SlowRegistrar) -> None:
    topic, pair = new_topic(client, message_timestamp_type="LogAppendTime"), init(client, "t")
    client.broker.node.clock = clock = SetClock()
    other = Client(client.broker)
    send(other, topic, pair, "late")
    registrar.wait_for(1)
    clock.at += 5_000
    registrar.release()
    (written,) = other.receive().responses[0].partition_responses
    assert (written.error_code, written.log_append_time_ms) == (ErrorCode.NONE, NOW + 5_000)
    other.close()


@pytest.mark.parametrize("version", [EXPLICIT, IMPLICIT])
def test_nothing_that_was_sent_later_overtakes_a_write_that_waits(
    client: Client, registrar: SlowRegistrar, version: int
) -> None:
    topic, pair = opened(client, version)
    other = Client(client.broker)
    for sequence, value in enumerate(("a", "b", "c")):
        send(other, topic, pair, value, sequence, version)
    registrar.wait_for(1)
    registrar.release()
    assert [error_of(other) for _ in range(3)] == [ErrorCode.NONE] * 3
    assert len(registrar.held) == 1, "the transaction is open here now"
    ended(client, "t", pair)
    assert values(fetch(client, topic)) == ["a", "b", "c"]
    other.close()


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_meanwhile_is_unknown(
    client: Client, registrar: SlowRegistrar, made_again: bool
) -> None:
    topic, pair = opened(client, IMPLICIT)
    other = Client(client.broker)
    send(other, topic, pair, "late")
    registrar.wait_for(1)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000))
    if made_again:
        make_again(client, topic)
    registrar.release()
    assert error_of(other) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if made_again:
        assert values(fetch(client, topic)) == []
    other.close()


@pytest.mark.parametrize("version", [EXPLICIT, IMPLICIT])
def test_a_write_whose_answer_is_lost_is_to_be_sent_again(
    client: Client, registrar: SlowRegistrar, version: int
) -> None:
    topic, pair = opened(client, version)
    other = Client(client.broker)
    registrar.loses = True
    for attempt, told in enumerate((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE), start=1):
        send(other, topic, pair, "x", version=version)
        registrar.wait_for(attempt)
        registrar.release()
        assert error_of(other) == told
        registrar.loses = False
    ended(client, "t", pair)
    assert values(fetch(client, topic)) == ["x"]
    other.close()


@pytest.mark.parametrize("lost", [False, True])
def test_an_offset_waits_for_its_answer_like_a_record(client: Client, registrar: SlowRegistrar, lost: bool) -> None:
    find_group(client)
    topic, pair = new_topic(client), init(client, "t")
    registrar.loses = lost

    async def soon() -> None:
        while not registrar.held:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        registrar.held[-1].set()

    on_the_loop(client.broker, lambda: asyncio.ensure_future(soon()))
    told = txn_commit(client, "t", pair, topic, 5)
    assert told == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if lost else ErrorCode.NONE]
    if not lost:
        ended(client, "t", pair)
        assert committed_offset(client, topic, stable=True) == (5, ErrorCode.NONE)


@pytest.mark.parametrize("made_again", [False, True])
def test_no_offset_is_committed_of_a_topic_that_is_deleted_meanwhile(
    client: Client, registrar: SlowRegistrar, made_again: bool
) -> None:
    """It would be where a group begins in the next topic of that name."""
    find_group(client)
    topic, pair = new_topic(client), init(client, "t")
    stays = new_topic(client)
    other = Client(client.broker)
    other.send(txn_commit_request(client, "t", pair, [topic, stays], 5), version=6)
    registrar.wait_for(1)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000))
    if made_again:
        make_again(client, topic)
    registrar.release()
    told = [each.partitions[0].error_code for each in other.receive().topics]
    assert told == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    ended(client, "t", pair)
    assert committed_offset(client, stays, stable=True) == (5, ErrorCode.NONE)
    assert committed_offset(client, topic, stable=True) == (-1, ErrorCode.NONE)
    other.close()
