"""Ends batches: by their answer they are written, sent again, split or failed, and the futures of their records set."""

from __future__ import annotations

import asyncio
from typing import Final

from fencepost.client.alarm import Alarm
from fencepost.client.batches import Batch
from fencepost.client.buffer_memory import BufferMemory
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClientError
from fencepost.client.lanes import Lane
from fencepost.client.outcomes import (
    LEADER_MOVED,
    MAYBE_WRITTEN,
    RECORDS_REFUSED,
    Outcome,
    Verdict,
    outcome_of,
    verdict_of,
)
from fencepost.client.rules import Rules
from fencepost.client.statistics import SendCounts
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.types import TopicPartition

#: Seconds before a batch is sent again, by the number of its tries.
_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5)


class BatchEnds:
    """Takes batches out of their lanes when they are answered or given up, and sets the futures of their records.

    `busy`: the lanes with something to send or on its way; `alarm` rings when there may be something to send.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: Rules,
        busy: dict[TopicPartition, Lane],
        memory: BufferMemory,
        counts: SendCounts,
        alarm: Alarm,
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._busy = busy
        self._memory = memory
        self._counts = counts
        self._alarm = alarm
        self._waiting: list[asyncio.Future[None]] = []

    def next(self) -> asyncio.Future[None]:
        """A future that is done when some batch has ended."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def judge(self, lane: Lane, batch: Batch, answer: PartitionProduceResponse) -> None:
        """Mark a batch written, send it again, split it or fail it, as the leader's answer says."""
        error = ErrorCode(answer.error_code)
        is_behind = batch.is_stranded or batch is not lane.in_flight[0]
        verdict = verdict_of(error, is_behind=is_behind, can_be_split=batch.can_be_split)
        if verdict is Verdict.WRITTEN:
            self.written(lane, batch, answer.base_offset, answer.log_append_time_ms)
        elif verdict is Verdict.AGAIN:
            if error in LEADER_MOVED:
                self._cluster.forget_topic(lane.at.topic)
            self.again(lane, batch, answer.error_message or error.name, in_doubt=error in MAYBE_WRITTEN)
        elif verdict is Verdict.SPLIT:
            # A topic may take less than `batch_bytes`.
            halves = lane.split(batch, self._rules.transactional_id is not None)
            self._memory.take(sum(half.builder.size for half in halves) - batch.builder.size)
        else:
            why, maybe_written = answer.error_message or error.name, error in MAYBE_WRITTEN
            refused = BrokerError(answer.error_code, batch.refused(why, maybe_written=maybe_written))
            batch.in_doubt = batch.in_doubt or maybe_written
            self.refused(lane, batch, outcome_of("Produce", error), refused, is_spent=batch.in_doubt)

    def written(self, lane: Lane, batch: Batch, base_offset: int, log_append_time: int) -> None:
        """Note that a batch is written.  Offset and time (milliseconds) are -1 without an acknowledgement (acks=0)."""
        lane.acknowledged(batch)
        self._memory.give_back(batch.builder.size)
        if not batch.ended:
            self._counts.acknowledged(batch.builder.count, len(batch.data or b""))
            batch.succeed(base_offset, log_append_time)
        self.settle(lane)

    def again(self, lane: Lane, batch: Batch, why: str, *, in_doubt: bool) -> None:
        """Send a batch once more, unless its transaction is being aborted.

        `why` this try was not the last; `in_doubt`: this try may have written it, whatever is answered to the next one.
        """
        batch.last, batch.in_doubt = why, batch.in_doubt or in_doubt
        if batch.abandoned:
            lane.in_flight.remove(batch)
            self.drop(batch, batch.abandoned)
            self.settle(lane)
            return
        if lane.retry_at is None or batch is lane.in_flight[0]:
            pause = _PAUSES[min(batch.tries, len(_PAUSES)) - 1]
            lane.retry_at = asyncio.get_running_loop().time() + pause * (
                0.8 + 0.4 * self._cluster.runtime.random.random()
            )
        self._alarm.set(lane.retry_at)

    def refused(self, lane: Lane, batch: Batch, outcome: Outcome, error: ClientError, *, is_spent: bool) -> None:
        """End a batch in flight that failed for good.  `is_spent`: its sequence numbers may be in the log."""
        by_itself = isinstance(error, BrokerError) and error.code in RECORDS_REFUSED and not is_spent
        is_spent = lane.give_up(batch, is_spent=is_spent, others_fail=not by_itself)
        self.failed(lane, batch, outcome, error, is_spent=is_spent)
        self.release_stranded(lane)

    def release_stranded(self, lane: Lane) -> None:
        """Have batches that a failed one has stranded fail or follow, when all of them are answered."""
        for batch in lane.take_stranded():
            self.failed(lane, batch, Outcome.ABORTABLE, batch.behind_a_failed_one(), is_spent=True)

    def failed(self, lane: Lane, batch: Batch, outcome: Outcome, error: ClientError, *, is_spent: bool) -> None:
        """End a batch that failed for good and is already out of its lane."""
        failure = self._rules.failed(batch, outcome, error, is_spent)
        self._memory.give_back(batch.builder.size)
        self.tell(batch, failure, reported=self._rules.transactional_id is not None)
        self.settle(lane)
        self._alarm.set(0.0)

    def drop(self, batch: Batch, error: ClientError) -> None:
        """Fail the records of a batch that was given up with `error`, which the caller reports by itself."""
        self._memory.give_back(batch.builder.size)
        self.tell(batch, error, reported=True)

    def tell(self, batch: Batch, error: ClientError, *, reported: bool) -> None:
        """Fail the records of a batch, unless it has ended; `reported`: the error is raised elsewhere, too."""
        if not batch.ended:
            self._counts.failed += batch.builder.count
            batch.fail(error, reported=reported)

    def settle(self, lane: Lane) -> None:
        """After a batch of a lane has ended: the lane is busy no more if it is empty, and `next` is woken."""
        if lane.is_idle:
            self._busy.pop(lane.at, None)
        self.settled()

    def settled(self) -> None:
        """Wake whoever waits for `next`."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
