"""Calls between coordinators and leaders are lost, late and repeated, and no promise is broken.

For each kind of fault there is a mutant, a bug put in on purpose, that the simulation finds only because of that fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.simulation.mutants import OF_THE_TEST

from fencepost.broker.leader.registrar import Answer, Question
from fencepost.client.transactional_id import TransactionalId
from fencepost.coordinator.transaction import coordinator
from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.coordinator import TransactionCoordinator
from fencepost.coordinator.transaction.delivery import Delivery
from fencepost.coordinator.transaction.shards import Completion
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log import producers
from fencepost.log.producer_state import ProducerEntry, check_data, check_marker
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, LeaderEpoch
from fencepost.simulation.call_faults import Call, CallFault
from fencepost.simulation.faulty_runs import EVERYTHING, Plan, disturb

INCIDENTS: Mapping[str, dict[str, Any]] = {"steady": {}, "crashes": {"crashes": 0.3}, "moves": {"moves": 0.3}}
#: A marker of the levels before 2 has the epoch of the next transaction, too: repeated late it may end that one.
UNREPEATED: Mapping[CallFault, float] = {
    fault: share for fault, share in EVERYTHING.items() if fault is not CallFault.REPEATED
}


def plan(level: int, incidents: str) -> Plan:
    faults = EVERYTHING if level == 2 else UNREPEATED
    return Plan(call_faults=faults, level=level, incidents=30, **INCIDENTS[incidents])


@pytest.mark.parametrize("incidents", INCIDENTS)
@pytest.mark.parametrize("level", [2, 1, pytest.param(0, marks=pytest.mark.soak)])
def test_no_promise_is_broken(level: int, incidents: str) -> None:
    seen = set()
    for seed in range(2):
        report = disturb(seed, plan(level, incidents))
        assert report.faults == [], f"seed {seed}"
        assert len(report.outcomes.committed) > 30
        seen |= {fault for fault in CallFault if any(f" {fault.value}: " in line for line in report.history)}
    assert len(seen) >= 4, "there were faults of most kinds"


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    histories = ["\n".join(disturb(7, plan(2, "moves")).history).encode() for _ in range(2)]
    assert histories[0] == histories[1]


def broken_promises(faults: dict[CallFault, float], call: Call, seeds: int = 6, **how: Any) -> list[str]:
    """Of the first seed that shows some; a run that cannot be finished is one, too."""
    for seed in range(seeds):
        try:
            report = disturb(seed, Plan(faults, (call,), **how))
        except OF_THE_TEST:
            raise
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        if report.faults:
            return report.faults
    return []


def test_giving_up_a_marker_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Delivery, "_again", lambda _self, _completion: None)
    monkeypatch.setattr(Delivery, "retry", lambda _self, _now: None)
    faults = {CallFault.LOST: 0.05}
    assert "hangs" in "".join(broken_promises(faults, Call.MARKER))


def test_refusing_a_marker_that_comes_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-19999: the first one was written, its answer lost, and the transaction stays prepared for ever."""

    def strict(
        entry: ProducerEntry | None, epoch: int, coordinator_epoch: LeaderEpoch, version: int
    ) -> ErrorCode | None:
        if entry is not None and version >= 2 and epoch <= entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return check_marker(entry, Epoch(epoch), coordinator_epoch, version)

    monkeypatch.setattr(producers, "check_marker", strict)
    faults = {CallFault.ANSWER_LOST: 0.05}
    assert "stays Prepare" in "".join(broken_promises(faults, Call.MARKER))


def test_a_next_transaction_before_every_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """COMPLETE is written while markers are on their way; a late one then ends the next transaction."""
    attempt = Delivery._attempt

    def hasty(self: Delivery, completion: Completion, now: Any) -> bool:
        attempt(self, completion, now)
        return True

    monkeypatch.setattr(Delivery, "_attempt", hasty)
    assert broken_promises({CallFault.LATE: 0.1}, Call.MARKER, level=1)


def test_taking_an_old_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker of a transaction long over comes once more, and ends the one that is open."""
    monkeypatch.setattr(producers, "check_marker", lambda *_: None)
    faults = {CallFault.REPEATED: 0.05}
    broken = "".join(broken_promises(faults, Call.MARKER))
    assert "under epoch" in broken  # seen where the next batch is written, before anything is lost


@pytest.mark.promise("890.guard")
def test_writing_without_a_guard_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-14884: the answer was right when it was given, but its transaction was over when it came."""

    def trusting(entry: Any, verification: Any, guard: Any, header: BatchHeader, *how: Any) -> ErrorCode | None:
        return check_data(entry, verification, guard, header, how[0], False)

    monkeypatch.setattr(producers, "check_data", trusting)
    assert broken_promises({CallFault.ANSWER_LATE: 0.2}, Call.LOOK, level=1)


def test_taking_no_answer_for_a_good_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts §13.7, 8: what was not added is written all the same, and gets no marker."""

    def confident(question: Question) -> Answer:
        return Answer(dict.fromkeys(question.partitions, ErrorCode.NONE))

    monkeypatch.setattr(Answer, "lost", confident)
    broken = "".join(broken_promises({CallFault.LOST: 0.05}, Call.ADD))
    assert "hangs" in broken or "of the aborted transaction" in broken


def test_letting_an_offset_join_the_next_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was verified for the one before, in the same epoch, and has no sequence number that would tell."""
    # Stock clients go on at their epoch; ours takes a new one after an answer that it missed.
    monkeypatch.setattr(TransactionalId, "unsettled", property(lambda _: False, lambda _, __: None), raising=False)
    faults, call = {CallFault.ANSWER_LATE: 0.5}, Call.LOOK
    assert broken_promises(faults, call, level=1) == []

    def forgetful(entry: Any, verification: Any, guard: Any, header: BatchHeader, *how: Any) -> ErrorCode | None:
        if entry is not None and entry.open_first_offset is not None:
            guard = None
        return check_data(entry, verification, guard, header, how[0], how[1])

    monkeypatch.setattr(producers, "check_data", forgetful)
    assert "the group" in "".join(broken_promises(faults, call, level=1))


def test_adding_for_an_old_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated addition opens the transaction of a successor's epoch; a zombie's goes on in it."""

    def careless(transaction: TransactionMetadata, request: AddPartitions, now: Any, level: int) -> Any:
        return add_partitions(
            transaction, request._replace(producer_epoch=transaction.current.producer_epoch), now, level
        )

    monkeypatch.setattr(coordinator, "add_partitions", careless)
    assert broken_promises({CallFault.REPEATED: 0.2}, Call.ADD)


@pytest.mark.parametrize("incidents", ["crashes", pytest.param("moves", marks=pytest.mark.soak)])
def test_forgetting_a_decision_at_a_change_of_coordinator_is_found(
    monkeypatch: pytest.MonkeyPatch, incidents: str
) -> None:
    """A coordinator that was elected between PREPARE and the last marker must carry the decision out."""
    finish = TransactionCoordinator._finish

    def forgetful(self: TransactionCoordinator, held: Any, now: Any) -> None:
        if held.transaction.pending is None:
            finish(self, held, now)

    monkeypatch.setattr(TransactionCoordinator, "_finish", forgetful)
    assert broken_promises({CallFault.LATE: 0.2}, Call.MARKER, **{incidents: 0.5})  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_what_only_level_two_prevents_is_seen_below_it(level: int) -> None:
    """KAFKA-17754 among nodes: a late repetition of a marker ends the next transaction of the same epoch."""
    assert broken_promises({CallFault.REPEATED: 0.05}, Call.MARKER, level=level)


def test_without_the_mutants_the_same_runs_are_clean() -> None:
    runs: tuple[tuple[dict[CallFault, float], Call, dict[str, Any]], ...] = (
        ({CallFault.LOST: 0.05}, Call.MARKER, {}),
        ({CallFault.ANSWER_LOST: 0.05}, Call.MARKER, {}),
        ({CallFault.LATE: 0.1}, Call.MARKER, {"level": 1}),
        ({CallFault.REPEATED: 0.05}, Call.MARKER, {}),
        ({CallFault.ANSWER_LATE: 0.2}, Call.LOOK, {"level": 1}),
        ({CallFault.LOST: 0.05}, Call.ADD, {}),
        ({CallFault.REPEATED: 0.2}, Call.ADD, {}),
    )
    for faults, call, how in runs:
        assert broken_promises(faults, call, seeds=1, **how) == []
