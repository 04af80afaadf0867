"""Put each bug on purpose into a process of its own, and see what of the default tests finds it, and how.

    python scripts/find_bugs.py [NAME ...]

First the tests of the file of its name are tried, which takes seconds, then the seeds of the simulation where that has
a part in it, then the tests of its room.  Writes tests/simulation/bugs_found.jsonl, from which docs/reference/bugs.md
is made.  Takes an hour or two; without names those are looked for that nobody looked for yet.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT

from fencepost.simulation.bugs import BUGS, Bug

FOUND = ROOT / "tests" / "simulation" / "bugs_found.jsonl"
#: Of the seeds that the default tests run.
SEEDS = 20
PATIENCE = 1800
"""Seconds: what takes longer does not end, on a machine that has other work too."""

_GROUP_RUNS: Final = "tests/simulation/test_group_runs.py::test_no_promise_is_broken"
_LOOP_RUNS: Final = "tests/simulation/test_loop_runs.py::test_no_promise_is_broken"
_SPARK_RUNS: Final = "tests/simulation/test_spark_runs.py::test_no_promise_is_broken"
_SPARK_OPTIONS: Final = "tests/spark/test_source_options.py"
_COMMITTED_OFFSETS: Final = (
    "tests/broker/apis/test_committed_offsets.py",
    "tests/broker/apis/test_groups_after_restart.py",
)
#: module -> default tests that have to do with it, beside the file of its name and the seeds; the first that fits
ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "log.cleaner": ("tests/log/cleaner",),
    "log": ("tests/log",),
    "protocol": ("tests/protocol", "tests/client"),
    "broker.apis": ("tests/broker/apis", _GROUP_RUNS),
    "broker.leader": ("tests/broker/leader", "tests/broker/apis"),
    "broker": ("tests/broker", "tests/simulation/test_clock_jumps.py"),
    "coordinator.transaction": ("tests/coordinator/transaction", "tests/broker/test_transaction_reference.py"),
    "coordinator.group": ("tests/coordinator/group", *_COMMITTED_OFFSETS, _GROUP_RUNS),
    "client.shared_transaction": ("tests/spark/test_driver.py", _SPARK_RUNS),
    "client.commit_order": ("tests/client/commit_order", "tests/client/test_commit_order.py"),
    "client": ("tests/client", _GROUP_RUNS, _LOOP_RUNS),
    "spark.options": (_SPARK_OPTIONS, "tests/spark"),
    "spark.offsets": (_SPARK_OPTIONS, "tests/spark"),
    "spark.source": (_SPARK_OPTIONS, "tests/spark"),
    "spark": ("tests/spark", _SPARK_RUNS),
    "compiled": ("tests/compiled",),
}
#: Rooms that the seeds have no part in.
_WITHOUT_SEEDS: Final = (
    *("fencepost.spark", "fencepost.client.shared_transaction"),
    *("fencepost.client.commit_order", "fencepost.log.cleaner"),
)

_WITH_BUG: Final = """
import sys
from fencepost.simulation import bugs
bugs.put_in(sys.argv[1])
import pytest
sys.exit(pytest.main(["-x", "-q", "-rfE", "--no-header", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def own_tests_of(bug: Bug) -> list[str]:
    """The file that bears the name of what it is in, if there is one."""
    *outer, last = bug.module.split(".")[1:]
    same = "/".join(("tests", *outer, f"test_{last}.py"))
    return [same] if (ROOT / same).exists() else []


def tests_of_its_room(bug: Bug) -> Sequence[str]:
    """Where its like is tested, the nearest first."""
    place = bug.module.removeprefix("fencepost.")
    return next((tests for name, tests in ROOMS.items() if f"{place}.".startswith(f"{name}.")), ())


def run_with(bug: str, tests: str, patience: float = PATIENCE) -> str | None:
    """The first of these tests that finds it, None if none does."""
    command = [sys.executable, "-c", _WITH_BUG, bug, tests]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return f"{tests} (it does not end)"
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else tests


def seeds_with(bug: str) -> tuple[str | None, int]:
    """What is found by the first seed that finds it, and how many were tried."""
    command = [sys.executable, "-m", "fencepost", "simulate", "--bug", bug, "--runs", str(SEEDS)]
    try:
        done = subprocess.run(
            [*command, "--quiet", "--until-broken"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        lines = done.stdout.splitlines()
    except subprocess.TimeoutExpired:
        lines = ["BROKEN: the run does not end"]
    first = next((line.removeprefix("BROKEN: ") for line in lines if line.startswith("BROKEN: ")), None)
    return first, max(sum(line.startswith("seed ") for line in lines), 1)


def find(name: str) -> dict[str, Any]:
    """What is known of a bug afterwards."""
    bug, begun = BUGS[name], time.monotonic()
    found: dict[str, Any] = {"name": name, "found": None}
    own = own_tests_of(bug)
    found["found"] = found["test"] = first_of(name, own)
    if found["found"] is None and not bug.module.startswith(_WITHOUT_SEEDS):
        found["found"], found["seeds"] = seeds_with(name)
    if found["found"] is None:
        found["found"] = found["test"] = first_of(name, [each for each in tests_of_its_room(bug) if each not in own])
    return {**found, "seconds": round(time.monotonic() - begun)}


def first_of(bug: str, tests: Sequence[str]) -> str | None:
    """What finds it first of these tests, in their order; None if none does."""
    return next(filter(None, (run_with(bug, each) for each in tests)), None)


def known() -> dict[str, dict[str, Any]]:
    """What was found before, by the names of the bugs."""
    return {each["name"]: each for each in _read()}


def _read() -> Iterator[dict[str, Any]]:
    yield from map(json.loads, FOUND.read_text().splitlines())


def main() -> None:
    before = known()
    for name in sys.argv[1:] or [name for name in BUGS if name not in before]:
        before[name] = find(name)
        print(f"{name}: {before[name]['found'] or 'not found'}"[:150], flush=True)
        FOUND.write_text("".join(json.dumps(before[each]) + "\n" for each in BUGS if each in before))


if __name__ == "__main__":
    main()
