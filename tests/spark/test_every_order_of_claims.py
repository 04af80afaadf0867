"""Every order in which two drivers and three attempts at one slot can do their steps, on a small model of the brokers.

The decisions are the real ones: who may write (`follows`), what may be committed (`refusal`), what was committed before
(`judge`).  The model stands for the brokers: epochs that count up, one open transaction, sequence numbers that make
a repeated batch a duplicate whoever sends it.  An attempt may stand still between any two of its steps for ever, or
until long after its driver went on; a driver may take any attempt for lost, and give a run up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import pytest

from fencepost.protocol.types import ProducerIdAndEpoch
from fencepost.spark import claims
from fencepost.spark.claims import Written
from fencepost.spark.committed import Verdict, judge
from fencepost.spark.progress import Progress

ATTEMPTS: Final = 3
DRIVERS: Final = 2
RUNS: Final = 2
BATCHES: Final = 2
"""Batches that an attempt sends."""
BATCH: Final = Progress("query", 0, [5])

Pair: TypeAlias = tuple[int, int]


class Plan(NamedTuple):
    """What a driver tells its tasks: itself and its run, the epoch to write under, what the slot had."""

    driver: int
    run: int
    epoch: int
    known: Pair | None


class Attempt(NamedTuple):
    """An attempt: its plan once it is started, its claim once it has one, how many batches it has sent."""

    plan: Plan | None = None
    claim: Pair | None = None
    sent: int = 0
    is_over: bool = False


class Driver(NamedTuple):
    """A driver: what it does next, its epoch, its plan, and who reported which claim to it."""

    does: str = "look"
    epoch: int = -1
    plan: Plan | None = None
    reporter: int = -1
    claim: Pair | None = None
    runs: int = 0


OVER: Final = Attempt(is_over=True)
GONE: Final = Driver("be gone")


class State(NamedTuple):
    """Everything there is.  `log`: of the open transaction, which attempt wrote each sequence number."""

    slot: Pair | None
    epoch: int = 0
    log: tuple[int, ...] = ()
    committed: tuple[tuple[tuple[int, ...], int], ...] = ()
    """What the committed transactions hold, and whose report was believed."""
    drivers: tuple[Driver, ...] = (Driver(),) * DRIVERS
    attempts: tuple[Attempt, ...] = (Attempt(),) * ATTEMPTS

    def driver(self, number: int, driver: Driver) -> State:
        return self._replace(drivers=(*self.drivers[:number], driver, *self.drivers[number + 1 :]))

    def attempt(self, number: int, attempt: Attempt) -> State:
        return self._replace(attempts=(*self.attempts[:number], attempt, *self.attempts[number + 1 :]))

    def without_the_past(self) -> State:
        """Who can do nothing any more that anybody notices is like any other such."""
        attempts = tuple(
            OVER if each.claim and each.plan and each.plan.epoch != self.epoch else each for each in self.attempts
        )
        return self if attempts == self.attempts else self._replace(attempts=attempts)


def next_pair(slot: Pair | None) -> Pair:
    """InitProducerId: the epoch counts up, and at its end there is a new producer id (facts on epochs)."""
    if slot is None:
        return 1, 0
    return (slot[0], slot[1] + 1) if slot[1] < 32766 else (slot[0] + 1, 0)


def following(state: State, bumps: bool) -> Iterator[State]:
    """Every state that one step of anybody leads to."""
    for number, attempt in enumerate(state.attempts):
        yield from attempt_steps(state, number, attempt)
    for number, driver in enumerate(state.drivers):
        yield from driver_steps(state, number, driver, bumps)


def attempt_steps(state: State, number: int, attempt: Attempt) -> Iterator[State]:
    if attempt.is_over:
        return
    if attempt.plan is None:
        # One is like another: the first that is not started is started.
        if not number or state.attempts[number - 1] != Attempt():
            for driver in state.drivers:
                if driver.does == "wait" and driver.plan is not None:
                    yield state.attempt(number, Attempt(driver.plan))
    elif attempt.claim is None:
        slot = next_pair(state.slot)
        claimed = attempt._replace(claim=slot) if may_write(slot, attempt.plan.known) else OVER
        yield state._replace(slot=slot).attempt(number, claimed)
    elif attempt.sent < BATCHES:
        if attempt.sent > len(state.log):
            yield state.attempt(number, OVER)  # a gap in the sequence
            return
        log = state.log if attempt.sent < len(state.log) else (*state.log, number)
        yield state._replace(log=log).attempt(number, attempt._replace(sent=attempt.sent + 1))


def driver_steps(state: State, number: int, driver: Driver, bumps: bool) -> Iterator[State]:
    match driver.does:
        case "look" | "look again":
            if was_committed(bool(state.committed)):
                yield state.driver(number, GONE)
            else:
                yield state.driver(number, driver._replace(does="take over" if driver.does == "look" else "begin"))
        case "take over":
            taken = state._replace(epoch=state.epoch + 1, log=())
            yield taken.driver(number, Driver("look again", state.epoch + 1))
        case "begin":
            plan = Plan(number, driver.runs, driver.epoch, state.slot)
            yield state.driver(number, driver._replace(does="wait", plan=plan, runs=driver.runs + 1))
        case "wait":
            for who, attempt in enumerate(state.attempts):
                if attempt.plan == driver.plan and attempt.sent == BATCHES:
                    yield state.driver(number, driver._replace(does="check", reporter=who, claim=attempt.claim))
            yield state.driver(number, driver._replace(does="settle"))
        case "check":
            assert driver.plan is not None and driver.claim is not None
            commits = may_commit(driver.plan.known, driver.claim, state.slot)
            yield state.driver(number, driver._replace(does="commit" if commits else "settle", plan=None, claim=None))
        case "commit" | "settle" if driver.epoch != state.epoch:
            yield state.driver(number, GONE)  # it is fenced
        case "commit":
            epoch = state.epoch + 1 if bumps else state.epoch
            committed = (*state.committed, (state.log, driver.reporter))
            done = state._replace(epoch=epoch, log=(), committed=committed)
            yield done.driver(number, GONE)
            # The answer is lost: the driver has to find out.
            yield done.driver(number, Driver("settle", epoch, runs=driver.runs))
        case "settle":
            ended = state._replace(epoch=state.epoch + 1, log=())
            again = Driver("look again", state.epoch + 1, runs=driver.runs)
            yield ended.driver(number, again if driver.runs < RUNS else GONE)


def pair(of: Pair | None) -> ProducerIdAndEpoch | None:
    return None if of is None else ProducerIdAndEpoch.of(*of)


@lru_cache
def may_write(claimed: Pair, known: Pair | None) -> bool:
    return claims.follows(ProducerIdAndEpoch.of(*claimed), pair(known))


@lru_cache
def may_commit(before: Pair | None, claim: Pair, after: Pair | None) -> bool:
    report = [Written(0, *ProducerIdAndEpoch.of(*claim), BATCHES, "out", 0, BATCHES, 0, BATCHES - 1)]
    return claims.refusal({0: pair(before)}, report, {0: pair(after)}) is None


@lru_cache
def was_committed(committed: bool) -> bool:
    return judge("application", BATCH if committed else None, BATCH, False).verdict is Verdict.SKIP


DECISIONS: Final = (may_write, may_commit, was_committed)


def explore(slot: Pair | None, bumps: bool) -> tuple[int, int, list[str]]:
    """How many states there are, in how many of them the batch is committed, and what is wrong in the first bad one."""
    first = State(slot)
    seen, waiting, committed = {first}, [first], 0
    while waiting:
        state = waiting.pop()
        faults = broken(state)
        if faults:
            return len(seen), committed, faults
        committed += bool(state.committed)
        for one in map(State.without_the_past, following(state, bumps)):
            if one not in seen:
                seen.add(one)
                waiting.append(one)
    return len(seen), committed, []


def broken(state: State) -> list[str]:
    """A batch is committed once, whole, and all of it by the attempt whose report was believed."""
    faults = [f"it is committed {len(state.committed)} times"] if len(state.committed) > 1 else []
    for content, reporter in state.committed:
        if content != (reporter,) * BATCHES:
            faults.append(f"attempts {content} are committed together, {reporter} reported")
    return faults


SLOTS: Final = {"never claimed": None, "claimed": (7, 3), "at its last epoch": (7, 32765), "past it": (7, 32766)}


rare = pytest.mark.soak


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    for decision in DECISIONS:
        decision.cache_clear()


@pytest.mark.parametrize(
    ("slot", "bumps"),
    [
        pytest.param(slot, bumps, id=f"{slot}, TV{2 if bumps else 1}", marks=[] if bumps is bool(n % 2) else rare)
        for n, slot in enumerate(SLOTS)
        for bumps in (True, False)
    ],
)
def test_no_two_attempts_are_ever_committed_together_or_twice(slot: str, bumps: bool) -> None:
    states, committed, faults = explore(SLOTS[slot], bumps)
    print(f"slot {slot}, the end {'bumps' if bumps else 'leaves'} the epoch: {states} states, committed in {committed}")
    assert faults == []
    assert states > 10_000 and committed > 1000


def test_without_claims_two_attempts_are_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "follows", lambda *_: True)
    monkeypatch.setattr(claims, "_refused_claim", lambda *_: None)
    assert "committed together" in explore((7, 3), True)[2][0]


@pytest.mark.parametrize("left_out", [pytest.param("the attempt's", marks=pytest.mark.soak), "the driver's"])
def test_the_attempts_check_and_the_drivers_are_each_enough(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So one of them may fail to see what it should."""
    if left_out == "the attempt's":
        monkeypatch.setitem(globals(), "may_write", lambda *_: True)
    else:
        monkeypatch.setitem(globals(), "may_commit", lambda *_: True)
    assert explore((7, 3), True)[2] == []


def test_any_later_claim_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def later(claimed: ProducerIdAndEpoch, known: ProducerIdAndEpoch | None) -> bool:
        return known is None or claimed.producer_epoch > known.producer_epoch

    monkeypatch.setattr(claims, "follows", later)
    assert "committed together" in explore((7, 3), True)[2][0]


def test_a_batch_that_is_not_looked_for_is_committed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "was_committed", lambda _: False)
    assert "2 times" in explore((7, 3), True)[2][0]
