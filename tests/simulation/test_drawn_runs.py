"""Runs of everything, drawn from seeds: no promise is broken, and every marked place in the code is come by."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections import Counter

import pytest

from fencepost.simulation import cast
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Circumstances, Plan, carry_out, simulate
from fencepost.simulation.plans import draw
from fencepost.simulation.reach import MARKS
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load

SEEDS = range(18)
MORE = (18, *range(20, 28))
FOUND = (1299,)
"""These have found what the others did not: a late write that was taken into the next transaction."""
COMES_BY = (19, 104, 27)
"""These come by what the others do not: a log whose start moves, a file that cannot be written, a prepared transaction
completed at last."""


@pytest.fixture(scope="module")
def reached() -> Counter[str]:
    """How often each mark was reached by the seeds of this file."""
    return Counter()


@pytest.mark.parametrize(
    "seed", [*SEEDS, *FOUND, *COMES_BY, *(pytest.param(seed, marks=pytest.mark.soak) for seed in MORE)]
)
def test_no_promise_is_broken(seed: int, reached: Counter[str]) -> None:
    report = simulate(seed)
    assert report.faults == [], f"fencepost simulate --seed {seed}"
    reached.update(report.reached)


def test_what_another_election_wrote_is_not_told_before_it_is_durable() -> None:
    """Where syncs take seconds a coordinator moves before what it wrote last is durable."""
    assert simulate(12, 1, [Trouble.COORDINATOR_MOVES, Trouble.SYNCS_ARE_SLOW]).faults == []


def test_every_marked_place_was_come_by(reached: Counter[str]) -> None:
    """By the runs above, in this process."""
    print("\n".join(f"{reached[mark.what]:8} {mark.what}" for mark in MARKS))
    assert [mark.what for mark in MARKS if not reached[mark.what]] == []


def test_every_kind_of_trouble_is_drawn() -> None:
    assert {trouble for seed in SEEDS for trouble in draw(seed).troubles} == set(Trouble)


@pytest.mark.parametrize("seed", [2, 9])
def test_the_same_seed_gives_the_same_history_in_every_process(seed: int) -> None:
    """Sets and hashes are in another order in every process; nothing may follow them."""
    program = [sys.executable, "-m", "fencepost", "simulate", "--seed", str(seed), "--for", "1s"]
    told = [
        subprocess.run(program, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, check=True).stdout
        for hashes in ("1", "2")
    ]
    assert told[0] == told[1]
    assert told[0].decode().endswith(f"seed {seed} {simulate(seed, 1).digest}\n")


def test_while_somebody_does_not_get_on_the_others_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes its whole patience is carried out hundreds of times when it is shrunk."""

    async def stuck(*_: object) -> None:
        await asyncio.sleep(math.inf)

    monkeypatch.setattr(cast, "KINDS", {**cast.KINDS, "windowed": stuck})
    clients = {"windowed-0": Window(), "single-0": Window(), "producer-0": Window(), "reader-0": Window()}
    report = carry_out(Plan(7, 0.1, Circumstances(load=Load(pause=0.1)), clients))
    assert report.faults == [
        "windowed-0 commits nothing any more, 300 s after the last fault",
        "windowed-0 does not end",
    ]
    assert {name.rpartition("-")[0] for name in report.outcomes.committed} == {"single-0", "producer-0"}
    assert [line for line in report.history if 20 < float(line.split()[0]) < 300] == []
