"""The journal partitions that this node leads, the transactional ids that live there, and when their time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from fencepost.coordinator.loading import taken_from
from fencepost.coordinator.transaction import journal
from fencepost.coordinator.transaction.markers import FIRST_DELAY, LONGEST_DELAY, REFUSED, SETTLED, Marker, Results
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log.partition import Appended, Refused
from fencepost.log.producer_state import Origin
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_keys import UnreadRecord
from fencepost.protocol.types import (
    FIRST_OFFSET,
    NO_LSN,
    TRANSACTION_STATE,
    Buffer,
    LeaderEpoch,
    Lsn,
    Milliseconds,
    Offset,
    TopicPartition,
)
from fencepost.runtime import Work


class JournalPartition(Protocol):
    """The part of a partition of `__transaction_state` that the coordinator uses."""

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    def append(self, batch: bytes, origin: Origin, now: Milliseconds, /) -> Appended | Refused: ...

    def scan(self, offset: Offset, /) -> Iterator[tuple[BatchHeader, Buffer]]: ...


class Journals(Protocol):
    """Finds journal partitions; implemented by the node's storage."""

    @property
    def lsn(self) -> Lsn: ...

    def partition(self, topic: str, index: int) -> JournalPartition | None: ...


class Completion:
    """One marker and the partitions that do not have it yet.

    Each load of a journal partition makes its own; results are accepted only from the one that a transaction holds
    now, never by transactional id (KAFKA-16352).
    """

    __slots__ = ("attempts", "due", "in_flight", "marker", "owner", "since", "waiting")

    def __init__(
        self, marker: Marker, partitions: Iterable[TopicPartition], owner: TransactionalIdEntry | None = None
    ) -> None:
        self.marker = marker
        #: Whose transaction it ends; None for one that no transactional id knows of.
        self.owner = owner
        self.waiting: dict[TopicPartition, None] = dict.fromkeys(partitions)
        self.attempts = 0
        #: A leader on another node has not answered yet.
        self.in_flight = False
        #: When to try again, and when that was decided; meaningless while in flight.
        self.due = Milliseconds(0)
        self.since = Milliseconds(0)

    def settle(self, results: Results) -> list[tuple[TopicPartition, ErrorCode]]:
        """Take the results of one attempt.  Returns the partitions that refused the marker for good reason.

        A partition without a result counts as not written.
        """
        refused: list[tuple[TopicPartition, ErrorCode]] = []
        for partition, error in results.items():
            if error in SETTLED:
                self.waiting.pop(partition, None)
            elif error in REFUSED:
                refused.append((partition, error))
        return refused

    def postpone(self, now: Milliseconds) -> None:
        """Set the next attempt to a delay from now that doubles with every attempt, up to LONGEST_DELAY."""
        delay = min(FIRST_DELAY << min(self.attempts, 10), LONGEST_DELAY)
        self.attempts += 1
        self.since, self.due = now, Milliseconds(now + delay)

    def is_due(self, now: Milliseconds) -> bool:
        """Whether to try again; a wall clock that jumped back must not delay markers."""
        return not self.in_flight and (now >= self.due or now < self.since)


class TransactionalIdEntry:
    """A transactional id in memory: its state, its shard, and the markers that are to be written."""

    __slots__ = ("alarm", "completion", "lsn", "shard", "transaction")

    def __init__(self, transaction: TransactionMetadata, shard: TransactionCoordinatorShard, lsn: Lsn = NO_LSN) -> None:
        self.transaction = transaction
        self.shard = shard
        #: What an answer about this id depends on.
        self.lsn = lsn
        #: The markers that the transaction waits for.
        self.completion: Completion | None = None
        #: When the alarm for this id rings; None if none is set.
        self.alarm: Milliseconds | None = None


class Alarms:
    """The times at which open transactions time out, found without looking at every transaction at every tick.

    A heap with about one alarm per transactional id, however many transactions it has had.

    A transaction that begins while its id's alarm is set for earlier leaves the alarm alone; when that rings it is set
    again for the transaction that is open by then.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Milliseconds, int, TransactionalIdEntry]] = []
        self._set = 0

    def set(self, entry: TransactionalIdEntry, deadline: Milliseconds | None) -> None:
        """Set the alarm of an id to ring after `deadline`, or earlier.  None: nothing is set."""
        if deadline is None or (entry.alarm is not None and entry.alarm <= deadline):
            return
        entry.alarm = deadline
        self._set += 1
        heappush(self._heap, (deadline, self._set, entry))

    def ring(self, now: Milliseconds) -> Iterator[TransactionalIdEntry]:
        """The entries whose alarm was set for before `now`, each once; it is off until it is set again."""
        heap = self._heap
        while heap and heap[0][0] < now:
            deadline, _, entry = heappop(heap)
            if entry.alarm == deadline:
                entry.alarm = None
                yield entry


class TransactionCoordinatorShard:
    """One journal partition and its ids."""

    __slots__ = ("coordinator_epoch", "entries", "index", "log", "lsn")

    def __init__(self, index: int, log: JournalPartition, journals: Journals) -> None:
        self.index = index
        self.log = log
        #: Markers carry it, so that an older coordinator's are refused.
        self.coordinator_epoch = log.leader_epoch
        self.entries: dict[str, TransactionalIdEntry] = {}
        #: Of the last append, or of what was there before: what an answer depends on that an id is not there.
        self.lsn = journals.lsn

    def append(self, batch: bytes, now: Milliseconds) -> Lsn | ErrorCode:
        """Append a batch to the journal; its lsn, or the error that the client is told if it was refused."""
        outcome = self.log.append(batch, Origin.COORDINATOR, now)
        if isinstance(outcome, Appended):
            self.lsn = outcome.lsn
            return outcome.lsn
        return journal.APPEND_ERRORS.get(outcome.error, outcome.error)


class Loading:
    """Reads a journal partition, a few batches at a time; requests are answered 14 until it is done.

    Nothing is published before the last batch is read.  A newer election starts another one, and this one is dropped.
    Of each key only the last record is decoded: of a long journal that is a small part.
    """

    def __init__(self, index: int, log: JournalPartition, journals: Journals) -> None:
        self.index = index
        self.shard = TransactionCoordinatorShard(index, log, journals)
        self._newest: dict[bytes, UnreadRecord] = {}
        """Key -> its last record, in the order of these records; no tombstones."""
        self._batches: Iterator[list[UnreadRecord]] | None = journal.read(index, log.scan(FIRST_OFFSET))
        self._left: Iterator[UnreadRecord] = iter(())
        """The records still to be decoded when all is read."""

    def step(self, batches: int) -> bool:
        """Read up to so many batches; true when all are read.  Raises JournalUnreadable: then it stays unloaded."""
        for _ in range(batches):
            found = None if self._batches is None else next(self._batches, None)
            if found is not None:
                self._note(found)
                continue
            if self._batches is not None:
                self._batches, self._left = None, taken_from(self._newest)
            record = next(self._left, None)
            if record is None:
                return True
            decoded = journal.decode(self.index, record)
            if decoded is not None and decoded.transaction is not None:
                # What an older election wrote last may not be durable yet.
                entry = TransactionalIdEntry(decoded.transaction, self.shard, self.shard.lsn)
                self.shard.entries[decoded.transactional_id] = entry
        return False

    def _note(self, found: list[UnreadRecord]) -> None:
        for record in found:
            assert record.key is not None, "the journal has refused one without"
            self._newest.pop(record.key, None)
            if not record.is_tombstone:
                self._newest[record.key] = record


class TransactionCoordinatorShards:
    """Every journal partition that this node leads, loaded or being loaded, and all their ids."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._loaded: dict[int, TransactionCoordinatorShard] = {}
        self.loading: dict[int, Loading] = {}
        #: All ids of the loaded partitions.
        self.entries: dict[str, TransactionalIdEntry] = {}

    def __iter__(self) -> Iterator[TransactionCoordinatorShard]:
        return iter(self._loaded.values())

    def lookup(self, index: int) -> TransactionCoordinatorShard | ErrorCode:
        """The loaded shard of a journal partition; or the error for requests about its ids."""
        shard = self._loaded.get(index)
        if shard is not None:
            return shard
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self.loading else ErrorCode.NOT_COORDINATOR

    def begin(self, index: int) -> Loading | None:
        """Start to load a partition that this node leads now.  None if this election is known already (KAFKA-15468)."""
        log = self._journals.partition(TRANSACTION_STATE, index)
        if log is None:
            return None
        known = self._loaded.get(index) or (self.loading[index].shard if index in self.loading else None)
        if known is not None and known.coordinator_epoch >= log.leader_epoch:
            return None
        loading = self.loading[index] = Loading(index, log, self._journals)
        return loading

    def is_current(self, loading: Loading) -> bool:
        """Whether no newer election, and no resignation, came in between."""
        return self.loading.get(loading.index) is loading

    def publish(self, loading: Loading) -> None:
        """Answer for the ids that were read, from now on: they are held in memory."""
        assert self.is_current(loading), "only the newest load of a partition is published"
        del self.loading[loading.index]
        self._loaded[loading.index] = loading.shard
        self.entries.update(loading.shard.entries)

    def resign(self, index: int, epoch: LeaderEpoch | None) -> list[TransactionalIdEntry]:
        """Forget a partition, unless it was won again at a later epoch (KAFKA-18137).  Returns its ids."""
        loading = self.loading.get(index)
        if loading is not None and (epoch is None or loading.shard.coordinator_epoch <= epoch):
            del self.loading[index]
        shard = self._loaded.get(index)
        if shard is None or (epoch is not None and shard.coordinator_epoch > epoch):
            return []
        del self._loaded[index]
        for transactional_id in shard.entries:
            del self.entries[transactional_id]
        return list(shard.entries.values())

    def add(self, transactional_id: str, entry: TransactionalIdEntry) -> None:
        """Remember an id whose first record is written."""
        self.entries[transactional_id] = entry.shard.entries[transactional_id] = entry

    def forget(self, transactional_id: str) -> None:
        """Forget an id whose tombstone is written."""
        del self.entries.pop(transactional_id).shard.entries[transactional_id]

    def expire(self, is_due: Callable[[TransactionMetadata], bool], now: Milliseconds) -> Work[int]:
        """Write tombstones for the ids that are due, a batch in each step, and forget them; how many these were."""

        def due(shard: TransactionCoordinatorShard, keys: Iterable[str]) -> list[str]:
            entries = shard.entries if self._loaded.get(shard.index) is shard else {}
            return [key for key in keys if key in entries and is_due(entries[key].transaction)]

        count = 0
        for shard in list(self._loaded.values()):
            for together in journal.in_batches(due(shard, list(shard.entries))):
                yield
                keys = due(shard, together)  # some may have been used meanwhile, or the partition resigned
                if keys and isinstance(shard.append(journal.tombstones(keys, now), now), ErrorCode):
                    break
                for key in keys:
                    self.forget(key)
                count += len(keys)
        return count
