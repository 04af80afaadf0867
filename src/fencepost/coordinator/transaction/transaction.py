"""The state of one transactional id: producer id and epoch, state, partitions and times (Kafka's TransactionMetadata).

Immutable: a decision makes the next one, the journal stores it, and then the coordinator holds it.  So nothing is
ever half changed, and what was decided is what was written.

Two things are kept that Apache Kafka does not keep; both are written to the journal, so that they outlive a failover:

* **The instance epoch** (KIP-360): the first epoch that the running producer instance was given.  Every epoch from
  there on belongs to this instance, so a repeated InitProducerId can be answered instead of fenced.  A new instance
  (InitProducerId without a pair) moves it to the epoch that it is given.  An epoch that moves for the same instance
  leaves it alone: InitProducerId with the current pair, the bump at every end (transaction.version 2), a time-out.
  When the producer id rotates for the same instance it becomes 0, since every epoch of the new id is this instance's.
* **The pair that was timed out** (KIP-588): until another instance takes over, requests with this pair are told of
  the time-out rather than of fencing.

`claimed` is the pair that was answered with *another producer id* (a rotation, or an id that had expired).  Together
with the instance epoch it does what Apache Kafka's lastProducerEpoch does, for any number of retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from fencepost.coordinator.transaction.state import PREPARED, State
from fencepost.protocol.types import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Epoch,
    Milliseconds,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)

#: Time-out of a transaction that takes part in a two-phase commit (KIP-939): none.
NO_TIMEOUT: Final = Milliseconds(2**31 - 1)
#: A set that keeps its order; never changed in place.
NO_PARTITIONS: Final[Mapping[TopicPartition, None]] = MappingProxyType({})


class TransactionMetadata(NamedTuple):
    """The state of one transactional id (facts §1.3).  Times are milliseconds since the Unix epoch."""

    transactional_id: str
    producer_id: ProducerId
    #: -1 for an id that was never initialised.  While PREPARE_* it is the epoch that the markers carry.
    producer_epoch: Epoch = NO_EPOCH
    #: The producer id that was current before the last transition.
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    #: Taken over when the transaction completes; while ONGOING, the pair of whoever may end a kept, prepared one.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_epoch: Epoch = NO_EPOCH
    #: NO_TIMEOUT for a two-phase commit.
    timeout_ms: Milliseconds = Milliseconds(0)
    state: State = State.EMPTY
    #: What is being waited for: COMPLETE_* while markers are written.  Not stored.
    pending: State | None = None
    partitions: Mapping[TopicPartition, None] = NO_PARTITIONS
    start_timestamp: Milliseconds = NO_TIMESTAMP
    last_update_timestamp: Milliseconds = NO_TIMESTAMP
    #: transaction.version of the request that did the last transition; the markers carry it.
    client_transaction_version: int = 0
    instance_epoch: Epoch = NO_EPOCH
    claimed: ProducerIdAndEpoch = NO_PRODUCER
    timed_out: ProducerIdAndEpoch = NO_PRODUCER

    @property
    def current(self) -> ProducerIdAndEpoch:
        """The pair of the client that may act: the next one where a prepared transaction was kept for it."""
        if self.next_producer_epoch >= 0:
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def keeps_prepared(self) -> bool:
        """Whether an open transaction was handed to a new producer, which may only end it (KIP-939)."""
        return self.state is State.ONGOING and self.next_producer_epoch >= 0

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    def was_timed_out(self, producer_id: ProducerId, producer_epoch: Epoch) -> bool:
        """Whether this pair's transaction was ended by its time-out, and no other instance took over since."""
        return producer_id >= 0 and self.timed_out == (producer_id, producer_epoch)

    @property
    def deadline(self) -> Milliseconds | None:
        """The time at which the open transaction times out; None if none is open or it never does (two-phase)."""
        if self.state is not State.ONGOING or self.pending is not None or self.timeout_ms == NO_TIMEOUT:
            return None
        return Milliseconds(self.start_timestamp + self.timeout_ms)


def is_exhausted(epoch: Epoch) -> bool:
    """Whether no further epoch could be given to a client after this one."""
    return epoch >= LAST_CLIENT_EPOCH
