"""The loop does what the table says: whatever ends any of its steps, each record counts once in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from fencepost.client.errors import (
    BrokerError,
    ClientError,
    CommitInDoubtError,
    OutcomeUnknownError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortableError,
)
from fencepost.client.loop_steps import STEPS, Ending, Next, Phase
from fencepost.client.records import ConsumerRecord
from fencepost.client.transaction_loop import State, TransactionLoop
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import Offset, TopicPartition
from fencepost.simulation.loop import VirtualLoop, run

AT, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
COUNT = LEADER_EPOCH = 7
ERRORS: Mapping[Ending, Callable[[], BaseException]] = {
    Ending.TRANSIENT: lambda: TimedOutError("nobody answered"),
    Ending.ABORTABLE: lambda: TransactionAbortableError("abort it"),
    Ending.UNKNOWN: lambda: OutcomeUnknownError("call it again"),
    Ending.FAILED: lambda: BrokerError(29, "not allowed"),
    Ending.IN_DOUBT: lambda: CommitInDoubtError("nobody knows"),
    Ending.FENCED: lambda: ProducerFencedError("another one has it"),
    Ending.CANCELLED: lambda: asyncio.CancelledError(),
}
CALLS = {
    Phase.INIT: "init_transactions",
    Phase.POLL: "poll",
    Phase.BEGIN: "begin_transaction",
    Phase.BLOCK: "block",
    Phase.SEND_OFFSETS: "send_offsets_to_transaction",
    Phase.COMMIT: "commit_transaction",
    Phase.ABORT: "abort_transaction",
}


class Cluster:
    """What is committed, and which calls are to fail."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.output: list[int] = []
        self.position, self.generation = 0, 1
        self.faults: dict[str, list[tuple[BaseException, bool]]] = {}
        """call -> what its next calls raise, and whether they are carried out all the same"""
        self.calls: list[str] = []

    def fails(self, call: str) -> tuple[BaseException, bool] | None:
        self.calls.append(call)
        faults = self.faults.get(call)
        return faults.pop(0) if faults else None


class Reader:
    """A consumer, as far as the loop knows one."""

    begins_at_beginning, keeps_positions = True, False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._position = cluster.position
        self._generation = cluster.generation
        self._goes_to_committed = False
        """At the next poll: until then nothing is assigned."""

    def check_transactional(self) -> None: ...

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("group", self._generation, "member")

    def as_of_now(self, member: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
        return member

    def assignment(self) -> list[TopicPartition]:
        return [] if self._goes_to_committed else [AT]

    def position(self, at: TopicPartition) -> int:
        return {AT: self._position}[at]

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {at: OffsetAndMetadata(self._position, leader_epoch=LEADER_EPOCH) for at in self.assignment()}

    def seek(self, at: TopicPartition, offset: int) -> None:
        assert at in self.assignment()
        self._position = offset

    def seek_to_committed(self, otherwise: Mapping[TopicPartition, int]) -> None:
        assert set(otherwise) == {AT}
        self._goes_to_committed = True

    async def poll(self, timeout_ms: float, max_records: int) -> list[ConsumerRecord]:
        await asyncio.sleep(0)
        if self._goes_to_committed or self._generation != self._cluster.generation:
            self._generation, self._position = self._cluster.generation, self._cluster.position
            self._goes_to_committed = False
        if fault := self._cluster.fails("poll"):
            raise fault[0]
        found = range(self._position, min(self._position + max_records, self._cluster.count))
        if not found:
            await asyncio.sleep(timeout_ms / 1000)
        self._position = found.stop if found else self._position
        return [ConsumerRecord(*AT, Offset(offset), 0, None, b"", ()) for offset in found]


class Writer:
    """A producer, as far as the loop knows one; it asserts what a loop may never do."""

    transactional_id = "id"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_initialized = False
        self.dead: BaseException | None = None
        self.ends: str | None = None
        """How its transaction was to end, while that is not known."""
        self._open: list[int] | None = None
        self._position: int | None = None
        self._failed = False

    async def _call(self, call: str) -> bool:
        """Whether it is to be carried out; what is raised then is raised afterwards."""
        await asyncio.sleep(0)
        if self.dead is not None:
            raise self.dead
        fault = self._cluster.fails(call)
        if fault is None:
            return True
        error, carried_out = fault
        if carried_out:
            self._carry_out(call)
        if isinstance(error, ProducerFencedError | CommitInDoubtError | BrokerError):
            self.dead = error
        self._failed = isinstance(error, TransactionAbortableError) or call == "send_offsets_to_transaction"
        raise error

    def _carry_out(self, call: str) -> None:
        if call == "commit_transaction" and self._open is not None:
            assert self._position is not None, "a commit without positions"
            self._cluster.output += self._open
            self._cluster.position = self._position
        if call in ("commit_transaction", "abort_transaction"):
            self._open = self._position = None

    async def init_transactions(self) -> None:
        await self._call("init_transactions")
        assert not self.is_initialized
        self.is_initialized = True

    async def begin_transaction(self) -> None:
        assert self._open is None and self.ends is None, "the last transaction is open"
        await self._call("begin_transaction")
        self._open, self._failed = [], False

    def send(self, number: int) -> None:
        assert self._open is not None
        self._open.append(number)

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, Any], group: Any) -> None:
        assert self._open is not None
        await self._call("send_offsets_to_transaction")
        if group.generation_id != self._cluster.generation:
            self._failed = True
            raise TransactionAbortableError("ILLEGAL_GENERATION")
        assert offsets == {AT: OffsetAndMetadata(self._open[-1] + 1, leader_epoch=LEADER_EPOCH)}
        self._position = offsets[AT].offset

    async def commit_transaction(self) -> None:
        assert self.ends in (None, "commit")
        self.ends = "commit"
        try:
            await self._call("commit_transaction")
        except TransactionAbortableError:
            self.ends = None
            raise
        assert not self._failed, "what has failed is not committed"
        self._carry_out("commit_transaction")
        self.ends = None

    async def abort_transaction(self) -> None:
        assert self.ends in (None, "abort"), "its commit may have been carried out"
        self.ends = "abort"
        await self._call("abort_transaction")
        self._carry_out("abort_transaction")
        self.ends = None


def virtually(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main(_: VirtualLoop) -> None:
        async with asyncio.timeout(10_000):
            await work()

    run(main)


def loop_of(
    cluster: Cluster, max_records: int = 2, reader: Reader | None = None, **options: float
) -> tuple[TransactionLoop, Writer]:
    writer = Writer(cluster)
    given: Any = {"linger_ms": 0, "retry_timeout_ms": 300_000, **options}
    consumer: Any = reader or Reader(cluster)
    return TransactionLoop(consumer, writer, max_records=max_records, **given), writer


async def process(cluster: Cluster, loop: TransactionLoop, writer: Writer) -> None:
    """As a user does, until everything is processed."""
    while cluster.position < cluster.count and (handed := await loop.next()) is not None:
        await loop.begin(handed)
        error: BaseException | None = None
        for record in handed.records:
            writer.send(record.offset)
        if fault := cluster.fails("block"):
            error = fault[0]
        if not await loop.end(handed, error):
            assert error is not None
            raise error
        assert (handed.state is State.COMMITTED) == (cluster.position == handed.records[-1].offset + 1)


async def process_all(cluster: Cluster) -> list[BaseException]:
    """In as many lives as it takes; what was raised."""
    raised: list[BaseException] = []
    loop, writer = loop_of(cluster)
    for _ in range(10):
        if writer.dead is not None:
            loop, writer = loop_of(cluster)
        try:
            await process(cluster, loop, writer)
        except (ClientError, asyncio.CancelledError) as error:
            raised.append(error)
        else:
            return raised
    raise AssertionError("it does not come to an end")


CELLS = [(phase, ending) for phase, ending in product(Phase, Ending) if ending is not Ending.DONE]


@pytest.mark.parametrize(("phase", "ending"), CELLS)
def test_each_record_counts_once_whatever_ends_a_step(phase: Phase, ending: Ending) -> None:
    """At the first time and at the second, once and twice running, carried out or not, also where an abort follows."""

    async def each_of_them() -> None:
        times = product((0, 1), (1, 2), (False, True), (None, Ending.TRANSIENT, Ending.UNKNOWN, Ending.CANCELLED))
        for before, running, carried_out, abort in times:
            if carried_out and not (phase in (Phase.COMMIT, Phase.ABORT) and ending is not Ending.ABORTABLE):
                continue  # nothing else is carried out and not told
            cluster = Cluster()
            faults = [(ERRORS[ending](), carried_out) for _ in range(running)]
            if phase is Phase.ABORT:
                cluster.faults["block"] = [(TransactionAbortableError("so that it is aborted"), False)]
            elif abort is not None:
                cluster.faults["abort_transaction"] = [(ERRORS[abort](), False)]
            cluster.faults.setdefault(CALLS[phase], []).extend(faults)
            if before:
                await process_one(cluster)
            raised = await process_all(cluster)
            case = f"{before=} {running=} {carried_out=} {abort=}"
            assert cluster.output == list(range(COUNT)), case
            assert cluster.position == COUNT, case
            if STEPS[phase][ending] in (Next.RETRY, Next.AGAIN) and abort is not Ending.CANCELLED:
                assert raised == [], case

    virtually(each_of_them)


async def process_one(cluster: Cluster) -> None:
    """The first two records, without faults."""
    faults, cluster.faults = cluster.faults, {}
    count, cluster.count = cluster.count, 2
    loop, writer = loop_of(cluster)
    await process(cluster, loop, writer)
    cluster.faults, cluster.count = faults, count


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.INIT])
def test_what_fails_again_and_again_is_raised_and_the_loop_can_be_gone_on_with(phase: Phase) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        loop, writer = loop_of(cluster, retry_timeout_ms=5000)
        error = ERRORS[Ending.UNKNOWN if phase in (Phase.COMMIT, Phase.ABORT) else Ending.TRANSIENT]()
        if phase is Phase.ABORT:
            cluster.faults["block"] = [(ERRORS[Ending.ABORTABLE](), False)]
        cluster.faults[CALLS[phase]] = [(error, False)] * 1000
        begun = asyncio.get_running_loop().time()
        with pytest.raises(type(error)):
            await process(cluster, loop, writer)
        assert 4 <= asyncio.get_running_loop().time() - begun <= 5.5
        assert cluster.output == []
        cluster.faults.clear()
        await process(cluster, loop, writer)
        assert cluster.output == list(range(COUNT))

    virtually(scenario)


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("how", ["not answered", "cancelled"])
def test_another_loop_of_the_same_consumer_goes_on_where_the_group_is(how: str, carried_out: bool) -> None:
    """With a new producer: the last one could not tell what became of its commit."""

    async def scenario() -> None:
        cluster = Cluster()
        reader = Reader(cluster)
        loop, writer = loop_of(cluster, reader=reader, retry_timeout_ms=5000)
        unknown = [(ERRORS[Ending.UNKNOWN](), carried_out)] * 1000
        cluster.faults["commit_transaction"] = unknown
        if how == "cancelled":
            cluster.faults["commit_transaction"] = [(asyncio.CancelledError(), carried_out), *unknown]
        with pytest.raises((OutcomeUnknownError, asyncio.CancelledError)):
            await process(cluster, loop, writer)
        cluster.faults.clear()
        await process(cluster, *loop_of(cluster, reader=reader))
        assert cluster.output == list(range(COUNT))

    virtually(scenario)


@pytest.mark.parametrize("first", ["poll", "block"])
def test_what_failed_long_ago_does_not_count(first: str) -> None:
    """Others took its records, and there was nothing to do since."""

    async def scenario() -> None:
        cluster = Cluster(1 if first == "block" else 0)
        loop, writer = loop_of(cluster, retry_timeout_ms=5000)
        cluster.faults[first] = [(ERRORS[Ending.TRANSIENT](), False)]
        if first == "block":
            handed = await loop.next()
            assert handed is not None
            await loop.begin(handed)
            assert await loop.end(handed, ERRORS[Ending.TRANSIENT]())
            cluster.generation, cluster.position, cluster.output = 2, 1, [0]
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await loop.next()
        cluster.count = COUNT
        cluster.faults["block"] = [(ERRORS[Ending.TRANSIENT](), False)]
        await process(cluster, loop, writer)
        assert cluster.output == list(range(COUNT))

    virtually(scenario)


def test_patience_begins_anew_with_every_commit() -> None:
    async def scenario() -> None:
        cluster = Cluster(40)
        loop, writer = loop_of(cluster, max_records=1, retry_timeout_ms=1000)
        for _ in range(40):
            cluster.faults["block"] = [(ERRORS[Ending.TRANSIENT](), False)] * 3
            before, cluster.count = cluster.count, cluster.position + 1
            await process(cluster, loop, writer)
            cluster.count = before
        assert cluster.output == list(range(40))

    virtually(scenario)


@pytest.mark.parametrize("options", [{"max_records": 0}, {"linger_ms": -1}, {"retry_timeout_ms": -1}])
def test_senseless_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_records|milliseconds"):
        loop_of(Cluster(), **options)


def test_records_are_put_back_in_partitions_that_are_still_assigned_only() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        loop, _ = loop_of(cluster)
        handed = await loop.next()
        assert handed is not None
        handed.first[OTHER] = 5  # `Reader.seek` knows of no such partition
        await loop.begin(handed)
        assert not await loop.end(handed, ZeroDivisionError())

    virtually(scenario)


def test_where_a_log_was_begun_again_in_front_of_the_records_they_are_not_gone_back_to() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        loop, _ = loop_of(cluster)
        handed = await loop.next()
        assert handed is not None
        handed.first[AT] = 5
        loop._consumer.seek(AT, 3)
        loop.take_back(handed)
        assert loop._consumer.position(AT) == 3

    virtually(scenario)


def numbers(records: Sequence[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_after_an_error_of_the_block_the_same_records_come_again() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        loop, writer = loop_of(cluster, max_records=3)
        for _ in range(3):
            handed = await loop.next()
            assert handed is not None and numbers(handed.records) == [0, 1, 2]
            await loop.begin(handed)
            writer.send(0)
            assert not await loop.end(handed, ZeroDivisionError())
        assert cluster.output == []

    virtually(scenario)
