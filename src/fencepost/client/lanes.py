"""The batches of one partition, from the first record on until they are acknowledged, and which goes out next.

A batch gets its sequence number when it is first sent, and keeps it.  Up to five are in flight: a broker remembers as
many of a producer, so that it knows each of them again.  They go out in the order of their numbers, on one connection.
When one has to be sent again the answers to all that was sent after it are waited for first; then it is sent alone, and
what was not taken follows in order.  So no order of answers makes a record overtake another (facts §9.7).

When one fails for good, those with numbers behind it fail too (KIP-360), and what has none yet follows under the next
epoch.  Only where its own records were refused, so that all of them were as well, do these follow like that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

from fencepost.client.batches import Batch
from fencepost.client.settings import check_counts
from fencepost.protocol.batch import NO_SEQUENCE, next_sequence
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition

#: Batches of a partition in flight, at most: those of a producer that a broker knows again (facts §6.1).
MOST_IN_FLIGHT: Final = 5


def checked_in_flight(most: int) -> int:
    """The setting max_in_flight_requests_per_connection, 1 to 5.  Raises TypeError, ValueError."""
    check_counts(max_in_flight_requests_per_connection=most)
    if most > MOST_IN_FLIGHT:
        raise ValueError(
            f"max_in_flight_requests_per_connection={most}: it must be from 1 to {MOST_IN_FLIGHT}, as many as a broker "
            "remembers of a producer"
        )
    return most


class Next(Enum):
    """The answers to which batch of a partition may be sent now."""

    AGAIN = auto()
    """The first of those in flight that is not on the wire."""
    NEW = auto()
    """The first that has no number yet."""
    NOTHING = auto()
    """An answer has to come first."""


def what_goes_next(on_wire: Sequence[bool], most: int, *, same_producer: bool) -> Next:
    """Which batch may be sent, by which of those in flight, in the order of their sequences, are on the wire.

    `most`: that may be on the wire together; `same_producer`: a new batch has the producer id and epoch of these.

        on the wire                         next
        all of them, fewer than `most`      NEW if the producer is the same, else NOTHING
        none in flight                      NEW
        the first ones, fewer than `most`   AGAIN, the one after them
        one behind another that is not      NOTHING: its answer comes first
        `most` of them                      NOTHING
    """
    sent = next((n for n, is_on_wire in enumerate(on_wire) if not is_on_wire), len(on_wire))
    if sent >= most or any(on_wire[sent:]):
        return Next.NOTHING
    if sent < len(on_wire):
        return Next.AGAIN
    return Next.NEW if sent == 0 or same_producer else Next.NOTHING


class Lane:
    """One partition: the batches in flight, those that wait, and the next sequence number."""

    __slots__ = (
        "at",
        "in_flight",
        "is_known",
        "next_sequence",
        "producer_id_and_epoch",
        "queue",
        "retry_at",
        "through",
    )

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.queue: deque[Batch] = deque()
        """The batches without sequence numbers, in their order."""
        self.in_flight: deque[Batch] = deque()
        """The batches with numbers that are not answered for good, in the order of their sequences."""
        self.retry_at: float | None = None
        """Before this time of the loop's clock no batch is sent again; None: at any time."""
        self.through: object = None
        """The connection by which the last batch was sent."""
        self.producer_id_and_epoch = NO_PRODUCER
        self.next_sequence = 0
        self.is_known = False
        """Whether a batch of this id and epoch was acknowledged; before, a leader takes any sequence as its first."""

    @property
    def count(self) -> int:
        """The number of records that wait or are on their way."""
        return sum(batch.builder.count for batches in (self.in_flight, self.queue) for batch in batches)

    @property
    def is_on_wire(self) -> bool:
        return any(batch.on_wire for batch in self.in_flight)

    @property
    def is_idle(self) -> bool:
        return not (self.in_flight or self.queue)

    @property
    def first(self) -> Batch | None:
        """The first of the batches that have not ended, None if there is none."""
        for batch in self.in_flight:
            if not batch.ended:
                return batch
        return self.queue[0] if self.queue else None

    @property
    def oldest(self) -> Batch | None:
        """The batch whose time is up first of those that are not on the wire."""
        for batch in self.in_flight:
            if not batch.on_wire:
                return batch
        return self.queue[0] if self.queue else None

    def next(self, producer_id_and_epoch: ProducerIdAndEpoch, most: int) -> Next:
        """Which batch may be sent under this producer id and epoch; `most` may be on the wire together."""
        if self.in_flight and self.in_flight[-1].is_stranded:
            return Next.NOTHING
        found = what_goes_next(
            [batch.on_wire for batch in self.in_flight],
            1 if self._goes_alone else most,
            same_producer=producer_id_and_epoch == self.producer_id_and_epoch,
        )
        return Next.NOTHING if found is Next.NEW and not self.queue else found

    @property
    def _goes_alone(self) -> bool:
        """Whether the first batch has to be acknowledged before another one is sent behind it.

        A leader that knows nothing of a producer may take any sequence for its first.  And what is sent behind a batch
        that is sent again could push it, if it is written already, out of those that a broker knows again.
        """
        if not self.is_known:
            return True
        first = self.in_flight[0] if self.in_flight else None
        return first is not None and first.tries > first.on_wire

    def may_use(self, connection: object) -> bool:
        """Whether nothing is on its way by another connection: only on one are requests served in their order."""
        return self.through is connection or not self.is_on_wire

    def upcoming(self) -> Batch:
        """The batch that goes out next."""
        batch = self.oldest
        assert batch is not None, "a partition that may send has something to send"
        return batch

    def take(self, producer_id_and_epoch: ProducerIdAndEpoch, connection: object, transactional: bool) -> Batch:
        """Put the next batch on the wire; a new one gets the next sequence number."""
        batch = self.upcoming()
        if self.queue and batch is self.queue[0]:
            self.in_flight.append(self.queue.popleft())
            if self.producer_id_and_epoch != producer_id_and_epoch:
                self.producer_id_and_epoch, self.next_sequence, self.is_known = producer_id_and_epoch, 0, False
            if producer_id_and_epoch == NO_PRODUCER:
                batch.number(producer_id_and_epoch, NO_SEQUENCE, transactional)
            else:
                batch.number(producer_id_and_epoch, self.next_sequence, transactional)
                self.next_sequence = next_sequence(self.next_sequence, batch.builder.count)
        batch.on_wire = True
        batch.tries += 1
        self.retry_at, self.through = None, connection
        return batch

    def go_on(self, producer_id_and_epoch: ProducerIdAndEpoch, sequence: int) -> None:
        """Set the next sequence number: others used those before it with this id and epoch, and all is acknowledged."""
        assert self.is_idle, "what has a number keeps it"
        self.producer_id_and_epoch, self.next_sequence, self.is_known = producer_id_and_epoch, sequence, sequence > 0

    def acknowledged(self, batch: Batch) -> None:
        """Note that the leader has this batch."""
        self.in_flight.remove(batch)
        self.is_known = True

    def give_up(self, batch: Batch, *, is_spent: bool, others_fail: bool) -> bool:
        """Take out a batch that failed for good; whether its sequence numbers cannot be used again.

        `is_spent`: that is known already.  Otherwise they are given back, unless others follow: these are stranded.
        A batch without numbers takes none with it.
        """
        if batch.producer_id_and_epoch == NO_PRODUCER:
            self.in_flight.remove(batch)
            return False
        behind = list(self.in_flight)[self.in_flight.index(batch) + 1 :]
        self.in_flight.remove(batch)
        for each in behind:
            each.is_stranded, each.fails = True, each.fails or others_fail
        if not (is_spent or behind):
            self.next_sequence = batch.base_sequence
        return is_spent or bool(behind)

    def take_stranded(self) -> list[Batch]:
        """Take out the stranded batches, if none of them is on the wire; those that fail.

        The others, none of which is written, are put back to be numbered anew.
        """
        stranded = [batch for batch in self.in_flight if batch.is_stranded]
        if any(batch.on_wire for batch in stranded):
            return []
        for batch in reversed(stranded):
            self.in_flight.pop()
            if not (batch.fails or batch.in_doubt):
                batch.unnumber()
                self.queue.appendleft(batch)
        return [batch for batch in stranded if batch.fails or batch.in_doubt]

    def split(self, batch: Batch, transactional: bool) -> list[Batch]:
        """Put the halves of a batch into its place; they have its numbers between them."""
        place, sequence, halves = self.in_flight.index(batch), batch.base_sequence, batch.halves()
        del self.in_flight[place]
        for n, half in enumerate(halves):
            half.number(batch.producer_id_and_epoch, sequence, transactional)
            half.is_stranded, half.fails = batch.is_stranded, batch.fails
            if sequence != NO_SEQUENCE:
                sequence = next_sequence(sequence, half.builder.count)
            self.in_flight.insert(place + n, half)
        return halves


def portions(lanes: Iterable[Lane], largest: int) -> Iterable[list[Lane]]:
    """Lanes whose next batches go into one request, of about `largest` bytes at most if there are several."""
    portion: list[Lane] = []
    size = 0
    for lane in lanes:
        following = lane.upcoming().builder.size
        if portion and size + following > largest:
            yield portion
            portion, size = [], 0
        portion.append(lane)
        size += following
    if portion:
        yield portion


def topic_data(batches: Iterable[Batch]) -> list[TopicProduceData]:
    """Batches of different partitions, as a Produce request names them."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        data = PartitionProduceData(index=batch.at.partition, records=batch.data)
        topics.setdefault(batch.at.topic, []).append(data)
    return [TopicProduceData(name=name, partition_data=data) for name, data in topics.items()]
