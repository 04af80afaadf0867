"""What tasks of one machine send before the shuffle, by turns: all of it once, in order, or the batch is run again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.places import Place
from tests.spark.sending_ahead import DyingOnce
from tests.spark.test_driver import PLACES, Bench, Tasks, batch, in_world
from tests.spark.test_sink import GOOD, PLAN, Rows, run_tasks

from fencepost.broker import Broker
from fencepost.client import Consumer
from fencepost.client.errors import ClientError
from fencepost.client.portal import Portal
from fencepost.client.security import Security
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS
from fencepost.spark import Sink, Step, ahead, local_session, tasks
from fencepost.spark.ahead import SendingAhead, TaskAhead, Turning
from fencepost.spark.attempt import SECOND_ATTEMPT, Plan, PoisonedError, Receipt, Sending, claim
from fencepost.spark.claims import Written
from fencepost.spark.encoding import Encoder
from fencepost.spark.ledger import Ledger, LedgerStore, Turns, close_places
from fencepost.spark.ledger_file import LedgerFile, new_ledger, open_ledger
from fencepost.spark.place_states import NOTHING_THERE, PlaceState

#: Batches of each task for each of the two places.
EACH = 9
TASKS = 3


class OfOneProcess(LedgerFile):
    """Its tasks are in one process, where locks of files keep nobody out."""

    def __init__(self, path: str, held: set[int]) -> None:
        super().__init__(path)
        self._held = held

    def lock(self, place: int) -> bool:
        if place in self._held:
            return False
        self._held.add(place)
        return True

    def unlock(self, place: int) -> None:
        self._held.discard(place)


def records(*values: bytes) -> BatchBuilder:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value, ())
    return builder


class AtOnce(Tasks):
    """Some tasks send ahead, all at the same time; then a slot sends one more for each place."""

    most_waiting = (1_000_000,) * TASKS
    """Bytes that wait, from which on a task does."""

    async def run_tasks(self, plan: Plan) -> Sequence[Written]:
        self.plans.append(plan)
        held = set[int]()
        with new_ledger(2) as path:
            sent = await asyncio.gather(*(self.ahead(plan, path, held, task) for task in range(TASKS)))
            cluster = self._bench.cluster("slot")
            attempt = await claim(cluster, plan, 0, 0)
            for target, receipt in (each for receipts in sent for each in receipts):
                attempt.note(PLACES[target], receipt)
            with Turns(open_ledger(path), attempt, PLACES[:2]) as turns:
                for target in [0, 1] * 2:
                    await turns.write(target, records(b"rest"))
                found = await turns.finish(TASKS * EACH * 2 * 2 + 4)
            await attempt.close()
            await cluster.close()
            if self.between is not None:
                await self.between(plan)
            with open_ledger(path) as ledger:
                close_places(ledger, PLACES[:2], found)
        return found

    async def ahead(self, plan: Plan, path: str, held: set[int], task: int) -> list[tuple[int, Receipt]]:
        cluster = self._bench.cluster(f"task {task}")
        ledger = Ledger(OfOneProcess(path, held))
        turning = Turning(
            Sending(cluster, plan), ledger, PLACES[:2], plan.compression, most_waiting=self.most_waiting[task]
        )
        try:
            for number in range(EACH):
                for target in range(2):
                    await turning.put(target, records(*(b"%d-%02d-%d" % (task, number, n) for n in range(2))))
                if number % 4 == task:  # some of them wait for their answers in between
                    await turning.finish()
                elif number % 4 == task + 1:  # or have them without having waited
                    await asyncio.sleep(5)
            return await turning.finish()
        finally:
            await turning.close()
            await cluster.close()


async def in_order(bench: Bench, place: TopicPartition) -> list[bytes]:
    """Values as they are in the log."""
    async with Consumer(bootstrap_servers=ADDRESS, runtime=bench.world.runtime("reader of one")) as consumer:
        consumer.assign([place])
        found: list[bytes] = []
        for _ in range(5):
            found += [record.value or b"" for record in await consumer.poll(100)]
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("level", [2, 1])
def test_tasks_that_write_the_same_places_by_turns(level: int, codec: Compression) -> None:
    async def test(bench: Bench) -> None:
        driver = bench.driver(compression=codec)
        for number in range(2):
            at_once = AtOnce(bench)
            at_once.most_waiting = (0, 300, 1_000_000)
            assert await driver.write(batch(number, number), 1, False, at_once)
            assert len(at_once.plans) == 1
        values = sorted([b"%d-%02d-%d" % (t, b, n) for t in range(TASKS) for b in range(EACH) for n in range(2)] * 4)
        assert await bench.values() == sorted([*values, *[b"rest"] * 8])
        for place in PLACES[:2]:
            log = [value for value in await in_order(bench, place) if value != b"rest"]
            half = len(log) // 2
            for task in (b"0", b"1", b"2"):
                for written in (log[:half], log[half:]):
                    mine = [value for value in written if value.startswith(task)]
                    assert mine == sorted(mine) and len(mine) == EACH * 2

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
def test_a_task_that_stops_between_two_answers_leaves_a_place_where_nothing_is_committed(level: int) -> None:
    async def test(bench: Bench) -> None:
        driver, other = bench.driver(), bench.driver("other")
        await driver.take_over(batch(0, 0), False)
        plan = await driver.begin(1)
        await other.take_over(batch(0, 0), False)  # who fences the tasks
        at_once = AtOnce(bench)
        with new_ledger(2) as path:
            with pytest.raises(ClientError, match=r"EPOCH|FENCED|fenced"):
                await at_once.ahead(plan, path, set(), 0)
            before = asyncio.get_running_loop().time()
            with pytest.raises(PoisonedError, match=SECOND_ATTEMPT):
                await at_once.ahead(plan, path, set(), 1)
            late = asyncio.get_running_loop().time() - before
            assert late > 0.9, "Spark is told first of what was the matter"
            with open_ledger(path) as ledger, pytest.raises(PoisonedError, match=SECOND_ATTEMPT):
                close_places(ledger, PLACES[:2], [])
        assert await bench.values() == []

    in_world(test, level)


ROWS = 3000
WIDE = "lpad(cast(id as string), 1000, '0') as value"


def test_a_task_that_dies_after_it_has_sent_some_of_its_batches(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that Spark tries again."""
    place, steps = Place(broker, tmp_path), list[Step]()
    spark = local_session("tests", "2,4", {"spark.ui.showConsoleProgress": "false"})
    try:
        with monkeypatch.context() as dying:
            dying.setattr(ahead, "SendingAhead", partial(DyingOnce, folder=str(tmp_path)))
            sink = Sink(
                place.application, place.servers, [place.target], watch=lambda step, _: steps.append(step), tasks=2
            )
            rows = spark.range(0, ROWS, 1, 2).selectExpr(WIDE)
            assert sink.write(rows, 0, "query", topic=place.target)
        assert sink.write(spark.range(ROWS, 2 * ROWS, 1, 2).selectExpr(WIDE), 1, "query", topic=place.target)
        sink.close()
    finally:
        spark.stop()
    assert (tmp_path / "died").exists() and list(tmp_path.glob("sent-*"))
    assert steps == [Step.REPEATED, *[Step.WRITTEN, Step.COMMITTED] * 2]
    assert place.shown() == list(range(2 * ROWS))


def test_tasks_of_one_machine_are_given_one_ledger_before_the_shuffle_and_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, rows = Sink(**GOOD), Rows()
    rows.sparkSession.sparkContext.master = "local[2]"
    given, was_there = list[Any](), list[bool]()

    def route(rows: Rows, _topic: str, _plan: Plan, ahead: SendingAhead) -> Rows:
        given.append(ahead)
        return rows

    monkeypatch.setattr(
        "fencepost.spark.sink.close_places", lambda *_: was_there.append(Path(given[0].ledger).exists())
    )
    run_tasks(monkeypatch, sink, PLAN, rows, route)
    ((task, _),) = rows.tasks
    assert task.ledger is not None and given == [SendingAhead("127.0.0.1:9092", sink._security, PLAN, task.ledger)]
    assert was_there == [True] and not Path(task.ledger).exists()


class Kept:
    """What an encoder has sent ahead (encoding.Ahead).  `fails`: in `put` or `finish`."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.sent: list[tuple[int, int]] = []
        self.is_closed = False

    def put(self, target: int, batch: BatchBuilder) -> None:
        if self.fails == "put":
            raise LookupError("put")
        self.sent.append((target, batch.count))

    def finish(self) -> list[tuple[int, Receipt]]:
        if self.fails == "finish":
            raise LookupError("finish")
        return [(target, Receipt(count, 10 * place, 10 * place + count - 1, 7)) for place, (target, count) in self.told]

    @property
    def told(self) -> list[tuple[int, tuple[int, int]]]:
        return list(enumerate(self.sent))

    def close(self) -> None:
        self.is_closed = True


def rows_of(*sizes: int) -> pa.RecordBatch:
    values = pa.array([b"v" * size for size in sizes], pa.binary())
    return pa.RecordBatch.from_arrays([pa.nulls(len(sizes), pa.binary()), values], ["key", "value"])


class Noting:
    """An attempt that is told of what was sent ahead."""

    def __init__(self) -> None:
        self.notes: list[tuple[TopicPartition, Receipt]] = []
        self.written: list[tuple[TopicPartition, int]] = []
        self.after: list[tuple[TopicPartition, int]] = []

    def note(self, at: TopicPartition, receipt: Receipt) -> None:
        self.notes.append((at, receipt))

    def go_on(self, at: TopicPartition, records: int) -> None:
        self.after.append((at, records))

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:
        self.written.append((at, records.count))


def test_what_is_large_enough_is_sent_ahead_and_of_that_a_receipt_is_shuffled() -> None:
    """So is the rest, which is written behind it: the task of the slot is told of all rows."""
    kept, attempt, most = Kept(), Noting(), 1000
    encoder = Encoder("out", {"out": 1}, most, lambda: kept)
    shuffled = list(encoder(iter([rows_of(*[90] * 9), rows_of(*[90] * 7, 20)])))
    assert kept.sent == [(0, 8)] * 2 and kept.is_closed
    slot: Any = attempt
    with new_ledger(1) as path:
        with open_ledger(path) as ledger, ledger.turn(0) as mine:
            assert mine is not None
            mine.begin()
            mine.settle(16)
        with Turns(open_ledger(path), slot, PLACES[:1]) as turns:
            plan = PLAN._replace(counts={"out": 1}, batch_bytes=most)
            assert asyncio.run(tasks._send(slot, plan, iter(shuffled), turns)) == 17
    assert attempt.notes == [(PLACES[0], Receipt(8, 10 * n, 10 * n + 7, 7)) for n in range(2)]
    assert (attempt.after, attempt.written) == ([(PLACES[0], 16)], [(PLACES[0], 1)])


def test_what_is_large_enough_in_the_end_is_sent_ahead_and_not_shuffled_too() -> None:
    kept = Kept()
    (shuffled,) = Encoder("out", {"out": 1}, 1000, lambda: kept)(iter([rows_of(*[90] * 3)]))
    assert kept.sent == [(0, 3)]
    assert shuffled.column("whole").to_pylist() == [None]


def test_of_a_small_batch_nothing_is_sent_ahead() -> None:
    kept = Kept()
    plain, encoder = (Encoder("out", {"out": 3}, 10_000, ahead) for ahead in (None, lambda: kept))
    small = rows_of(*range(40))
    (before,), (after,) = plain(iter([small])), encoder(iter([small]))
    assert kept.sent == [] and kept.is_closed
    assert before.column("target").equals(after.column("target")) and before.column("whole").equals(
        after.column("whole")
    )


@pytest.mark.parametrize("fails", ["put", "finish"])
def test_a_task_that_fails_of_what_it_sends_ahead_hands_nothing_on(fails: str) -> None:
    kept = Kept(fails)
    with pytest.raises(LookupError, match=fails):
        next(Encoder("out", {"out": 1}, 1000, lambda: kept)(iter([rows_of(*[90] * 20)])))
    assert kept.is_closed


class OnePlace(LedgerStore):
    """One place, in a ledger that nobody else has; `told` says what happened to it."""

    def __init__(self, told: list[str]) -> None:
        self._told = told
        self._state = NOTHING_THERE

    def lock(self, place: int) -> bool:  # noqa: ARG002
        return True

    def unlock(self, place: int) -> None:  # noqa: ARG002
        self._told.append("a turn ends")

    def read(self, place: int) -> PlaceState:  # noqa: ARG002
        return self._state

    def note(self, place: int, state: PlaceState) -> None:  # noqa: ARG002
        self._state = state

    def close(self) -> None:
        self._told.append("the ledger is closed")


class OneSecond:
    """Sends batches (attempt.Sending), which are acknowledged a second after they are asked about."""

    def __init__(self, told: list[str]) -> None:
        self._told = told
        self._sent = 0

    def go_on(self, at: TopicPartition, records: int) -> None: ...

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:  # noqa: ARG002
        self._sent += records.size

    async def acknowledged(self, at: TopicPartition) -> Receipt:  # noqa: ARG002
        size, self._sent = self._sent, 0
        await asyncio.sleep(1)
        return Receipt(size // records(b"v").size, 0, 0, size)

    async def close(self) -> None:
        self._told.append("its connections are closed")


def turning_alone(told: list[str], most_waiting: int = 1_000_000) -> Turning:
    sending: Any = OneSecond(told)
    return Turning(sending, Ledger(OnePlace(told)), PLACES[:1], Compression.NONE, most_waiting=most_waiting)


def test_who_has_much_waiting_goes_on_when_a_turn_has_made_room_and_not_when_all_is_sent() -> None:
    async def main(_: VirtualLoop) -> None:
        told = list[str]()
        turning = turning_alone(told, 5 * records(b"v").size)
        for each in [b"v"] * 6:
            await turning.put(0, records(each))
        assert told == ["a turn ends"], "which leaves two batches"
        assert sum(receipt.records for _, receipt in await turning.finish()) == 6
        await turning.close()

    run(main)


def test_who_stops_in_its_turn_has_ended_it_before_the_ledger_is_closed() -> None:
    """Whose descriptor may be that of another file by then."""

    async def main(_: VirtualLoop) -> None:
        told = list[str]()
        turning = turning_alone(told)
        await turning.put(0, records(b"v"))
        await asyncio.sleep(0.5)
        await turning.close()
        assert told == ["a turn ends", "its connections are closed", "the ledger is closed"]

    run(main)


class Stopping:
    """What sends for one task (ahead.Turning), or a cluster: closing it fails, or `told` says that it is closed."""

    def __init__(self, told: list[str], name: str, fails: bool = False) -> None:
        self._told, self._name, self._fails = told, name, fails

    async def close(self) -> None:
        if self._fails:
            raise LookupError(self._name)
        self._told.append(self._name)


def test_a_task_that_cannot_stop_sending_leaves_no_connection_and_no_thread() -> None:
    told, given, portal = list[str](), SendingAhead("nowhere:1", Security(), PLAN, "no ledger"), Portal("of one task")
    task = TaskAhead(given)
    turning: Any = Stopping(told, "turning", fails=True)
    cluster: Any = Stopping(told, "cluster")
    task._at_work = portal, turning, cluster
    with pytest.raises(LookupError, match="turning"):
        task.close()
    assert told == ["cluster"]
    assert "of one task" not in [each.name for each in threading.enumerate()]


def test_a_task_that_finds_no_ledger_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr(ahead, "Cluster", lambda *_, **__: Stopping(told, "cluster"))
    given = SendingAhead("nowhere:1", Security(), PLAN, "/nowhere/no ledger")
    with pytest.raises(FileNotFoundError):
        asyncio.run(ahead._begin(given))
    assert told == ["cluster"]
