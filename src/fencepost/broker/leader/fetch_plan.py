"""The plan of one Fetch: partitions looked up once, waited for, and read as often as it takes (facts §8).

Only what is read is counted, and waits: an unknown topic neither ends the wait of the others nor is told before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader.fetch_sessions import Asked, Fetching, Result
from fencepost.broker.metadata.topic import Topic
from fencepost.broker.network.limits import LEAST_ANSWER, MOST_READ
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.partition import Partition, Refused
from fencepost.log.segment_indexes import IndexesBeingMade, with_indexes
from fencepost.protocol.batch import HEADER_SIZE
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition, PartitionData
from fencepost.protocol.steps import ITEM, Pace, Steps
from fencepost.protocol.types import Isolation, LeaderEpoch, Offset

_WATCH: Final = 2 * ITEM
"""Units that it costs to wait for a partition: to find it, to note where its reader stands, and to look at it."""
_ANYWHERE: Final = (0, 0)
"""Where a reader stands of whom that does not matter: one byte ends the wait."""
_FIND: Final = 20
"""Units that it costs to find an offset in a file."""


class Found(NamedTuple):
    """The results of reading each partition once; `size`: how many bytes of records they have."""

    results: list[Result]
    size: int
    astray: bool
    """Whether one of them is an error, or the news that the reader has read something else: nobody waits with that."""


class FetchPlan:
    """The partitions that a Fetch asks for, looked up once and read as often as it takes."""

    def __init__(self, request: FetchRequest, fetching: Fetching, context: RequestContext, node: Node) -> None:
        self.isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        self._max_bytes = min(request.max_bytes, node.largest_answer, MOST_READ)
        self.min_bytes = min(request.min_bytes, self._max_bytes)
        self.fetching = fetching
        self._storage = node.storage
        self._answers = node.answer_memory
        self.reads: list[tuple[Asked, Partition | ErrorCode]] = []
        """The partitions to read, each with its log, or the error why it cannot be read now."""
        self._of_id: dict[str | int, Topic] = {}
        self._allowed: dict[str, bool] = {}
        self._context = context
        self._node = node
        self.refused: list[Result] = []
        """The results of partitions that cannot be read at all."""
        self.nonsense = False
        """Apache Kafka fails where two partitions are asked for of a topic that is not named at all."""
        self._shown = 0
        """The version of what there is to be found, when the partitions were looked up."""
        self._starts: list[tuple[int, int] | None] = []
        """Where the reader of each partition stood when the wait began."""
        self._counted: list[int] = []
        """The bytes of each partition that count towards `min_bytes`, and in `_total` those of all."""
        self._total = 0
        self._news: list[int] = []
        """The numbers, in `reads`, of partitions of which there is news that nobody has looked at."""
        self._again: set[int] = set()
        """The numbers of those that must be read after a wait: they gave a result before it, or there was news."""
        self._is_watched = False
        """Whether there would have been news of any other one."""

    def look_up(self, pace: Pace) -> Steps[None]:
        """Find the partitions; once, before anything is read."""
        self._shown = self._storage.shown_version
        nameless: list[Result] = []
        for asked in self.fetching.partitions:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            error = self._look_up(asked, self._context, self._node)
            if error is not None:
                of = nameless if error is ErrorCode.UNKNOWN_TOPIC_ID else self.refused
                of.append((asked, partition_error(asked.wanted, error, [])))
        if nameless:
            self.refused = nameless + self.refused
            self.nonsense = sum([not asked.topic_id.int for asked, _ in nameless]) > 1

    def _look_up(self, asked: Asked, context: RequestContext, node: Node) -> ErrorCode | None:
        """Take a partition into what is read; the error where it cannot be read at all, else None."""
        topic = asked.topic
        if topic is None:
            of = self._of_id.get(asked.key[0]) or node.topics.by_id.get(asked.topic_id)
            if of is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            self._of_id[asked.key[0]] = of
            topic, asked.topic_id = of.name, of.topic_id
            asked.topic = topic
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._allowed[topic] = context.may(Operation.READ, Resource.TOPIC, topic)
        if not allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        place = self._place(asked, topic)
        if place is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return place
        self.reads.append((asked, place))
        return None

    def _place(self, asked: Asked, topic: str) -> Partition | ErrorCode:
        """The partition to read now, or the error: it may have been deleted, and made again, since a wait began."""
        partition, wanted = self._storage.partition(topic, asked.wanted.partition), asked.wanted
        if partition is None:
            return self._storage.refusal(topic, wanted.partition)
        if partition.topic_id is not asked.topic_id and self.fetching.by_id and partition.topic_id != asked.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return partition if wanted.current_leader_epoch < 0 else _check_epoch(wanted.current_leader_epoch, partition)

    def _place_now(self, asked: Asked, place: Partition | ErrorCode) -> Partition | ErrorCode:
        """The partition to read, or the error: `place`, looked up again if any was made or deleted since."""
        return place if self._storage.shown_version == self._shown else self._place(asked, asked.topic or "")

    # Waiting

    def watch(self, readable: Callable[[], None], cancels: dict[int, Callable[[], object]], pace: Pace) -> Steps[bool]:
        """Have `readable` called when there is news of a partition; whether the wait is over before it begins.

        Each is found again first: it may have been deleted, or made anew, since it was read.  Where its reader stands
        is noted: a segment that begins meanwhile ends the wait.  `cancels` gets what takes the calls back.
        """
        isolation, least = self.isolation, self.min_bytes
        for number, (asked, read) in enumerate(self.reads):
            if pace.is_used_up(_WATCH):
                yield from pace.rest()
            place, wanted = self._watch(number, readable, cancels), asked.wanted
            is_known = place is read and isinstance(place, Partition) and asked.has_all(place, place.bound(isolation))
            if is_known and least <= 1 <= wanted.partition_max_bytes:
                self._starts.append(_ANYWHERE)
                self._counted.append(0)
                continue
            if not is_known:
                self._again.add(number)
            at = place.reader.position_of(Offset(wanted.fetch_offset)) if isinstance(place, Partition) else None
            self._starts.append(at)
            self._counted.append(0)
            if self._ends_wait(number):
                return True
        self._is_watched = True
        return False

    def _watch(
        self, number: int, readable: Callable[[], None], cancels: dict[int, Callable[[], object]]
    ) -> Partition | ErrorCode:
        asked, looked_up = self.reads[number]
        place = self._place_now(asked, looked_up)
        if place is not looked_up:
            self.reads[number] = asked, place
        if isinstance(place, Partition):
            # It wakes before it is looked at: what comes between two steps of that would else be missed.
            cancels[number] = place.when_readable(partial(self._note, number, readable))
        return place

    def _note(self, number: int, readable: Callable[[], None]) -> None:
        self._news.append(number)
        if len(self._news) == 1:  # else whoever was called has not looked yet
            readable()

    def enough(self, readable: Callable[[], None], cancels: dict[int, Callable[[], object]], pace: Pace) -> Steps[bool]:
        """Look at the partitions of which there is news, and `watch` them further; whether the wait is over."""
        while self._news:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            number = self._news.pop()
            self._again.add(number)
            self._watch(number, readable, cancels)
            if self._ends_wait(number):
                return True
        return False

    def _ends_wait(self, number: int) -> bool:
        """Whether a wait is over: `min_bytes` are there to read, or an error or other news is to be answered.

        At what lies between the reader and the end of what it may see, as far as that is in one segment; at once where
        the end is in a later segment or before the reader, or something is wrong.  Only the partition with this
        number is looked at: of the others is known what they had when there was news of them.
        """
        asked, place = self.reads[number]
        start, wanted = self._starts[number], asked.wanted
        if start is None or isinstance(place, ErrorCode) or _diverging(wanted, place) is not None:
            return True
        bound = place.bound(self.isolation)
        if wanted.fetch_offset > bound:
            return True
        if wanted.fetch_offset < bound:
            self._total -= self._counted[number]
            if self.min_bytes - self._total <= min(wanted.partition_max_bytes, HEADER_SIZE):
                return True  # whatever stands there is not smaller
            there = place.reader.position_of(bound)
            if there is None or there[0] != start[0]:
                return True
            self._counted[number] = min(there[1] - start[1], wanted.partition_max_bytes)
            self._total += self._counted[number]
        return self._total >= self.min_bytes

    # Reading

    def read(self, pace: Pace) -> Steps[Found]:
        """Read every partition; after a wait only those of which the answer can be another one, or is to be given."""
        numbers: Sequence[int] = range(len(self.reads))
        if self._is_watched:
            numbers = sorted(self._again.union(self._news))
        if self.fetching.session is not None:
            numbers = yield from self._with_news(numbers, pace)
        if (yield from self._is_much(numbers, pace)):
            yield from pace.rest()  # many who ask for as much at once are served one after the other
        self._again.update(numbers)
        # Less than was asked for, where other clients do not take what they were given.
        room = self._answers.left(LEAST_ANSWER)
        budget, size, astray, results = min(self._max_bytes, room), 0, False, []
        for number in numbers:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            asked, looked_up = self.reads[number]
            place = self._place_now(asked, looked_up)
            try:
                answer, cost = self._read_one(asked.wanted, place, budget, first=size == 0)
            except IndexesBeingMade:
                answer, cost = yield from self._read_with_indexes(asked, budget, size == 0, pace)
            if answer.records:
                pace.left -= _FIND
            budget, size = max(budget - cost, 0), size + cost
            astray = astray or answer.error_code != ErrorCode.NONE or answer.diverging_epoch is not None
            results.append((asked, answer))
        return Found(results, size, astray)

    def _with_news(self, numbers: Sequence[int], pace: Pace) -> Steps[Sequence[int]]:
        """Those of the partitions with these numbers that a response of the session has to name."""
        found, isolation = [], self.isolation
        for number in numbers:
            if pace.is_used_up(1):
                yield from pace.rest()
            asked, looked_up = self.reads[number]
            place = self._place_now(asked, looked_up)
            if not (isinstance(place, Partition) and asked.has_all(place, place.bound(isolation))):
                found.append(number)
        return found

    def _is_much(self, numbers: Sequence[int], pace: Pace) -> Steps[bool]:
        """Whether the records asked for are more than LEAST_ANSWER bytes, so that reading them is a step of its own."""
        left = LEAST_ANSWER
        reads = [self.reads[number] for number in numbers]
        if self._max_bytes <= left or sum([asked.wanted.partition_max_bytes for asked, _ in reads]) <= left:
            return False
        for asked, place in reads:
            if pace.is_used_up(1):
                yield from pace.rest()
            if isinstance(place, Partition) and asked.wanted.fetch_offset < place.bound(self.isolation):
                pace.left -= _FIND
                left -= min(asked.wanted.partition_max_bytes, place.reader.size_from(Offset(asked.wanted.fetch_offset)))
                if left < 0:
                    return True
        return False

    def _read_with_indexes(
        self, asked: Asked, budget: int, first: bool, pace: Pace
    ) -> Steps[tuple[PartitionData, int]]:
        """As `_read_one`, tried again after each step in which an index is made that reading needs."""

        def read() -> tuple[PartitionData, int]:
            return self._read_one(asked.wanted, self._place(asked, asked.topic or ""), budget, first=first)

        return (yield from with_indexes(read, pace))

    def _read_one(
        self, wanted: FetchPartition, place: Partition | ErrorCode, budget: int, *, first: bool
    ) -> tuple[PartitionData, int]:
        """The answer for one partition, and how many bytes of `budget` it takes."""
        if isinstance(place, ErrorCode):
            return partition_error(wanted, place), 0
        diverging = _diverging(wanted, place)
        if diverging is not None and diverging.end_offset < 0:
            return partition_error(wanted, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        if diverging is not None and wanted.fetch_offset >= place.log_start_offset:
            return _parted(wanted, place, diverging), 0
        limit = min(wanted.partition_max_bytes, budget)
        # The first batch of an answer is given however large it is, or a reader could never go on.
        fetched = place.read(Offset(wanted.fetch_offset), max(limit, 0), self.isolation, at_least_one=first)
        if isinstance(fetched, Refused):
            return partition_error(wanted, fetched.error), 0
        if limit < 0 and wanted.fetch_offset < place.bound(self.isolation):
            return partition_error(wanted, ErrorCode.UNKNOWN_SERVER_ERROR), 0
        aborted = None
        if fetched.aborted is not None:
            aborted = [AbortedTransaction(producer_id=pid, first_offset=offset) for pid, offset in fetched.aborted]
        answer = PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=fetched.high_watermark,
            last_stable_offset=fetched.last_stable_offset,
            log_start_offset=fetched.log_start_offset,
            aborted_transactions=aborted,
            records=fetched.records,
        )
        return answer, fetched.cost


def _check_epoch(known: int, partition: Partition) -> Partition | ErrorCode:
    if known < 0 or known == partition.leader_epoch:
        return partition
    return ErrorCode.FENCED_LEADER_EPOCH if known < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def _diverging(wanted: FetchPartition, partition: Partition) -> EpochEndOffset | None:
    """The end here of the reader's last leader epoch, if it has read something else; -1 for an epoch yet to come."""
    last = wanted.last_fetched_epoch
    if last < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(LeaderEpoch(last))
    if end_offset >= 0 and epoch >= last and end_offset >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _parted(wanted: FetchPartition, partition: Partition, diverging: EpochEndOffset) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        diverging_epoch=diverging,
        records=b"",
    )


def partition_error(
    wanted: FetchPartition, error: ErrorCode, aborted: list[AbortedTransaction] | None = None
) -> PartitionData:
    """A partition that is answered with an error, and nothing else."""
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        aborted_transactions=aborted,
        records=b"",  # never null: librdkafka does not survive it (KAFKA-18646)
    )
