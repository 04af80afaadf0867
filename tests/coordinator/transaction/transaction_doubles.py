"""A small world for the transaction coordinator: journals in memory, a clock that is set, markers that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from fencepost.coordinator.transaction import (
    Ended,
    Initialized,
    Marker,
    Results,
    TransactionCoordinator,
    TransactionSettings,
)
from fencepost.coordinator.transaction.journal import decode, encode, read
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log.partition import Appended, Refused
from fencepost.log.producer_state import Origin
from fencepost.protocol.batch import BatchHeader, read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.types import (
    TRANSACTION_STATE,
    LeaderEpoch,
    Lsn,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)
from fencepost.runtime import at_once

START = Milliseconds(1_700_000_000_000)
A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


#: Every state that a pending state could be, and none.
EVERY_PENDING: tuple[State | None, ...] = (None, *State)
STORED_STATES = tuple(State(n) for n in range(6))


def transaction(state: State, **fields: object) -> TransactionMetadata:
    """A transactional id "t" with producer id 10 at epoch 7, whose running instance began at epoch 4."""
    has_partitions = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    known: dict[str, object] = {
        "transactional_id": "t",
        "producer_id": 10,
        "producer_epoch": 7,
        "previous_producer_id": 10,
        "timeout_ms": 60_000,
        "state": state,
        "partitions": {A: None, C: None} if has_partitions else {},
        "start_timestamp": -1 if state is State.EMPTY else START - 5000,
        "last_update_timestamp": START - 4000,
        "instance_epoch": 4,
    }
    return TransactionMetadata(**(known | fields))  # type: ignore[arg-type]


class FakeClock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> Milliseconds:
        return self.time

    def advance(self, milliseconds: int) -> Milliseconds:
        self.time = Milliseconds(self.time + milliseconds)
        return self.time


class FakeJournal:
    """One journal partition: batches in a list; lsn counts over all of them."""

    def __init__(self, world: FakeStorage) -> None:
        self.batches: list[bytes] = []
        self.leader_epoch = LeaderEpoch(3)
        self._world = world
        self.refuse: ErrorCode | None = None

    def append(self, batch: bytes, origin: Origin, now: Milliseconds) -> Appended | Refused:  # noqa: ARG002
        assert origin is Origin.COORDINATOR
        if self.refuse is not None:
            return Refused(self.refuse, None)
        self.batches.append(bytes(batch))
        self._world.events.append(f"journal {self.last.state.name}" if self.last else "journal tombstone")
        self._world.lsn = Lsn(self._world.lsn + 1)
        offset = len(self.batches) - 1
        return Appended(Offset(offset), Offset(offset), -1, Offset(0), self._world.lsn, False)

    def scan(self, offset: int, /) -> Iterator[tuple[BatchHeader, bytes]]:
        yield from ((read_header(batch), batch) for batch in self.batches[offset:])

    @property
    def last(self) -> TransactionMetadata | None:
        """What the newest record says."""
        entry = decode(0, next(read(0, self.scan(len(self.batches) - 1)))[-1])
        return None if entry is None else entry.transaction


class FakeStorage:
    def __init__(self, partitions: int) -> None:
        self.lsn = Lsn(100)
        self.events: list[str] = []
        self.journals = [FakeJournal(self) for _ in range(partitions)]

    def partition(self, topic: str, index: int) -> FakeJournal | None:
        return self.journals[index] if topic == TRANSACTION_STATE and index < len(self.journals) else None


class FakeMarkers:
    """Writes markers at once, unless partitions are told to answer otherwise or everything is held back."""

    def __init__(self, storage: FakeStorage) -> None:
        self._storage = storage
        self.written: list[tuple[Marker, TopicPartition]] = []
        self.attempts = 0
        #: What a partition answers instead of taking the marker.
        self.answers: dict[TopicPartition, ErrorCode] = {}
        #: Partitions that leave no answer at all.
        self.silent: list[TopicPartition] = []
        self.remote = False
        self.waiting: list[asyncio.Future[Results]] = []
        self._held: list[tuple[Marker, Sequence[TopicPartition]]] = []

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Results | asyncio.Future[Results]:
        self.attempts += 1
        if self.remote:
            future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            self._held.append((marker, partitions))
            return future
        return self.take(marker, partitions)

    def take(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Results:
        results: Results = {}
        for partition in partitions:
            if partition in self.silent:
                continue
            error = self.answers.get(partition, ErrorCode.NONE)
            results[partition] = error
            if not error:
                self.written.append((marker, partition))
                self._storage.lsn = Lsn(self._storage.lsn + 1)
                self._storage.events.append(f"marker {partition}")
        return results

    def answer(self) -> None:
        """The remote leaders answer everything that they were asked."""
        waiting, self.waiting, held, self._held = self.waiting, [], self._held, []
        for future, (marker, partitions) in zip(waiting, held, strict=True):
            future.set_result(self.take(marker, partitions))


class FakeProducerIds:
    def __init__(self, first: int = 1000) -> None:
        self.given = first
        self.exhausted = False

    def next(self) -> ProducerId | None:
        if self.exhausted:
            return None
        self.given += 1
        return ProducerId(self.given - 1)


class World:
    """A coordinator and everything around it."""

    def __init__(self, level: int = 2, partitions: int = 4, *, loaded: bool = True, two_phase_commit: bool = False):
        self.level = level
        self.clock = FakeClock()
        self.storage = FakeStorage(partitions)
        self.markers = FakeMarkers(self.storage)
        self.producer_ids = FakeProducerIds()
        self.settings = TransactionSettings(
            partitions=partitions, two_phase_commit=two_phase_commit, transaction_version=lambda: self.level
        )
        self.coordinator = self.new_coordinator(loaded=loaded)

    def new_coordinator(self, *, loaded: bool = True) -> TransactionCoordinator:
        coordinator = TransactionCoordinator(self.storage, self.producer_ids, self.markers, self.clock, self.settings)
        if loaded:
            for index in range(len(self.storage.journals)):
                coordinator.load(index)
        return coordinator

    def fail_over(self) -> None:
        """Another coordinator takes over every journal partition."""
        for journal in self.storage.journals:
            journal.leader_epoch = LeaderEpoch(journal.leader_epoch + 1)
        self.coordinator = self.new_coordinator()

    def journal(self, transactional_id: str) -> FakeJournal:
        return self.storage.journals[partition_for_id(transactional_id, len(self.storage.journals))]

    def put(self, transaction: TransactionMetadata) -> None:
        """Make this the state of its id, by way of the journal and a load; what is pending is held back.

        The markers of a prepared transaction stay missing until `release`.
        """
        journal = self.journal(transaction.transactional_id)
        journal.append(encode(transaction, max(self.level, 1)), Origin.COORDINATOR, self.clock.now())
        self.markers.answers = dict.fromkeys(transaction.partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.fail_over()

    def tick(self, now: Milliseconds) -> None:
        """What time brings, all of it at once."""
        at_once(self.coordinator.tick(now))

    def release(self) -> None:
        """Every leader is back."""
        self.markers.answers.clear()
        self.coordinator.retry_markers()

    def state(self, transactional_id: str = "t") -> str:
        return self.coordinator.describe(transactional_id).state

    # The requests, with what tests seldom care about filled in.

    def init(
        self,
        transactional_id: str | None = "t",
        pair: tuple[int, int] = (-1, -1),
        timeout_ms: Milliseconds = Milliseconds(60_000),
    ) -> Initialized:
        return self.coordinator.init_producer_id(transactional_id, timeout_ms, *ProducerIdAndEpoch.of(*pair))

    def add(
        self, pair: tuple[int, int], *partitions: TopicPartition, version: int = 2, transactional_id: str = "t"
    ) -> ErrorCode:
        return self.coordinator.add_partitions(
            transactional_id, *ProducerIdAndEpoch.of(*pair), partitions or (A,), version
        ).error

    def end(self, pair: tuple[int, int], commit: bool = True, version: int = 5, transactional_id: str = "t") -> Ended:
        return self.coordinator.end(transactional_id, *ProducerIdAndEpoch.of(*pair), commit, version)

    def with_settings(self, change: Callable[[TransactionSettings], TransactionSettings]) -> World:
        self.settings = change(self.settings)
        self.coordinator = self.new_coordinator()
        return self


def pair_of(answer: Initialized | Ended) -> tuple[int, int]:
    """The pair in a successful answer."""
    assert answer.error == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch
