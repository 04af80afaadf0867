"""Records that threads leave for the event loop: each in order, once, and only while records are taken."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_producer import producer, shown, simulate

from fencepost.client import Producer, send_queue
from fencepost.client.errors import ClientError, ClosedError, TransactionAbortableError, TransactionAbortedError
from fencepost.client.send_queue import SendQueue
from fencepost.client.sending import Sending
from fencepost.simulation.world import ADDRESS, World

SIZE = 10


class Loop:
    """Stands in for the portal and the producer: what is woken is called when it is its turn."""

    def __init__(self, limit: int) -> None:
        self.due: list[Callable[[], object]] = []
        self.is_closed, self.takes_records = False, True
        self.buffer_used, self.waits_in_batches = 0, 0
        self.batches: list[Any] = []
        stands_in: Any = self
        self.queue = SendQueue(stands_in, stands_in, limit)

    def wake(self, what: Callable[[], object]) -> None:
        if self.is_closed:
            raise ClosedError("closed")
        self.due.append(what)

    def put_in(self, record: Any) -> Any:
        assert self.takes_records or self.stopping, "it was left while records were taken"
        self.batches.append(record)
        self.buffer_used += SIZE
        return f"future of {record}"

    stopping = False

    def stop(self) -> None:
        """As a producer takes no more records: first it says so, then it empties the queue."""
        self.takes_records, self.stopping = False, True
        self.queue.take_in()
        self.stopping = False

    def turn(self) -> None:
        due, self.due = self.due, []
        for each in due:
            each()


class Counting(Loop):
    """Sees to it that what goes into a batch counts until it is in."""

    def put_in(self, record: Any) -> Any:
        assert self.queue.size >= SIZE
        return super().put_in(record)


@given(
    steps=st.lists(st.sampled_from(["leave"] * 8 + ["turn", "call", "answer", "stop", "start"]), max_size=80),
    limit=st.integers(1, 8),
    most=st.integers(1, 6),
)
def test_what_was_left_is_put_in_once_in_order_and_while_it_may_be(steps: list[str], limit: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(send_queue, "MOST_WAITING", most)
        loop, left = Counting(limit * SIZE), list[int]()
        waiting, deliveries = 0, list[Any]()
        for number, step in enumerate(steps):
            if step == "leave":
                record: Any = number
                fits = loop.takes_records and waiting < most and loop.buffer_used + SIZE * waiting < limit * SIZE
                assert loop.queue.is_full == (waiting >= most or loop.buffer_used + SIZE * waiting >= limit * SIZE)
                delivery = loop.queue.leave(record, SIZE)
                assert (delivery is not None) == fits
                if fits:
                    left.append(number)
                    deliveries.append(delivery)
                    waiting += 1
            elif step == "answer":
                loop.buffer_used = 0
            elif step == "start":
                loop.takes_records = True
            else:
                {"turn": loop.turn, "call": loop.queue.take_in, "stop": loop.stop}[step]()
                if step != "turn":
                    assert loop.batches == left
                waiting = 0
            assert (len(loop.queue), loop.queue.size) == (waiting, SIZE * waiting)
            assert len(loop.due) <= 1, "many in one wake-up"
            assert loop.due or not waiting, "what waits is going to be taken"
        loop.turn()
        assert loop.batches == left
        assert [each.future for each in deliveries] == [f"future of {number}" for number in left]


def test_what_is_left_while_the_queue_is_emptied_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(100)
    put_in, records = loop.put_in, list[Any](range(3))

    def leave_another_one_first(record: Any) -> Any:
        if record < 2:
            loop.queue.leave(records[record + 1], SIZE)
        return put_in(record)

    monkeypatch.setattr(loop, "put_in", leave_another_one_first)
    loop.queue.leave(records[0], SIZE)
    for _turn in range(3):
        loop.turn()
    assert loop.batches == records


def test_when_the_loop_has_ended_whoever_leaves_a_record_is_told() -> None:
    loop, record = Loop(100), object()
    loop.is_closed = True
    for _ in range(2):
        with pytest.raises(ClosedError):
            loop.queue.leave(record, SIZE)  # type: ignore[arg-type]
    assert len(loop.queue) == 0


class TakesInWhenAsked(Loop):
    """Puts what is there into batches just when it is asked how much is in them, before or after it has looked."""

    def __init__(self, limit: int) -> None:
        self.before = self.after = False
        super().__init__(limit)

    @property
    def buffer_used(self) -> int:
        if self.before:
            self.turn()
        used = self._used
        if self.after:
            self.turn()
        return used

    @buffer_used.setter
    def buffer_used(self, used: int) -> None:
        self._used = used


@pytest.mark.parametrize("asked", ["before", "after"])
def test_what_goes_into_batches_while_somebody_looks_is_not_overlooked(asked: str) -> None:
    """Nobody else leaves a record then, since that takes the lock."""
    loop = TakesInWhenAsked(3 * SIZE)
    for record in range(3):
        assert loop.queue.leave(record, SIZE)  # type: ignore[arg-type]
    setattr(loop, asked, True)
    assert loop.queue.is_full
    assert loop.batches == [0, 1, 2]
    assert loop.queue.is_full


@pytest.mark.parametrize("asked", ["before", "after"])
def test_each_record_counts_once_in_what_is_told(asked: str) -> None:
    loop = TakesInWhenAsked(3 * SIZE)
    for record in range(3):
        assert loop.queue.leave(record, SIZE)  # type: ignore[arg-type]
    setattr(loop, asked, True)
    assert loop.queue.used == 3 * SIZE
    assert loop.batches == [0, 1, 2]


def test_what_is_taken_in_while_others_are_counts_as_taken() -> None:
    """As when one of them cannot be put into a batch, its transaction fails by that, and the queue is emptied."""

    class Failing(Loop):
        def put_in(self, record: Any) -> Any:
            if record == 1:
                assert self.queue.leave("late", SIZE)  # type: ignore[arg-type]
                self.queue.take_in()
            return super().put_in(record)

    loop = Failing(100 * SIZE)
    for number in range(4):
        assert loop.queue.leave(number, SIZE)  # type: ignore[arg-type]
    loop.turn()
    assert set(loop.batches) == {0, 1, 2, 3, "late"}
    assert (len(loop.queue), loop.queue.size) == (0, 0)


class StoppedWhenAsked(Loop):
    """Takes no more records from when it was asked whether it does, as soon as it can empty the queue."""

    stops: threading.Thread | None = None
    told = True

    @property
    def takes_records(self) -> bool:
        if self.stops is None:
            self.stops = threading.Thread(target=self.stop, daemon=True)
            self.stops.start()
            self.stops.join(0.1)
            return True
        return self.told

    @takes_records.setter
    def takes_records(self, told: bool) -> None:
        self.told = told


def test_the_queue_is_emptied_after_who_saw_that_records_are_taken() -> None:
    loop, record = StoppedWhenAsked(100), object()
    given: Any = record
    assert loop.queue.leave(given, SIZE) is not None
    assert loop.stops is not None
    loop.stops.join(60)
    assert loop.batches == [record]
    assert loop.queue.leave(given, SIZE) is None


def test_a_thread_that_is_interrupted_while_it_leaves_a_record_may_leave_another_one() -> None:
    """As a signal's handler does."""
    loop, others = Loop(100), list[Any](["of the handler"])
    wake = loop.wake

    def interrupted(what: Callable[[], object]) -> None:
        if others:
            assert loop.queue.leave(others.pop(), SIZE) is not None
        wake(what)

    loop.wake = interrupted  # type: ignore[method-assign]
    record: Any = "of the thread"
    thread = threading.Thread(target=loop.queue.leave, args=(record, SIZE), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    loop.turn()
    assert loop.batches == ["of the handler", "of the thread"]


class NotWoken:
    """A portal whose loop does not get to it."""

    def wake(self, _: object) -> None:
        pass


Ends = Callable[[Producer], Awaitable[object]]
ENDS: dict[str, Ends] = {
    "commit": lambda writer: writer.commit_transaction(),
    "abort": lambda writer: writer.abort_transaction(),
    "close": lambda writer: writer.close(),
    "abandon": lambda writer: writer.abandon(),
}


def left_for(writer: Producer) -> tuple[SendQueue, Any]:
    """A queue with a record, and what the record's thread was given."""
    portal: Any = NotWoken()
    queue = SendQueue(writer._sending, portal, 1000)
    writer._sending.take_from(queue)
    placed = writer._sending.placed("t", b"left", None, 0, None, ())
    assert placed is not None
    delivery = queue.leave(*placed)
    assert delivery is not None
    return queue, delivery


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("was_used", [False, True])
def test_what_was_left_belongs_to_the_transaction_that_was_open_then(end: str, was_used: bool) -> None:
    """Also where it is the first record that is in a batch, and the loop was not woken before the end begins."""

    async def scenario(world: World) -> None:
        writer = await producer(world).start()
        await writer.init_transactions()
        await writer.begin_transaction()
        await writer._cluster.topic("t", writer._cluster.deadline("looking"))
        if was_used:
            await writer.send("t", b"used", partition=0)
        queue, delivery = left_for(writer)
        await ENDS[end](writer)
        assert len(queue) == 0
        found, committed = await shown(world), [b"used", b"left"] if was_used else [b"left"]
        if end == "commit":
            assert found == committed and delivery.future.result().partition == 0
        else:
            assert found == []
            with pytest.raises(ClosedError if end == "abandon" else TransactionAbortedError):
                delivery.future.result()
        await writer.close()

    simulate(scenario)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_more_is_taken_when_the_queue_is_emptied_for_the_last_time(end: str) -> None:
    """A thread may leave a record between any two steps."""

    async def scenario(world: World) -> None:
        writer = await producer(world).start()
        await writer.init_transactions()
        await writer.begin_transaction()
        takes, queue = list[bool](), SimpleNamespace(take_in=lambda: takes.append(writer._sending.takes_records))
        stands_in: Any = queue
        writer._sending.take_from(stands_in)
        await ENDS[end](writer)
        assert takes and not any(takes)
        await writer.close()

    simulate(scenario)


def test_what_was_left_is_part_of_what_is_prepared() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer._cluster.topic("t", writer._cluster.deadline("looking"))
            left_for(writer)
            assert (await writer.prepare_transaction()).has_records
            await writer.commit_transaction()
        assert await shown(world) == [b"left"]

    simulate(scenario)


@pytest.mark.parametrize("end", ["commit_transaction", "prepare_transaction"])
def test_nothing_is_committed_without_a_record_that_could_not_be_put_in(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"before")
            _, delivery = left_for(writer)
            with monkeypatch.context() as patch:
                patch.setattr(Sending, "_append", Mock(side_effect=MemoryError))
                with pytest.raises(TransactionAbortableError, match="could not be put into a batch"):
                    await getattr(writer, end)()
            with pytest.raises(MemoryError):
                delivery.future.result()
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"after")
        assert await shown(world) == [b"after"]

    simulate(scenario)


@pytest.mark.parametrize("fatal", [False, True])
def test_what_was_left_when_its_transaction_failed_is_told_so(fatal: bool) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer._cluster.topic("t", writer._cluster.deadline("looking"))
            queue, delivery = left_for(writer)
            transactions = writer._transactional()
            transactions.fail(ClientError("the test wants it"), fatal=fatal)
            assert len(queue) == 0
            with pytest.raises(TransactionAbortedError, match="was not sent"):
                delivery.future.result()
            if not fatal:
                await writer.abort_transaction()
        assert await shown(world) == []

    simulate(scenario)


def test_what_was_left_before_the_end_is_sent_and_what_is_left_after_an_error_for_good_is_told_it() -> None:
    async def scenario(world: World) -> None:
        writer = await Producer(ADDRESS, runtime=world.runtime("idempotent")).start()
        await (await writer.send("t", b"known", partition=0))
        queue, delivery = left_for(writer)
        rules: Any = writer._rules
        rules.error = ClientError("for good")
        queue.take_in()
        with pytest.raises(ClientError, match="for good"):
            delivery.future.result()
        rules.error = None
        queue, delivery = left_for(writer)
        await writer.close()
        assert (await delivery.future).offset == 1

    simulate(scenario)


def test_none_that_is_left_by_a_thread_comes_after_the_stop() -> None:
    """Threads leave records as fast as they can while the loop takes them, stops and starts."""
    loop, per_thread, accepted = Loop(1 << 40), 20_000, [list[tuple[int, int]]() for _ in range(3)]
    stopped = threading.Event()

    def leave(thread: int) -> None:
        stopped.wait()  # else they may be done before the loop has begun
        for number in range(per_thread):
            record: Any = (thread, number)
            if loop.queue.leave(record, 0) is not None:
                accepted[thread].append(record)

    threads = [threading.Thread(target=leave, args=(thread,)) for thread in range(3)]
    for each in threads:
        each.start()
    stops = 0
    while any(each.is_alive() for each in threads):
        loop.takes_records = True
        loop.turn()
        loop.stop()  # where put_in asserts that none comes later
        stopped.set()
        stops += 1
    loop.stop()
    assert stops > 0 and sorted(loop.batches) == sorted(record for each in accepted for record in each)
    for thread in range(3):
        assert [record for record in loop.batches if record[0] == thread] == accepted[thread]
