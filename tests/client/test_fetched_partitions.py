"""Which partitions a fetcher reads, and what it forgets with them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.cluster import TopicView
from fencepost.client.commit_order.options import CommitOrder
from fencepost.client.errors import BrokerError, ConnectionLostError, DamagedRecordsError
from fencepost.client.fetch_session import Answer, Wanted
from fencepost.client.fetcher import Fetcher
from fencepost.client.lost_positions import find_lost_positions
from fencepost.client.records import ConsumerRecord
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FetchResponse
from fencepost.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Isolation, ProducerId, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def fetcher(cluster: Any = None) -> Fetcher:
    sizes: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1000, "max_partition_bytes": 100}
    made = Fetcher(cast(Any, cluster), Isolation.READ_COMMITTED, max_wait_ms=500, **sizes)
    made.follow({A: 1, B: 2}, {})
    made._current, made.out_of_range, made.working = made.followed[A], {A: (1, None), B: (2, None)}, {A: 0, B: 1}
    return made


def test_nothing_of_a_former_assignment_counts_in_the_next_one() -> None:
    found = fetcher()
    found.follow({A: 5}, {})
    assert {at: each.fetch_offset for at, each in found.followed.items()} == {A: 5}
    assert (found.out_of_range, found.working, found._current) == ({}, {}, None)


def test_what_is_given_up_is_handed_out_no_more_and_the_rest_stays() -> None:
    found = fetcher()
    found.drop([A])
    assert {at: each.fetch_offset for at, each in found.followed.items()} == {B: 2}
    assert (found.out_of_range, found.working, found._current) == ({B: (2, None)}, {B: 1}, None)
    found.drop([A])
    assert list(found.followed) == [B]


def test_what_is_read_already_goes_on_where_it_is() -> None:
    found = fetcher()
    found.drop([B])
    before = found.followed[A]
    found.follow_too({A: 9, B: 7}, {})
    assert found.followed[A] is before
    assert {at: each.fetch_offset for at, each in found.followed.items()} == {A: 1, B: 7}


def test_a_node_may_wait_for_records_and_then_take_as_long_as_for_any_answer() -> None:
    given: list[int] = []

    async def request(_: object, __: int, timeout_ms: int) -> None:
        given.append(timeout_ms)
        raise ConnectionLostError("it is gone")

    async def connection(_: int) -> Any:
        return SimpleNamespace(version_of=lambda *_: 12, request=request)

    async def main() -> None:
        found = fetcher(SimpleNamespace(connection=connection, request_timeout_ms=2000, topics={}))
        await found._fetch(1, [found.followed[A]], 500)

    asyncio.run(main())
    assert given == [2500]


@pytest.mark.parametrize("again", [OLD, NEW])
def test_an_answer_that_was_asked_for_in_a_former_assignment_is_not_handed_out(again: uuid.UUID) -> None:
    """At the same offset: the topic may have been deleted meanwhile, and made again."""

    def answer(value: bytes) -> Answer:
        records = encode_batch([(0, None, value, ())])
        return Answer({A: PartitionData(partition_index=0, error_code=0, high_watermark=1, records=records)}, {})

    async def main() -> None:
        found = fetcher()
        found.follow({A: 0}, {"t": OLD})
        asked = {A: (found.followed[A], Wanted(OLD, 0))}
        found.follow({A: 0}, {"t": again})
        found._take_answer(answer(b"old"), asked)
        assert found.take(10) == []
        found._take_answer(answer(b"new"), {A: (found.followed[A], Wanted(again, 0))})
        assert [record.value for record in found.take(10)] == [b"new"]

    asyncio.run(main())


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_error_that_was_answered_for_a_former_assignment_is_not_of_this_one(error: ErrorCode) -> None:
    """The position is in the log that is read now, and who reads may read."""
    refused = Answer({A: PartitionData(partition_index=0, error_code=error, high_watermark=-1)}, {})

    async def main() -> None:
        found = fetcher(SimpleNamespace(is_led=lambda _: True))
        found.follow({A: 0}, {"t": OLD})
        asked = {A: (found.followed[A], found.followed[A].wanted)}
        found.follow({A: 0}, {"t": NEW})
        found._take_answer(refused, asked)
        assert found.lost() == {}

    asyncio.run(main())


def test_an_answer_of_a_topic_that_was_deleted_is_neither_handed_out_nor_an_error() -> None:
    """It may come when the topic that was made anew is known, and read from the same offset."""
    records = encode_batch([(0, None, b"of old", ())])
    told = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=OLD, partitions=[told])])

    async def main() -> None:
        found = fetcher()

        async def request(*_: object) -> FetchResponse:
            await find_lost_positions(found, cast(Any, SimpleNamespace(ends=ends, instead_of=ends)))
            return response

        async def connection(_: int) -> Any:
            return SimpleNamespace(version_of=lambda *_: 13, request=request)

        async def ends(partitions: Any, *_: object, **__: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 0)

        topics = {"t": TopicView("t", NEW, {0: 1})}
        known: dict[str, Any] = {"topics": topics, "is_led": lambda _: True, "request_timeout_ms": 2000}
        found = fetcher(SimpleNamespace(connection=connection, **known))
        found.follow({A: 0}, {"t": OLD})
        await found._fetch(1, [found.followed[A]], 500)
        assert found.error is None
        assert found.take(10) == []
        assert found.followed[A].wanted == Wanted(NEW, 0)

    asyncio.run(main())


def test_what_is_worked_on_counts_no_more_where_somebody_seeks() -> None:
    """It would be committed in place of where reading goes on."""
    found = fetcher()
    found.seek(A, 9)
    assert found.before_work() == {B: 1}
    assert {at: each.next_offset() for at, each in found.followed.items()} == {A: 9, B: 2}


def test_what_a_leader_said_of_a_position_counts_no_more_where_somebody_seeks() -> None:
    """Also to the same offset: it may be in the log by now, and what is known of the epoch before it is another."""
    found = fetcher(SimpleNamespace(is_led=lambda _: True))
    assert found.lost() == {A: None, B: None}
    found.seek(A, 1)
    assert found.lost() == {B: None}


#: What the next leader may know better, or this one later.
ANOTHER_LEADER = {
    *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE),
    *(ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE),
    *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID),
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@pytest.mark.parametrize("error", ErrorCode)
def test_another_leader_is_looked_for_where_one_may_know_better_and_else_the_error_is_told(error: ErrorCode) -> None:
    forgotten: list[str] = []
    answer = Answer({A: PartitionData(partition_index=0, error_code=error, high_watermark=-1, records=b"")}, {})

    async def main() -> tuple[Any, int]:
        found = fetcher(SimpleNamespace(forget_topic=forgotten.append))
        found.follow({A: 1}, {})
        try:
            found._take_answer(answer, {A: (found.followed[A], found.followed[A].wanted)})
        except BrokerError as raised:
            return found.out_of_range, raised.code
        return found.out_of_range, 0

    out_of_range, raised = asyncio.run(main())
    is_out = error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert forgotten == ["t"] * (error in ANOTHER_LEADER)
    assert out_of_range == ({A: (1, None)} if is_out else {})
    assert raised == (0 if is_out or error in ANOTHER_LEADER else error)


async def with_records(*places: TopicPartition) -> Fetcher:
    """Three records of each of these partitions are there, from offset 0 on."""
    found = fetcher(SimpleNamespace(topics={}, nodes={}, is_led=lambda _: True))
    found.follow(dict.fromkeys(places, 0), {})
    found._lookups = cast(Any, SimpleNamespace(want=lambda _: None))
    take_answer(found, encode_batch([(0, None, b"%d" % number, ()) for number in range(3)]))
    return found


def take_answer(found: Fetcher, records: bytes) -> None:
    """Have it answered with these records for each of its partitions."""
    told = {
        at: PartitionData(partition_index=at.partition, error_code=0, high_watermark=3, records=records)
        for at in found.followed
    }
    found._take_answer(Answer(told, {}), {at: (each, each.wanted) for at, each in found.followed.items()})


def test_whoever_asks_for_the_next_record_is_done_with_all_before_it() -> None:
    """Also with those of other partitions: what is committed by itself is behind them."""

    async def main() -> None:
        found = await with_records(A, B)
        for number in range(6):
            record = found.take_one(lambda: True)
            assert record is not None
            at = TopicPartition(record.topic, record.partition)
            assert found.before_work() == {at: number % 3}
        assert {at: each.next_offset() for at, each in found.followed.items()} == {A: 3, B: 3}

    asyncio.run(main())


@pytest.mark.parametrize("how", ["one by one", "many", "a batch"])
def test_of_a_partition_that_is_paused_nothing_is_handed_out_though_it_is_there(how: str) -> None:
    async def main() -> None:
        found = await with_records(A, B)
        first = found.take_one(lambda: True)
        assert first is not None and first.partition == A.partition
        found.followed[A].paused = True
        take: Callable[[], list[ConsumerRecord]] = {
            "one by one": lambda: [each] if (each := found.take_one(lambda: True)) is not None else [],
            "many": lambda: found.take(1),
            "a batch": lambda: list(found.take_batch() or ()),
        }[how]
        seen = []
        while some := take():
            seen += some
        assert [(each.partition, each.offset) for each in seen] == [(B.partition, offset) for offset in range(3)]
        found.followed[A].paused = False
        rest = found.take(10)
        assert [(each.partition, each.offset) for each in rest] == [(A.partition, 1), (A.partition, 2)]

    asyncio.run(main())


def test_what_is_damaged_is_told_at_once_where_nothing_else_is_there() -> None:
    """Whoever waited for more before that would wait for others' records."""

    async def main() -> None:
        found = await with_records(A)
        fetched = found.followed[A].fetched
        assert fetched is not None
        found.followed[A].fetched = fetched._replace(data=memoryview(bytes(fetched.data[:-1]) + b"?"))
        with pytest.raises(DamagedRecordsError):
            found.take(10)
        assert found.take(10) == []

    asyncio.run(main())


def test_what_is_kept_of_open_transactions_goes_with_the_partition_that_it_is_of() -> None:
    """In commit order their records take memory, which is there for those that are read on."""
    order = CommitOrder(1000, None, 60_000)
    sizes: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1000, "max_partition_bytes": 100}

    async def main() -> None:
        found = Fetcher(cast(Any, None), Isolation.READ_COMMITTED, max_wait_ms=500, order=order, **sizes)
        found.follow({A: 0, B: 0}, {})
        take_answer(found, encode_batch([(0, None, b"kept", ())], producer_id=ProducerId(7), transactional=True))
        assert found.take(10) == []
        of_both = order.buffers.in_memory
        found.drop([A])
        assert 0 < order.buffers.in_memory == of_both / 2

    asyncio.run(main())
