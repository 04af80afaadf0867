"""Loops that read, transform and write with `ExactlyOnce`, among faults: every input has one output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from scripts.find_bugs import failing
from tests.simulation.narrow_worlds import World, groups

from fencepost.client.loop_steps import Ending, Phase, ending_of
from fencepost.simulation.bugs import BUGS
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.inhabitants.groups import LOOPS, TRANSFORMERS
from fencepost.simulation.reach import Mark, counted
from fencepost.simulation.request_faults import RequestFault

FAULTS = dict.fromkeys(RequestFault, 0.02)
PLANS: Mapping[str, World] = {
    "alone": groups(incidents=8, request_faults=FAULTS, crashes=0.2, groups=(), transformers=(), loops=(LOOPS,)),
    "transaction.version 1": groups(
        incidents=8, request_faults=FAULTS, crashes=0.2, level=1, groups=(), transformers=(), loops=(LOOPS,)
    ),
    "transaction.version 0": groups(
        incidents=8, request_faults=FAULTS, level=0, groups=(), transformers=(), loops=(LOOPS,)
    ),
    "beside loops by hand": groups(incidents=6, crashes=0.3, groups=(), transformers=(TRANSFORMERS,), loops=(LOOPS,)),
}
SEEDS = (0, 1, 6, 13)
MORE = 20
#: What the runs must come by: how a step ended.
ENDINGS = (
    (Phase.INIT, Ending.TRANSIENT),
    (Phase.POLL, Ending.CANCELLED),
    (Phase.BLOCK, Ending.ABORTABLE),
    (Phase.BLOCK, Ending.FAILED),
    (Phase.BLOCK, Ending.CANCELLED),
    (Phase.SEND_OFFSETS, Ending.ABORTABLE),
    (Phase.SEND_OFFSETS, Ending.FENCED),
    (Phase.SEND_OFFSETS, Ending.CANCELLED),
    (Phase.COMMIT, Ending.UNKNOWN),
    (Phase.COMMIT, Ending.CANCELLED),
    (Phase.ABORT, Ending.UNKNOWN),
    (Phase.ABORT, Ending.FENCED),
)


def mark(phase: Phase, ending: Ending) -> Mark:
    return Mark(
        f"{phase.name} {ending.name}",
        "fencepost.client.transaction_loop:follows",
        lambda _, arguments: arguments[0] is phase and ending_of(arguments[1]) is ending,
    )


MARKS = [mark(*each) for each in ENDINGS]


@pytest.fixture(scope="module")
def reached() -> Counter[str]:
    """How often each mark was reached by the runs of this file."""
    return Counter()


@pytest.mark.parametrize("plan", PLANS)
def test_no_promise_is_broken(plan: str, reached: Counter[str]) -> None:
    for seed in SEEDS:
        with counted(MARKS) as found:
            report = carry_out(PLANS[plan](seed))
        assert report.faults == [], f"seed {seed}"
        assert report.groups is not None
        assert len(report.groups.notes.stored) > 10, f"seed {seed}"
        reached.update(found)


def test_the_steps_end_in_every_way_that_matters(reached: Counter[str]) -> None:
    """In the runs above, in this process."""
    print(dict(reached))
    assert [mark.what for mark in MARKS if not reached[mark.what]] == []


@pytest.mark.soak
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("seed", sorted({*range(MORE)} - {*SEEDS}))
def test_no_promise_is_broken_by_more_seeds(plan: str, seed: int) -> None:
    assert carry_out(PLANS[plan](seed)).faults == []


#: Found by the runs above, which find nothing without them; each takes a process of its own.
SAMPLE = ("no-seek-back", "error-commits", "read-again-while-in-doubt")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_bug_is_found(name: str) -> None:
    assert name in BUGS
    found = failing(name, [f"{__file__}::test_no_promise_is_broken"])
    assert found is not None and found.endswith("::test_no_promise_is_broken")
