"""In the small, every order of events is looked at: under transaction.version 2 none of them breaks a promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from tests.simulation.every_order import explore
from tests.simulation.every_order_world import POSITIONS, A, B, Program, Transaction

from fencepost.coordinator.transaction import end, initialize
from fencepost.coordinator.transaction.state import State
from fencepost.log import producer_state
from fencepost.log.producers import Producers

TWO: Final[tuple[Program, ...]] = (
    (Transaction((A, POSITIONS)), Transaction((B,), "abort")),
    (Transaction((A,)),),
)
ONE: Final[tuple[Program, ...]] = ((Transaction((A, POSITIONS)), Transaction((A,), "abort")),)
SMALL: Final[tuple[Program, ...]] = ((Transaction((A,)), Transaction((A,), "abort")),)
#: What only bumped epochs make harmless: whatever arrives when its transaction is over (KAFKA-17754).
LATE: Final = ("is late", "once more, later")


@pytest.mark.parametrize(("programs", "faults"), [(TWO, 1), (ONE, 2)], ids=["two producers", "one producer"])
def test_no_order_breaks_a_promise(programs: tuple[Program, ...], faults: int) -> None:
    found = explore(2, programs, faults)
    print(f"{found.states} states")
    assert found.broken is None, found.schedule
    assert found.states > 10_000


def test_below_level_2_a_late_commit_ends_the_next_transaction() -> None:
    """KAFKA-17754: the protocol allows no better; under level 2 every order of the same events is harmless."""
    found = explore(1, SMALL, 1, without=("once more, later",))
    assert found.broken == "transaction 1 of producer 0 is aborted, and is shown"
    late = [step for step in found.schedule if step.startswith(("is late", "arrives late"))]
    assert len(late) == 2 and all("kind='commit'" in step for step in late)
    assert explore(2, SMALL, 1, without=("once more, later",)).broken is None


def test_below_level_2_a_late_marker_does_too() -> None:
    found = explore(1, SMALL, 1, without=("is late",))
    assert found.broken is not None
    assert any(step.startswith("once more, later") for step in found.schedule)


def test_below_level_2_nothing_else_breaks_a_promise() -> None:
    """Crashes, lost answers, time-outs and new instances, as long as nothing arrives when its transaction is over."""
    found = explore(1, ONE, 2, without=(*LATE, "0 is replaced"))
    print(f"{found.states} states")
    assert found.broken is None, found.schedule


Plant = Callable[[pytest.MonkeyPatch], None]


def _nothing_is_verified(patch: pytest.MonkeyPatch) -> None:
    def unverified(entry: Any, verification: Any, guard: Any, header: Any, origin: Any, _: bool) -> Any:
        return producer_state.check_data(entry, verification, guard, header, origin, False)

    patch.setattr("fencepost.log.producers.check_data", unverified)


def _markers_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fencepost.log.producers.check_marker", lambda *_: None)


def _no_batch_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producers, "duplicate_of", lambda *_: None)
    patch.setattr(producer_state, "check_sequence", lambda *_: None)


def _an_end_is_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(end, "relation", lambda *_: end.EpochRelation.CURRENT)


def _a_new_instance_leaves_open_what_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(initialize.OUTCOMES, (initialize.Claim.NEW_INSTANCE, True), initialize.Outcome.BUMP)
    patch.setattr(initialize, "IDLE", tuple(State))


#: What is broken, and the level at which it shows: from 2 on epochs make up for some of it.
PLANTS: Final[Mapping[Plant, int]] = {
    _nothing_is_verified: 1,
    _markers_of_any_epoch: 2,
    _no_batch_is_a_duplicate: 2,
    _an_end_is_of_any_epoch: 2,
    _a_new_instance_leaves_open_what_is_open: 2,
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_bug_breaks_one(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    level = PLANTS[plant]
    without = LATE if level < 2 else ()
    assert any(explore(level, programs, 1, without).broken for programs in (SMALL, ONE))
