"""Groups of consumers, readers and transactional loops among faults: no promise is broken, every planted bug shows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.simulation.group_bugs import BUGS
from tests.simulation.narrow_worlds import LOAD, World, groups

from fencepost.client import Producer
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.group_load import REBORN
from fencepost.simulation.group_notes import GroupNotes
from fencepost.simulation.inhabitants.groups import KEEPERS, KEEPING_LOOPS
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.request_faults import RequestFault

EVERY_FAULT: Mapping[RequestFault, float] = dict.fromkeys(RequestFault, 0.02)
JOIN, SYNC, OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT, FETCH, HEARTBEAT = 11, 14, 8, 9, 28, 1, 12
PLANS: Mapping[str, World] = {
    "everything": groups(incidents=8, request_faults=EVERY_FAULT, crashes=0.2, topics_change=0.3),
    "transaction.version 1": groups(incidents=8, request_faults=EVERY_FAULT, crashes=0.2, level=1, groups=()),
    "transaction.version 0": groups(incidents=8, request_faults=EVERY_FAULT, level=0, groups=()),
    "cooperative": groups(
        incidents=6, groups=(KEEPERS,), transformers=(), request_faults=EVERY_FAULT, crashes=0.2, topics_change=0.3
    ),
    "cooperative loops": groups(
        incidents=8, groups=(), transformers=(), loops=(KEEPING_LOOPS,), request_faults=EVERY_FAULT, crashes=0.2
    ),
    "group requests": groups(
        incidents=6, request_faults=dict.fromkeys(RequestFault, 0.05), apis=(JOIN, SYNC, HEARTBEAT)
    ),
    "offset requests": groups(
        incidents=6,
        request_faults=dict.fromkeys(RequestFault, 0.05),
        apis=(OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT, FETCH),
    ),
}
COMPACTED = groups(
    incidents=6,
    crashes=0.3,
    request_faults=EVERY_FAULT,
    log={"segment_bytes": 2000},
    topic_settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "50"},
    settings={"log.cleaner.backoff.ms": 20},
    load=LOAD._replace(shape=Shape(keys=2)),
)
MUCH = groups(incidents=20, request_faults=EVERY_FAULT, crashes=0.2, topics_change=0.6)
SEEDS = 8
"""In so many, from the one on in which it was found, a bug is to be found."""


@pytest.mark.parametrize("plan", PLANS)
def test_no_promise_is_broken(plan: str) -> None:
    for seed in range(2):
        assert carry_out(PLANS[plan](seed)).faults == [], f"seed {seed}"


@pytest.mark.parametrize("seed", range(2))
def test_groups_are_handed_all_that_compaction_leaves(seed: int) -> None:
    report = carry_out(COMPACTED(seed))
    assert report.faults == []
    assert report.reached["a topic that producers write to is compacted"] > 5


def test_much_happens() -> None:
    """What the checkers look at is there: each of these is rare in a run that goes wrong before it begins."""
    reports: list[Report] = [carry_out(MUCH(seed)) for seed in (0, 2)]
    history = "\n".join(line for report in reports for line in report.history)
    for happened in (
        "stands still",
        "goes on",
        "dies",
        "dies without a word",
        "loses its connections",
        "is refused",
        "has waited long enough",
        "aborts",
        "power lost",
        "broker killed",
        "partitions",
        "lives its life",
        "begins at",
    ):
        assert happened in history, happened
    for noted in ("owned", "processed", "stored", "begun", "found", "read", "moved"):
        assert all(len(getattr(notes(report), noted)) > 3 for report in reports), noted


@pytest.mark.parametrize(
    ("every", "says"), [(0, "which was acknowledged, is lost"), (2, "is there 2 times")], ids=["lost", "doubled"]
)
def test_what_nobody_was_shown_or_everybody_was_shown_twice_is_found(
    every: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a topic that is made anew: readers are told of it by what is in it, and nobody can miss what is not."""
    send = Producer.send

    async def send_so_often(self: Producer, topic: str, value: bytes, **how: Any) -> Any:
        if topic != REBORN or not value.endswith(b"3"):
            return await send(self, topic, value, **how)
        told = asyncio.get_running_loop().create_future()
        told.set_result(None)
        for _ in range(every):
            await send(self, topic, value, **how)
        return told

    monkeypatch.setattr(Producer, "send", send_so_often)
    told = [fault for seed in range(2) for fault in carry_out(groups(incidents=4, transformers=())(seed)).faults]
    assert any(says in fault and fault.startswith(f"{REBORN}.") for fault in told)


def notes(report: Report) -> GroupNotes:
    assert report.groups is not None
    return report.groups.notes


#: One in four by default; all of them take minutes.
BY_DEFAULT = set(list(BUGS)[::4])
SOME = [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.soak) for name in BUGS]
#: The runs of the sampled bugs, each once, and those of the others.
RUNS = dict.fromkeys(
    (BUGS[name].plan, BUGS[name].seed) for name in sorted(BUGS, key=lambda name: name not in BY_DEFAULT)
)
OF_THE_SAMPLE = {(BUGS[name].plan, BUGS[name].seed) for name in BY_DEFAULT}


@pytest.mark.parametrize("name", SOME)
def test_a_bug_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bug = BUGS[name]
    bug.plant(monkeypatch)
    assert any(carry_out(bug.plan(seed)).faults for seed in range(bug.seed, bug.seed + SEEDS))


@pytest.mark.parametrize(
    ("plan", "seed"),
    [pytest.param(*run, marks=() if run in OF_THE_SAMPLE else pytest.mark.soak) for run in RUNS],
)
def test_without_the_bugs_the_same_runs_are_clean(plan: World, seed: int) -> None:
    assert carry_out(plan(seed)).faults == []
