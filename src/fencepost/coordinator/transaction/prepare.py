"""The two records that end a transaction: PREPARE_x, the decision, and COMPLETE_x, after the markers.

How the epoch moves (facts §1.5; E is the epoch before):

=====================  ======================  ===================================================
record                 transaction.version <2  transaction.version 2
=====================  ======================  ===================================================
PREPARE, by EndTxn     E                       E+1
PREPARE, E >= 32766    E                       32767, and a fresh producer id as the next one
PREPARE, by a fence    E+1 (at most 32767)     E+1, or as above: one bump in all (KAFKA-19367)
COMPLETE               unchanged               unchanged, or (next producer id, 0)
=====================  ======================  ===================================================

A fence at 32766 or beyond takes a fresh producer id as well, and an id that is already at 32767 recovers by any abort
(KAFKA-20090).

A kept prepared transaction (KIP-939) has two pairs: the one its data was written with, which the markers need, and the
one of the producer that may end it.  The second goes on: it is bumped past every epoch that was ever handed out, so
that a delayed EndTxn cannot end the next transaction.
"""

from __future__ import annotations

from typing import Literal

from fencepost.coordinator.transaction.decision import NEEDS_PRODUCER_ID, NeedsProducerId
from fencepost.coordinator.transaction.state import COMPLETION, State
from fencepost.coordinator.transaction.transaction import (
    NO_PARTITIONS,
    TransactionMetadata,
    is_exhausted,
)
from fencepost.protocol.types import (
    LAST_CLIENT_EPOCH,
    MAX_PRODUCER_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    Epoch,
    Milliseconds,
    ProducerId,
    ProducerIdAndEpoch,
)


def prepare(
    transaction: TransactionMetadata,
    commit: bool,
    transaction_version: int,
    now: Milliseconds,
    fresh: ProducerId | None,
    *,
    fencing: bool = False,
) -> TransactionMetadata | Literal[NeedsProducerId.NEEDED]:
    """Decide the outcome.  `transaction_version`: of the request, or the cluster's level where the server decides.

    `fencing` bumps the epoch below transaction.version 2 as well.  Preparing what never began (the empty abort of
    KIP-890) starts the transaction now.
    """
    producer_epoch = transaction.producer_epoch
    next_producer_id, next_producer_epoch = NO_PRODUCER_ID, NO_EPOCH
    current = transaction.current
    if transaction.next_producer_epoch >= 0:
        if is_exhausted(current.producer_epoch):
            if fresh is None:
                return NEEDS_PRODUCER_ID
            next_producer_id, next_producer_epoch = fresh, Epoch(0)
        else:
            next_producer_id, next_producer_epoch = current.producer_id, Epoch(current.producer_epoch + 1)
        producer_epoch = _bumped(producer_epoch)
    elif transaction_version >= 2:
        if is_exhausted(producer_epoch):
            if fresh is None:
                return NEEDS_PRODUCER_ID
            next_producer_id = fresh
        producer_epoch = _bumped(producer_epoch)
    elif fencing:
        producer_epoch = _bumped(producer_epoch)
    state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    open_already = transaction.state is State.ONGOING
    return transaction._replace(
        producer_epoch=producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_producer_epoch,
        state=state,
        pending=COMPLETION[state],
        partitions=transaction.partitions if open_already else NO_PARTITIONS,
        start_timestamp=transaction.start_timestamp if open_already else now,
        last_update_timestamp=now,
        client_transaction_version=transaction_version,
        claimed=NO_PRODUCER,
    )


def complete(transaction: TransactionMetadata, now: Milliseconds) -> TransactionMetadata:
    """The prepared transaction as it is when its markers are written.  The same for every `now` but the timestamp."""
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    instance_epoch, claimed = transaction.instance_epoch, NO_PRODUCER
    previous = transaction.previous_producer_id
    if transaction.next_producer_id >= 0:
        producer_id = transaction.next_producer_id
        producer_epoch = Epoch(max(transaction.next_producer_epoch, 0))
        if producer_id != previous:
            # The client's id rotates: every epoch of the new one is this instance's, and so was the last old one.
            instance_epoch, claimed = Epoch(0), ProducerIdAndEpoch(previous, LAST_CLIENT_EPOCH)
    return transaction._replace(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        state=COMPLETION[transaction.state],
        pending=None,
        partitions=NO_PARTITIONS,
        last_update_timestamp=now,
        instance_epoch=instance_epoch,
        claimed=claimed,
    )


def fence(
    transaction: TransactionMetadata,
    level: int,
    now: Milliseconds,
    fresh: ProducerId | None,
    *,
    new_instance: bool = False,
    timed_out: bool = False,
) -> TransactionMetadata | Literal[NeedsProducerId.NEEDED]:
    """Abort the open transaction and bump the epoch, so that its producer cannot go on with it.

    `level`: the cluster's transaction.version.  `new_instance`: asked for by an InitProducerId without a pair.
    """
    current = transaction.current
    fenced = prepare(transaction, False, level, now, fresh, fencing=True)
    if fenced is NEEDS_PRODUCER_ID:
        return fenced
    if timed_out and current.producer_epoch < MAX_PRODUCER_EPOCH:
        fenced = fenced._replace(timed_out=current)
    if new_instance and level < 2 and fenced.next_producer_id < 0:
        # Under transaction.version 2 the fenced instance may still claim the bumped epoch, as in Apache Kafka, until
        # the new one comes back for its own; below it is fenced for good.
        fenced = fenced._replace(instance_epoch=fenced.producer_epoch, timed_out=NO_PRODUCER)
    return fenced


def _bumped(epoch: Epoch) -> Epoch:
    return epoch if epoch >= MAX_PRODUCER_EPOCH else Epoch(epoch + 1)
