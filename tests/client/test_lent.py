"""Records that a thread takes by itself: each once and in order, whatever is asked of the consumer in between."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker import Broker, running_broker
from fencepost.client import TopicPartition, lent
from fencepost.client.blocking import Admin, Consumer, Producer
from fencepost.client.errors import ClosedError
from fencepost.client.followed import Followed
from fencepost.client.lent import LENT_FOR, MOST_LENT, Lending, Lent
from fencepost.client.records import ConsumerRecord, Opened
from fencepost.protocol.types import Offset

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
RECORDS = 300
THERE = Opened(b"", [])


def records(offsets: list[int]) -> list[ConsumerRecord]:
    return [ConsumerRecord("t", 0, Offset(offset), 0, None, None, ()) for offset in offsets]


class Reader:
    """A thread that iterates over one partition, and the event loop behind it."""

    def __init__(self, offsets: list[int]) -> None:
        self.partition = Followed(AT, 0)
        self.partition.opened = THERE
        self.partition.ready, self.partition.chunk = records(offsets)[::-1], offsets[-1] + 10
        self.working: dict[TopicPartition, Any] = {}
        self.lending, self.now = Lending(), 0.0
        self.lent: Lent | None = None

    def settle(self) -> None:
        self.lending.settle({AT: self.partition}, self.working)

    def next(self) -> int | None:
        record = self.lent.next(self.now) if self.lent is not None else None
        if record is not None:
            return record.offset
        self.settle()
        if not self.partition.ready:
            return None
        self.working = {AT: self.partition.before_ready()}
        taken = self.partition.ready.pop()
        self.partition.handed_out(taken.offset)
        self.lent = self.lending.lend(self.partition, taken, self.now)
        return taken.offset


@given(
    gaps=st.lists(st.integers(1, 3), min_size=1, max_size=60),
    steps=st.lists(st.sampled_from(["next"] * 12 + ["settle", "later"]), max_size=90),
)
def test_each_is_taken_once_and_positions_are_those_behind_it(gaps: list[int], steps: list[str]) -> None:
    offsets = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    reader, taken = Reader(offsets), 0
    for step in steps:
        if step == "later":
            reader.now += LENT_FOR
        elif step == "next":
            assert reader.next() == (offsets[taken] if taken < len(offsets) else None)
            taken = min(taken + 1, len(offsets))
        if step == "settle" and taken:
            reader.settle()
            assert reader.partition.position == (offsets[taken - 1] + 1 if taken < len(offsets) else offsets[-1] + 10)
            assert reader.working == {AT: offsets[taken - 1]}, "the thread works on that one"
            assert [record.offset for record in reversed(reader.partition.ready)] == offsets[taken:]
            assert taken == len(offsets) or reader.partition.opened is THERE, "a batch of them is of what was fetched"


def test_columns_of_what_was_lent_and_put_back_have_all_that_was_fetched() -> None:
    with running_broker() as broker, Producer(broker.bootstrap_servers) as writer:
        writer.send_many("t", [b"%d" % number for number in range(6)], partition=0).result()
        with Consumer("t", bootstrap_servers=broker.bootstrap_servers) as reader:
            assert [next(reader).offset for _ in range(4)] == [0, 1, 2, 3]
            rest = reader.poll_batch()
            assert rest is not None
            assert rest.to_arrow("offset", "timestampType").to_pylist() == [
                {"offset": offset, "timestampType": 0} for offset in (4, 5)
            ]


@pytest.mark.parametrize("taken", [3, 5], ids=["all is taken", "some is left"])
def test_what_was_sought_meanwhile_counts(taken: int) -> None:
    reader = Reader(list(range(20)))
    assert [reader.next() for _ in range(taken)] == list(range(taken))
    reader.working = {}
    reader.partition.seek(7)
    reader.settle()
    assert reader.partition.position == 7 and reader.partition.ready == []
    assert reader.working == {}, "to go on behind it would be to go back to before the seek"


def test_the_thread_and_the_loop_take_each_once_between_them() -> None:
    """Whoever is faster; the loop takes the last ones."""
    for _ in range(50):
        loan = Lent(Followed(AT, 0), 0, records(list(range(1, 400)))[::-1], until=1.0)
        taken: list[int] = []
        begun = threading.Event()

        def take(loan: Lent = loan, taken: list[int] = taken, begun: threading.Event = begun) -> None:
            while (record := loan.next(0.0)) is not None:
                taken.append(record.offset)
                begun.set()

        thread = threading.Thread(target=take)
        thread.start()
        begun.wait()
        rest, last = loan.take_back()
        thread.join()
        assert [*taken, *(record.offset for record in reversed(rest))] == list(range(1, 400))
        assert taken[-1] == last


def test_more_is_lent_the_longer_all_of_it_is_taken() -> None:
    reader, loans = Reader(list(range(40))), list[Lent]()
    for _ in range(40):
        reader.next()
        if reader.lent is not None and reader.lent not in loans:
            loans.append(reader.lent)
    assert [len(each._offsets) - 1 for each in loans] == [1, 3, 7, 15, 8]
    reader = Reader(list(range(9)))
    for _ in range(9):
        reader.next()
        reader.settle()
        assert reader.lent is None or len(reader.lent._offsets) == 2, "who asks for positions is lent little"


def test_no_more_is_lent_than_what_is_soon_taken_back_nor_for_longer() -> None:
    reader, sizes = Reader(list(range(4 * MOST_LENT))), set[int]()
    for _ in range(4 * MOST_LENT):
        reader.next()
        sizes.add(0 if reader.lent is None else len(reader.lent._offsets) - 1)
    assert max(sizes) == MOST_LENT
    reader = Reader(list(range(9)))
    assert [reader.next() for _ in range(3)] == [0, 1, 2] and reader.next() == 3
    assert reader.lent is not None
    assert reader.lent.next(math.nextafter(LENT_FOR, 0)) is not None
    assert reader.lent.next(LENT_FOR) is None


# A blocking consumer


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    with running_broker(settings=settings | {"group.initial.rebalance.delay.ms": 0}) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", partitions=2)
        with Producer(broker.bootstrap_servers) as filler:
            for partition in (0, 1):
                filler.send_many("t", [b"%d" % n for n in range(RECORDS)], partition=partition).result()
        yield broker


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_commit=False) as consumer:
        consumer.assign([AT])
        yield consumer


def take(consumer: Consumer, count: int) -> list[int]:
    return [int(next(consumer).value or b"") for _ in range(count)]


def test_positions_are_those_behind_what_was_iterated_over(consumer: Consumer) -> None:
    assert take(consumer, 100) == list(range(100))
    assert consumer.position(AT) == 100
    assert take(consumer, 20) == list(range(100, 120))
    assert consumer.next_offsets()[AT].offset == 120
    assert take(consumer, 30) == list(range(120, 150))
    assert consumer.lag([AT]) == {AT: RECORDS - 150}
    assert take(consumer, 50) == list(range(150, 200))
    consumer.commit()
    committed = consumer.committed([AT])[AT]
    assert committed is not None and committed.offset == 200
    assert take(consumer, 60) == list(range(200, 260))
    assert consumer.commit_async().result()[AT].offset == 260
    assert take(consumer, 40) == list(range(260, RECORDS))


def test_what_was_not_taken_in_time_is_handed_out_all_the_same(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lent, "LENT_FOR", 0.0)
    assert take(consumer, 60) == list(range(60))
    assert consumer.position(AT) == 60


def test_other_ways_to_read_go_on_behind_it(consumer: Consumer) -> None:
    assert take(consumer, 40) == list(range(40))
    assert [int(record.value or b"") for record in consumer.poll(max_records=30)] == list(range(40, 70))
    assert take(consumer, 40) == list(range(70, 110))
    batch = consumer.poll_batch()
    assert batch is not None and [int(record.value or b"") for record in batch] == list(range(110, RECORDS))


def test_what_is_paused_or_sought_is_not_iterated_over(consumer: Consumer) -> None:
    assert take(consumer, 40) == list(range(40))
    consumer.pause([AT])
    assert consumer.poll(100) == []
    consumer.resume([AT])
    assert take(consumer, 40) == list(range(40, 80))
    consumer.seek(AT, 10)
    assert take(consumer, 40) == list(range(10, 50))
    consumer.seek_to_beginning([AT])
    assert take(consumer, 40) == list(range(40))
    consumer.seek_to_committed({AT: 200})
    assert take(consumer, 40) == list(range(200, 240))


def test_what_is_assigned_instead_is_read_at_once(consumer: Consumer) -> None:
    assert take(consumer, 40) == list(range(40))
    consumer.assign([OTHER])
    assert next(consumer).partition == 1


def test_a_consumer_that_was_closed_by_somebody_else_hands_out_nothing_more(consumer: Consumer) -> None:
    assert take(consumer, 40) == list(range(40))
    consumer.close()
    with pytest.raises(ClosedError):
        next(consumer)


def test_closing_commits_what_the_caller_is_done_with(broker: Broker) -> None:
    """All but the last record, as without threads: nobody asked for the one after it."""
    servers = broker.bootstrap_servers
    with Consumer("t", bootstrap_servers=servers, group_id="by itself") as reader:
        taken = [(record.partition, record.offset) for _, record in zip(range(130), reader, strict=False)]
    with Consumer(bootstrap_servers=servers, group_id="by itself") as asking:
        committed = {at: found.offset if found else 0 for at, found in asking.committed([AT, OTHER]).items()}
    done = {at: max([offset + 1 for part, offset in taken[:-1] if part == at.partition], default=0) for at in committed}
    assert len(taken) == 130
    assert committed == done
