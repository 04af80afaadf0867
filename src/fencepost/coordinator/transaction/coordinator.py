"""The transaction coordinator: who may write under a transactional id, and how its transactions end.

A thin shell around pure decisions.  For every request it looks the id up, asks the decision, appends what it says to
the journal, holds it in memory, and where a transaction was decided writes its markers and the COMPLETE record: all in
one step of the event loop, so that nothing is ever between a decision and its record.  Memory is therefore ahead of
the disk, and every answer names the lsn that must be durable before it may leave the process, refusals included.

A leader that is not ready for its marker (it is on another node, or restarting) leaves the transaction in PREPARE_x
with COMPLETE_x pending, and the marker is tried again by `tick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fencepost.coordinator import loading
from fencepost.coordinator.transaction import journal, listing, reconcile
from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.answers import Added, Ended, Initialized
from fencepost.coordinator.transaction.decision import NEEDS_PRODUCER_ID, Refusal, Transition
from fencepost.coordinator.transaction.delivery import Delivery
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.expiry import is_expired
from fencepost.coordinator.transaction.initialize import Initialize, check, initialize
from fencepost.coordinator.transaction.markers import Marker, Markers, marker_of
from fencepost.coordinator.transaction.metrics import TransactionMetrics
from fencepost.coordinator.transaction.prepare import complete
from fencepost.coordinator.transaction.producer_ids import ProducerIds
from fencepost.coordinator.transaction.settings import TransactionSettings
from fencepost.coordinator.transaction.shards import (
    Alarms,
    Completion,
    Journals,
    Loading,
    TransactionalIdEntry,
    TransactionCoordinatorShards,
)
from fencepost.coordinator.transaction.state import COMPLETION, TRANSITIONS, State
from fencepost.coordinator.transaction.timeout import TIMEOUT_RETRY_MS, is_due, time_out
from fencepost.coordinator.transaction.transaction import NO_TIMEOUT, TransactionMetadata
from fencepost.coordinator.transaction.verify import verify
from fencepost.node_log import get_logger, shown
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.steps import Pace, Steps, finish
from fencepost.protocol.types import (
    NO_PRODUCER,
    Epoch,
    LeaderEpoch,
    Milliseconds,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)
from fencepost.runtime import Clock, Work, at_once

logger = get_logger(__name__)


class TransactionCoordinator:
    """The transactional ids of the journal partitions that this node leads."""

    def __init__(
        self,
        storage: Journals,
        producer_ids: ProducerIds,
        markers: Markers,
        clock: Clock,
        settings: TransactionSettings | None = None,
        jumped: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self._producer_ids, self._clock, self._jumped = producer_ids, clock, jumped
        self.settings, self.metrics = settings or TransactionSettings(), TransactionMetrics()
        self._shards = TransactionCoordinatorShards(storage)
        self._entries = self._shards.entries
        self._alarms, self._delivery = Alarms(), Delivery(markers, clock, self._marked)
        self._next_expiry = Milliseconds(clock.now() + self.settings.expiry_interval_ms)

    # Requests

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: Milliseconds,
        producer_id: ProducerId = NO_PRODUCER.producer_id,
        producer_epoch: Epoch = NO_PRODUCER.producer_epoch,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
    ) -> Initialized:
        """Claim a transactional id; without one, get a producer id for an idempotent producer."""
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        error = check(producer, transactional_id, timeout_ms, enable_2pc, keep_prepared, self.settings)
        if error:
            return Initialized(error)
        if transactional_id is None:
            given = self._producer_ids.next()
            if given is None:
                return Initialized(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return Initialized(ErrorCode.NONE, given, Epoch(0))
        entry = self._entries.get(transactional_id) or self._new(transactional_id)
        if not isinstance(entry, TransactionalIdEntry):
            return Initialized(entry)
        request = Initialize(producer, NO_TIMEOUT if enable_2pc else Milliseconds(timeout_ms), keep_prepared)
        now, level = self._clock.now(), self.settings.transaction_version()
        decision = initialize(entry.transaction, request, now, level)
        if decision is NEEDS_PRODUCER_ID:
            fresh = self._producer_ids.next()
            if fresh is None:
                return Initialized(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, lsn=entry.lsn)
            decision = initialize(entry.transaction, request, now, level, fresh)
            assert decision is not NEEDS_PRODUCER_ID, "a fresh producer id is enough"
        if isinstance(decision, Refusal):
            return Initialized(decision.error, lsn=entry.lsn)
        if isinstance(decision, Transition):
            error = self._write(entry, decision.to, level, now)
            if error:
                return Initialized(error, lsn=entry.lsn)
            if decision.to.is_prepared:
                self.metrics.fenced += 1
                self._finish(entry, now)
            else:
                if transactional_id not in self._entries:
                    self._shards.add(transactional_id, entry)
                self._alarms.set(entry, decision.to.deadline)
                self.metrics.initialized += 1
            if decision.error:
                return Initialized(decision.error, lsn=entry.lsn)
        return Initialized(ErrorCode.NONE, decision.producer_id, decision.producer_epoch, entry.lsn, *decision.ongoing)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        partitions: Sequence[TopicPartition],
        client_transaction_version: int,
    ) -> Added:
        """Make partitions part of the transaction, beginning it if none is open.

        `client_transaction_version`: 2 for an implicit add (AddPartitionsToTxn v4 and later), else 0.
        """
        entry = self._entries.get(transactional_id)
        if entry is None:
            return self._absent(transactional_id)
        request = AddPartitions(producer_id, producer_epoch, partitions, client_transaction_version)
        now, level = self._clock.now(), self.settings.transaction_version()
        decision = add_partitions(entry.transaction, request, now, level)
        if isinstance(decision, Refusal):
            return Added(decision.error, entry.lsn, decision.timed_out)
        if isinstance(decision, Transition):
            error = self._write(entry, decision.to, level, now)
            if error:
                return Added(error, entry.lsn)
            self._alarms.set(entry, decision.to.deadline)
        return Added(ErrorCode.NONE, entry.lsn)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """The error for each partition; NONE only where it is part of the open transaction of this pair."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return dict.fromkeys(partitions, self._absent(transactional_id).error)
        return verify(entry.transaction, producer_id, producer_epoch, partitions)

    def end(
        self, transactional_id: str, producer_id: ProducerId, producer_epoch: Epoch, commit: bool, version: int
    ) -> Ended:
        """Commit or abort the open transaction.  `version`: the API version of EndTxn."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            error, lsn, _ = self._absent(transactional_id)
            return Ended(error, lsn=lsn)
        request = End(producer_id, producer_epoch, commit, version)
        now, level = self._clock.now(), self.settings.transaction_version()
        decision = end(entry.transaction, request, now, level)
        if decision is NEEDS_PRODUCER_ID:
            fresh = self._producer_ids.next()
            if fresh is None:
                return Ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, lsn=entry.lsn)
            decision = end(entry.transaction, request, now, level, fresh)
            assert decision is not NEEDS_PRODUCER_ID, "a fresh producer id is enough"
        if isinstance(decision, Refusal):
            return Ended(decision.error, lsn=entry.lsn, timed_out=decision.timed_out)
        if isinstance(decision, Transition):
            error = self._write(entry, decision.to, level, now)
            if error:
                return Ended(error, lsn=entry.lsn)
            self._finish(entry, now)
            return Ended(ErrorCode.NONE, decision.producer_id, decision.producer_epoch, entry.lsn)
        return Ended(ErrorCode.NONE, decision.producer_id, decision.producer_epoch, entry.lsn, decision.timed_out)

    def timed_out(self, transactional_id: str, producer_id: ProducerId, producer_epoch: Epoch) -> bool:
        """Whether this pair's transaction was timed out by the server, and nobody else took over since (KIP-588)."""
        entry = self._entries.get(transactional_id)
        return entry is not None and entry.transaction.was_timed_out(producer_id, producer_epoch)

    def is_loading(self, transactional_id: str) -> bool:
        """Whether the journal partition of this id is being read, so that nothing can be said about it yet."""
        return self._shards.lookup(self.partition_for(transactional_id)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def describe(self, transactional_id: str) -> listing.Description:
        """One transactional id as DescribeTransactions shows it."""
        entry = self._entries.get(transactional_id)
        if entry is not None:
            waiting = entry.completion.waiting if entry.completion is not None else None
            return listing.describe(entry.transaction, waiting, entry.lsn)
        return listing.absent(transactional_id, *self._absent(transactional_id)[:2])

    def list(self, filters: listing.Filters | None = None) -> listing.Listing:
        """What `list_in_steps` gives, at once."""
        return finish(self.list_in_steps(filters or listing.Filters(), Pace()))

    def list_in_steps(self, filters: listing.Filters, pace: Pace) -> Steps[listing.Listing]:
        """The transactional ids of this node that pass the filters; 14 while any journal partition is being loaded."""
        if self._shards.loading:
            return listing.Listing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = ((each.transaction, each.lsn) for each in [*self._entries.values()])
        return (yield from listing.select(found, filters, self._clock.now(), pace))

    def count_by_state(self) -> Counter[State]:
        """The number of transactional ids of this node in each state."""
        return Counter(entry.transaction.state for entry in self._entries.values())

    def partition_for(self, transactional_id: str) -> int:
        """The journal partition, and so the coordinator, of a transactional id."""
        return partition_for_id(transactional_id, self.settings.partitions)

    # Journal partitions

    def load(self, partition_index: int) -> None:
        """Take over a journal partition, in one step.  Raises JournalUnreadable, and then answers 14 for it."""
        if (work := self.start_loading(partition_index)) is not None:
            at_once(work)

    def start_loading(self, partition_index: int) -> Work[None] | None:
        """Take over a journal partition: its ids are answered 14 until what is returned is done.

        None if there is nothing to do.  After JournalUnreadable they go on being answered 14.
        """
        if (begun := self._shards.begin(partition_index)) is None:
            return None
        # What an older election knew may be out of date.
        self.resign(partition_index, LeaderEpoch(begun.shard.coordinator_epoch - 1))
        return self._load(begun)

    def _load(self, begun: Loading) -> Work[None]:
        """Read a journal partition, then answer for its ids.  Raises JournalUnreadable."""
        while self._shards.is_current(begun) and not begun.step(loading.LOAD_STEP):
            yield
        if self._shards.is_current(begun):
            self._publish(begun)

    def resign(self, partition_index: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """Give a journal partition up, unless it was won again after `leader_epoch`."""
        for entry in self._shards.resign(partition_index, leader_epoch):
            if entry.completion is not None:
                self._delivery.drop(entry.completion)

    def reconcile(
        self, open_transactions: Mapping[TopicPartition, Sequence[ProducerIdAndEpoch]]
    ) -> Mapping[ProducerIdAndEpoch, Sequence[TopicPartition]]:
        """Abort what is open in a partition of this node but that no transactional id knows of; returns what that was.

        Only for a node that leads the whole journal, when all of it is loaded; otherwise nothing is touched.
        """
        shards = list(self._shards)
        if self._shards.loading or len(shards) < self.settings.partitions:
            return {}
        found = reconcile.unknown(open_transactions, (entry.transaction for entry in self._entries.values()))
        epoch = max(shard.coordinator_epoch for shard in shards)
        for producer, partitions in found.items():
            logger.warning(
                "aborting a transaction that no transactional id knows of producer_id=%d epoch=%d partitions=%s",
                *producer,
                ",".join(map(str, partitions)),
            )
            self._delivery.start(Completion(Marker(*producer, epoch, False, 0), partitions), self._clock.now())
        return found

    # What time brings

    def tick(self, now: Milliseconds) -> Work[None]:
        """Try markers again, abort transactions whose time is up, forget ids that nobody uses."""
        self._delivery.retry(now)
        for entry in list(self._alarms.ring(now)):
            try:
                self._time_out(entry, now)
            except Exception:
                # The others' time is up all the same, and what rang once must ring again.
                self._alarms.set(entry, entry.transaction.deadline)
                logger.exception(
                    "a transaction could not be timed out and is tried again transactional_id=%s",
                    shown(entry.transaction.transactional_id),
                )
            yield
        if now >= self._next_expiry or now < self._next_expiry - self.settings.expiry_interval_ms:
            self._next_expiry = Milliseconds(now + self.settings.expiry_interval_ms)
            yield from self._expire(now)

    def retry_markers(self) -> None:
        """Try every missing marker now: a leader that was away is back."""
        self._delivery.retry(self._clock.now(), at_once=True)

    def _time_out(self, entry: TransactionalIdEntry, now: Milliseconds) -> None:
        transaction = entry.transaction
        if self._entries.get(transaction.transactional_id) is not entry:
            return
        jumped = self._jumped(transaction.start_timestamp)
        if not is_due(transaction, Milliseconds(now - jumped)):
            self._alarms.set(entry, transaction.deadline and Milliseconds(transaction.deadline + jumped))
            return
        self._abort_open(entry, now, "its time is up")

    def abort_abandoned(self, transactional_id: str, producer_id: ProducerId) -> None:
        """Abort what this producer left open when its connection closed; never what is prepared (KIP-939)."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.transaction.producer_id != producer_id:
            return
        transaction = entry.transaction
        if transaction.deadline is not None and not transaction.keeps_prepared:
            self._abort_open(entry, self._clock.now(), "its producer's connection closed")

    def _abort_open(self, entry: TransactionalIdEntry, now: Milliseconds, why: str) -> None:
        transaction = entry.transaction
        level = self.settings.transaction_version()
        decision = time_out(transaction, level, now)
        if decision is NEEDS_PRODUCER_ID:
            fresh = self._producer_ids.next()
            decision = NEEDS_PRODUCER_ID if fresh is None else time_out(transaction, level, now, fresh)
        if decision is NEEDS_PRODUCER_ID or self._write(entry, decision.to, level, now):
            self._alarms.set(entry, Milliseconds(now + TIMEOUT_RETRY_MS))
            return
        self.metrics.timed_out += 1
        logger.info(
            "aborting a transaction, %s transactional_id=%s producer_id=%d epoch=%d timeout_ms=%d",
            why,
            shown(transaction.transactional_id),
            *transaction.current,
            transaction.timeout_ms,
        )
        self._finish(entry, now)

    def _expire(self, now: Milliseconds) -> Work[None]:
        def is_due(transaction: TransactionMetadata) -> bool:
            kept_ms = self.settings.id_expiration_ms + self._jumped(transaction.last_update_timestamp)
            return is_expired(transaction, Milliseconds(kept_ms), now)

        self.metrics.expired += yield from self._shards.expire(is_due, now)

    # Steps

    def _absent(self, transactional_id: str) -> Added:
        """The error, and the lsn, for an id that is not held here."""
        if not transactional_id:
            return Added(ErrorCode.INVALID_REQUEST)
        shard = self._shards.lookup(self.partition_for(transactional_id))
        return Added(shard) if isinstance(shard, ErrorCode) else Added(ErrorCode.INVALID_PRODUCER_ID_MAPPING, shard.lsn)

    def _new(self, transactional_id: str) -> TransactionalIdEntry | ErrorCode:
        """The entry of an id used for the first time, remembered when its first record is written; or the error."""
        shard = self._shards.lookup(self.partition_for(transactional_id))
        if isinstance(shard, ErrorCode):
            return shard
        if (producer_id := self._producer_ids.next()) is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return TransactionalIdEntry(TransactionMetadata(transactional_id, producer_id), shard, shard.lsn)

    def _write(self, entry: TransactionalIdEntry, to: TransactionMetadata, level: int, now: Milliseconds) -> ErrorCode:
        """Append the next state and hold it; the error if that is refused, with nothing changed."""
        assert (entry.transaction.state, to.state) in TRANSITIONS, "a transaction moves only as its table says"
        outcome = entry.shard.append(journal.encode(to, level), now)
        if isinstance(outcome, ErrorCode):
            logger.warning(
                "the state of a transaction could not be written transactional_id=%s producer_id=%d epoch=%d error=%s",
                *(shown(to.transactional_id), to.producer_id, to.producer_epoch, outcome.name),
            )
            return outcome
        entry.lsn, entry.transaction = outcome, to
        return ErrorCode.NONE

    def _finish(self, entry: TransactionalIdEntry, now: Milliseconds) -> None:
        """Write the markers of a transaction that is decided, and COMPLETE once all are written."""
        prepared = entry.transaction
        if prepared.state is State.PREPARE_COMMIT:
            self.metrics.committed += 1
        else:
            self.metrics.aborted += 1
        completion = Completion(marker_of(prepared, entry.shard.coordinator_epoch), prepared.partitions, entry)
        entry.completion = completion
        if self._delivery.start(completion, now) and not self._marked(completion, now):
            self._delivery.keep(completion, now)

    def _marked(self, completion: Completion, now: Milliseconds) -> bool:
        """Append COMPLETE, for every marker is written.  False if that must be tried again."""
        entry = completion.owner
        if entry is None:
            return True
        assert entry.completion is completion, "a transaction is completed by its own markers only"
        if self._write(entry, complete(entry.transaction, now), self.settings.transaction_version(), now):
            return False
        entry.completion = None
        return True

    def _publish(self, loaded: Loading) -> None:
        self._shards.publish(loaded)
        now = self._clock.now()
        for entry in list(loaded.shard.entries.values()):
            self.metrics.loaded += 1
            if entry.transaction.is_prepared:
                # The decision stands; whichever markers were written are written again.
                entry.transaction = entry.transaction._replace(pending=COMPLETION[entry.transaction.state])
                self._finish(entry, now)
            else:
                self._alarms.set(entry, entry.transaction.deadline)
