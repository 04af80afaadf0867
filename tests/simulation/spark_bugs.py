"""Bugs of the Spark write protocol, put in on purpose, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from fencepost.client.errors import ProducerFencedError, TransactionAbortableError
from fencepost.client.positions import list_offsets
from fencepost.client.shared_transaction import SharedTransaction
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.control import COMMIT, ControlRecord, read_control_record
from fencepost.protocol.types import Isolation, ProducerIdAndEpoch
from fencepost.spark import attempt, claims, committed, driver, progress
from fencepost.spark.attempt import Attempt, PoisonedError
from fencepost.spark.claims import Written
from fencepost.spark.committed import End, Number, Verdict
from fencepost.spark.driver import Driver
from fencepost.spark.group_positions import topics_of
from fencepost.spark.progress import Progress

Patch = pytest.MonkeyPatch


def one_epoch_for_several_batches(patch: Patch) -> None:
    """Before transaction.version 2 the end of a transaction leaves the epoch: the next batch's rows are duplicates."""
    patch.setattr(Driver, "_go_on_as", _always_fresh)


def _always_fresh(self: Driver, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
    self.producer_id_and_epoch, self._is_fresh = producer_id_and_epoch, True


def claims_are_not_checked_by_the_driver(patch: Patch) -> None:
    patch.setattr(driver, "refusal", lambda *_: None)


def claims_are_not_checked_by_the_attempt(patch: Patch) -> None:
    patch.setattr(attempt, "follows", lambda *_: True)


def claims_are_checked_by_nobody(patch: Patch) -> None:
    claims_are_not_checked_by_the_driver(patch)
    claims_are_not_checked_by_the_attempt(patch)


def any_later_claim_follows(patch: Patch) -> None:
    def later(claimed: ProducerIdAndEpoch, known: ProducerIdAndEpoch | None) -> bool:
        return known is None or claimed.producer_epoch > known.producer_epoch

    patch.setattr(attempt, "follows", later)
    patch.setattr(claims, "follows", later)


def slots_are_looked_at_once(patch: Patch) -> None:
    """The driver remembers what the slots had when it took over."""
    describe = Driver._describe

    async def remembered(self: Driver, slots: Any) -> Any:
        known = self.__dict__.setdefault("known", {})
        known.update(await describe(self, [slot for slot in slots if slot not in known]))
        return {slot: known[slot] for slot in slots}

    patch.setattr(Driver, "_describe", remembered)


def a_number_says_that_a_batch_was_committed(patch: Patch) -> None:
    patch.setattr(committed, "VERDICTS", dict.fromkeys(committed.VERDICTS, Verdict.SKIP))


def the_last_batch_is_written_again(patch: Patch) -> None:
    patch.setitem(committed.VERDICTS, (Number.SAME, End.EQUAL), Verdict.WRITE)


def an_interrupted_driver_goes_on(patch: Patch) -> None:
    """As if it had settled: it keeps its epoch, and what is open."""
    take_over = Driver.take_over

    async def once(self: Driver, batch: Progress, new_query: bool) -> None:
        if self.producer_id_and_epoch.producer_id < 0:
            await take_over(self, batch, new_query)
        self._is_fresh = True

    patch.setattr(Driver, "take_over", once)


def a_failed_batch_is_not_aborted(patch: Patch) -> None:
    async def nothing(self: Driver) -> None:
        self._is_fresh = True

    patch.setattr(Driver, "_end_the_epoch", nothing)


def a_failed_batch_was_not_committed(patch: Patch) -> None:
    """The answer to the commit is lost: nobody looks whether it was carried out."""

    async def hopeful(self: Driver, batch: Progress) -> bool:  # noqa: ARG001
        await self._end_the_epoch()
        return False

    patch.setattr(Driver, "settle", hopeful)


def progress_is_read_before_the_take_over_only(patch: Patch) -> None:
    """What an older driver commits until it is fenced is not seen."""

    async def early(self: Driver, batch: Progress, new_query: bool) -> None:
        await _look_up(self)
        self._progress = await progress.read_progress(self._cluster, self.application_id)
        self._was_committed(self._progress, batch, new_query, Verdict.REFUSE, Verdict.MISSES)
        self.producer_id_and_epoch = await self._id.init(self._timeout_ms)
        self._is_fresh = self._is_settled = True

    patch.setattr(Driver, "take_over", early)


async def _look_up(self: Driver) -> None:
    await progress.ensure_topic(self._cluster)
    for topic in self._topics:
        view = await self._cluster.topic(topic, self._cluster.deadline("looking up"))
        self._counts[topic] = view.partition_count


def progress_is_read_after_the_take_over_only(patch: Patch) -> None:
    """Another query under the same application id fences the healthy one, and is refused then."""

    async def late(self: Driver, batch: Progress, new_query: bool) -> None:  # noqa: ARG001
        await _look_up(self)
        self.producer_id_and_epoch = await self._id.init(self._timeout_ms)
        self._progress = await progress.read_progress(self._cluster, self.application_id)
        self._is_fresh = self._is_settled = True

    patch.setattr(Driver, "take_over", late)


def progress_is_read_up_to_the_last_stable_offset(patch: Patch) -> None:
    async def stable(cluster: Any, partitions: Any, which: int, isolation: Isolation) -> Any:  # noqa: ARG001
        return await list_offsets(cluster, partitions, which, Isolation.READ_COMMITTED)

    patch.setattr(progress, "list_offsets", stable)


def progress_of_aborted_transactions_counts(patch: Patch) -> None:
    def committing(*where: Any) -> ControlRecord | None:
        found = read_control_record(*where)
        return None if found is None else found._replace(type=COMMIT)

    patch.setattr(progress, "read_control_record", committing)


def progress_is_written_in_a_transaction_of_its_own(patch: Patch) -> None:
    commit = Driver.commit

    async def afterwards(self: Driver, plan: Any, written: Any, batch: Progress) -> None:
        assert claims.refusal(plan.slots, written, await self._describe(list(plan.slots))) is None
        self._go_on_as(await self._id.end(self.producer_id_and_epoch, True, plan.ticket.tv2))
        await commit(self, await self.begin(len(plan.slots)), [], batch)

    patch.setattr(Driver, "commit", afterwards)


def progress_is_not_waited_for(patch: Patch) -> None:
    finish = SharedTransaction.finish

    async def soon(self: SharedTransaction) -> None:
        if any(at == progress.PARTITION for at in self.sender._busy):  # type: ignore[union-attr]
            await asyncio.sleep(0)
        else:
            await finish(self)

    patch.setattr(SharedTransaction, "finish", soon)


def a_failed_batch_of_an_attempt_is_forgotten(patch: Patch) -> None:
    def forget(self: SharedTransaction, *_: Any) -> bool:  # noqa: ARG001
        return False

    patch.setattr(SharedTransaction, "failed", forget)
    rows_are_reported_as_they_are_handed_over(patch)


def rows_are_reported_as_they_are_handed_over(patch: Patch) -> None:
    async def flush(self: Attempt, rows: int) -> list[Written]:
        await self._writer.sender.flush()  # type: ignore[union-attr]
        return _handed_over(self, rows)

    patch.setattr(Attempt, "finish", flush)


def _handed_over(self: Attempt, rows: int) -> list[Written]:
    found = [
        Written(self._slot, *self._claimed, rows, *at, sum(each.records for each in sent), 0, 10**9)
        for at, sent in sorted(self._sent.items())
    ]
    return found or [Written(self._slot, *self._claimed, rows)]


def an_attempt_is_done_when_all_is_sent(patch: Patch) -> None:
    async def early(self: Attempt, rows: int) -> list[Written]:
        await asyncio.sleep(0.001)
        return _handed_over(self, rows)

    patch.setattr(Attempt, "finish", early)


def an_attempt_loses_its_last_batch(patch: Patch) -> None:
    write = Attempt.write

    async def lossy(self: Attempt, at: Any, records: Any) -> None:
        if records.count > 1 or not self._sent:
            await write(self, at, records)

    patch.setattr(Attempt, "write", lossy)


def partitions_are_not_registered(patch: Patch) -> None:
    async def nothing(self: TransactionalId, *_: Any) -> None:
        pass

    patch.setattr(TransactionalId, "add_partitions", nothing)


def positions_are_committed_outside_of_the_transaction(patch: Patch) -> None:
    """In one after it: they are lost if the driver dies in between."""
    commit, commit_positions = Driver.commit, Driver._commit_positions

    async def apart(self: Driver, plan: Any, written: Any, batch: Progress) -> None:
        await commit(self, plan, written, batch)
        after = await self.begin(1)
        names = sorted(topics_of(batch.source_offsets))
        there = await self._look_up(names, self._cluster.deadline("looking up topics"))
        await commit_positions(self, after.ticket.tv2, batch, there)
        self._go_on_as(await self._id.end(self.producer_id_and_epoch, True, after.ticket.tv2))

    async def nothing(*_: Any) -> None:
        pass

    patch.setattr(Driver, "_commit_positions", nothing)
    patch.setattr(Driver, "commit", apart)


def a_fenced_driver_takes_over_again(patch: Patch) -> None:
    write = Driver.write

    async def stubborn(self: Driver, *how: Any) -> bool:
        try:
            return await write(self, *how)
        except ProducerFencedError:
            self._is_fenced, self._is_settled = False, True
            self.producer_id_and_epoch = await self._id.init(self._timeout_ms)
            self._is_fresh = True
            return await write(self, *how)

    patch.setattr(Driver, "write", stubborn)


def a_lost_commit_is_taken_for_made(patch: Patch) -> None:
    commit = Driver.commit

    async def hopeful(self: Driver, plan: Any, written: Any, batch: Progress) -> None:
        try:
            await commit(self, plan, written, batch)
        except TransactionAbortableError:
            self.producer_id_and_epoch = await self._id.init(self._timeout_ms, self.producer_id_and_epoch)
            self._is_fresh = True

    patch.setattr(Driver, "commit", hopeful)


def poison_is_no_failure(patch: Patch) -> None:
    """An attempt that may not write reports that it was given nothing."""
    claim = attempt.claim

    class Idle:
        def __init__(self, slot: int) -> None:
            self.slot = slot

        async def write(self, *_: Any) -> None:
            pass

        async def finish(self, _: int) -> list[Written]:
            return []

        async def close(self) -> None:
            pass

    async def quiet(cluster: Any, plan: Any, slot: int, number: int) -> Any:
        try:
            return await claim(cluster, plan, slot, number)
        except PoisonedError:
            return Idle(slot)

    patch.setattr("fencepost.simulation.spark_tasks.claim", quiet)


Bug = Callable[[Patch], None]
BUGS: Final[Mapping[str, Bug]] = {
    bug.__name__: bug
    for bug in (
        one_epoch_for_several_batches,
        claims_are_checked_by_nobody,
        any_later_claim_follows,
        slots_are_looked_at_once,
        a_number_says_that_a_batch_was_committed,
        the_last_batch_is_written_again,
        an_interrupted_driver_goes_on,
        a_failed_batch_is_not_aborted,
        a_failed_batch_was_not_committed,
        progress_is_read_before_the_take_over_only,
        progress_is_read_after_the_take_over_only,
        progress_is_read_up_to_the_last_stable_offset,
        progress_of_aborted_transactions_counts,
        progress_is_written_in_a_transaction_of_its_own,
        progress_is_not_waited_for,
        a_failed_batch_of_an_attempt_is_forgotten,
        an_attempt_is_done_when_all_is_sent,
        an_attempt_loses_its_last_batch,
        partitions_are_not_registered,
        positions_are_committed_outside_of_the_transaction,
        a_fenced_driver_takes_over_again,
        a_lost_commit_is_taken_for_made,
        poison_is_no_failure,
    )
}
