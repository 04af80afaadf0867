"""A seed that fails is shrunk to a test that can be pasted: it fails as the seed did, and not without the bug."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fencepost.cli.shrink import shrunk
from fencepost.simulation.call_faults import Call, CallFault
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Circumstances, Plan, Report, Trouble, carry_out, is_sound, plan_of
from fencepost.simulation.inhabitants.groups import LEDGER, LOOPS, GroupsPlan
from fencepost.simulation.plan_as_test import as_test
from fencepost.simulation.request_faults import RequestFault
from fencepost.simulation.script import BefallenCall, BefallenRequest, End, Happening, Script, Transaction, Write
from fencepost.simulation.workload import Load, Outcomes

ROOT = Path(__file__).parents[2]
#: Found by the first seeds; in the soak tests more of other rooms.
BUG = "end-txn-too-early"
MORE = (
    "aborted-not-indexed",
    "failed-record-committed",
    "marker-tried-once",
    "pending-offset-counts",
    "complete-before-markers",
)
#: Runs a test file in a process that has a bug, or none.
RUN = "import sys, pytest\nfrom fencepost.simulation.bugs import put_in\n{bug}\nsys.exit(pytest.main(sys.argv[1:]))"


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("bug", "duration", "tries"),
    [(BUG, "100ms", 30), *(pytest.param(bug, "3s", 500, marks=pytest.mark.soak) for bug in MORE)],
)
def test_what_is_printed_fails_with_the_bug_and_not_without_it(
    bug: str, duration: str, tries: int, tmp_path: Path
) -> None:
    simulate = ["-m", "fencepost", "simulate", "--for", duration, "--bug", bug]
    found = python(*simulate, "--runs", "20", "--until-broken", "--quiet")
    seed = found.stdout.splitlines()[-1].split()[1]
    shrunk = python(*simulate, "--seed", seed, "--shrink", "--tries", str(tries))
    assert shrunk.returncode == 1, shrunk.stderr
    path = tmp_path / "test_shrunk.py"
    path.write_text(shrunk.stdout)
    assert f"fencepost simulate --seed {seed} --for {duration} --bug {bug}\n" in shrunk.stdout
    style = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(path)]
    assert python("-m", "ruff", "check", *style).stdout == "All checks passed!\n"
    assert python("-m", "ruff", "format", "--check", *style).returncode == 0, shrunk.stdout
    pytest_options = ["-q", "-p", "no:cacheprovider", str(path)]
    with_bug = python("-c", RUN.format(bug=f"put_in({bug!r})"), *pytest_options)
    assert with_bug.returncode == 1, with_bug.stdout
    assert python("-c", RUN.format(bug=""), *pytest_options).returncode == 0
    first, *_, last = shrunk.stderr.splitlines()
    assert parts(last) * 4 < parts(first), f"{first}\n{last}"


def parts(line: str) -> int:
    """Of what is counted before the seconds, in a line of the progress."""
    return sum(int(count) for count in re.findall(r"(\d+) (?:clients|faults|transactions|records|settings)", line))


LARGE = Plan(
    7,
    0.5,
    Circumstances(
        {"log.cleaner.backoff.ms": 20, 'a "quoted" \\ name': "x"},
        {"segment_bytes": 2000},
        level=1,
        load=Load(positions=0.3),
        troubles=(Trouble.KILLED,),
        request_faults={RequestFault.LATE: 0.1},
        apis=(0,),
    ),
    {f"producer-{n}": Window(end=0.25) for n in range(3)},
    Script(
        (Happening(0.1, "KILLED", 3),),
        tuple(BefallenRequest(n / 10, "producer-0", 26, RequestFault.HELD_BACK, 0.1) for n in (0, 1, 2, 3, 90)),
        (BefallenCall(0.1, Call.MARKER, CallFault.REPEATED, 0.2, 1),),
        {"producer-0": (Transaction(0, 0.1, (Write("left", 0, 0.01),) * 5, End.ABORTS, position=True),)},
    ),
)


def test_every_part_of_a_plan_is_printed_so_that_it_comes_back(tmp_path: Path) -> None:
    source = as_test(LARGE, "_ is lost", 'a "record" \\ is lost: ' + "x" * 200, "the command")
    path = tmp_path / "test_large.py"
    path.write_text(source)
    style = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(path)]
    assert python("-m", "ruff", "check", *style).stdout == "All checks passed!\n", source
    assert python("-m", "ruff", "format", "--check", *style).returncode == 0, source
    scope: dict[str, object] = {}
    exec(compile(source, str(path), "exec"), scope)
    assert scope["PLAN"] == LARGE
    assert "test_is_lost" in scope


def test_another_promise_that_a_smaller_plan_breaks_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Plan) -> Report:
        fault = "1 is lost" if "producer-1" in plan.clients else "1 is doubled"
        return Report(plan, [], [fault], Outcomes(), Counter())

    monkeypatch.setattr("fencepost.cli.shrink.carry_out", broken)
    found = shrunk(LARGE, "7 is lost", "the command", lambda _: None, 500)
    assert found.plan == Plan(7, 0.0, Circumstances(), {"producer-1": Window()}, None)
    assert '"""Found by\n    the command\n1 is lost\n"""' in found.source


def test_what_would_rightly_be_refused_is_no_part_of_a_plan() -> None:
    """Records with the time of a clock that may be far ahead need a node that takes them."""
    plan = next(plan for seed in range(100) if "pipelined-0" in (plan := plan_of(seed, 1)).clients)
    assert is_sound(plan)
    bare = plan._replace(circumstances=Circumstances())
    assert not is_sound(bare)
    assert is_sound(bare._replace(clients={"single-0": Window()}))


def test_nor_are_groups_whose_members_the_node_does_not_let_in() -> None:
    """They would read nothing, whatever the bug, and whatever was found would be shrunk to that."""
    plan = next(plan for seed in range(100) if (plan := plan_of(seed, 1)).circumstances.groups is not None)
    assert is_sound(plan)
    given = plan.circumstances
    least = {name: value for name, value in given.settings.items() if name == "group.min.session.timeout.ms"}
    assert not is_sound(plan._replace(clients={}, circumstances=Circumstances(groups=given.groups)))
    bare = plan._replace(circumstances=Circumstances(settings=least, groups=given.groups))
    assert not is_sound(bare._replace(clients={"single-0": Window()}))
    for cut in (GroupsPlan(loops=(LOOPS._replace(topics=()),)), GroupsPlan((LEDGER._replace(seats=0),))):
        assert not is_sound(plan._replace(circumstances=given._replace(groups=cut)))
    for load in (Load(pause=0.1), Load(transaction_timeout_ms=300)):
        assert not is_sound(plan._replace(circumstances=given._replace(load=load)))
    alone = Plan(plan.seed, 0.0, Circumstances(settings=least, groups=given.groups), {}, Script())
    assert is_sound(alone)
    assert carry_out(alone).faults == []


def test_a_plan_is_carried_out_alike_when_what_it_never_came_to_is_left_out() -> None:
    plan = LARGE._replace(circumstances=Circumstances(), clients={"producer-0": Window()})
    whole = carry_out(plan)
    assert whole.plan.script is not None and len(whole.plan.script.requests) < 5
    assert carry_out(whole.plan).history == whole.history
