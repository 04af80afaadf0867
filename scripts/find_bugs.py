"""Put each bug on purpose into a process of its own, and see what of the default tests finds it, and how.

    python scripts/find_bugs.py [NAME ...]

First the tests of the file of its name and of others that have to do with its module are tried, which takes seconds,
for all of them; then the seeds of the simulation where that has a part in it, and the tests of its room.  Whatever
fails, or does not end, has to pass without the bug.  Writes tests/simulation/bugs_found.jsonl after each bug, of which
docs/reference/bugs.md and a page for each room are made.  Without names those are looked for that were not found yet,
so that it goes on where it was interrupted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT

from fencepost.simulation.bugs import BUGS, Bug

FOUND = ROOT / "tests" / "simulation" / "bugs_found.jsonl"
#: Of the seeds that the default tests run.
SEEDS = 18
PATIENCE = 900
"""Seconds: what takes longer does not end, if it does without the bug, on a machine that has other work too."""
NEAR_PATIENCE = 120
"""Seconds: as much for one file that is tried because it is near."""
NEAR = 5
"""How many of those that import a module are tried: the shortest, those of its own room first."""

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
    "broker.leader": (
        *("tests/broker/leader", "tests/broker/network/test_many_items.py"),
        *("tests/broker/test_transaction_reference.py", "tests/broker/apis"),
    ),
    "broker": ("tests/broker", "tests/simulation/test_clock_jumps.py"),
    "coordinator.transaction": ("tests/coordinator/transaction", "tests/broker/test_transaction_reference.py"),
    "coordinator.group": ("tests/coordinator/group", *_COMMITTED_OFFSETS, _GROUP_RUNS),
    "coordinator": ("tests/coordinator",),
    "client.shared_transaction": ("tests/spark/test_driver.py", "tests/spark/test_driver_positions.py", _SPARK_RUNS),
    "client.commit_order": ("tests/client/commit_order", "tests/client/test_commit_order.py"),
    "client.blocking": ("tests/client/test_blocking.py", "tests/client/test_interrupted_calls.py", "tests/client"),
    "client.admin": ("tests/client/admin",),
    "client": ("tests/client", _GROUP_RUNS, _LOOP_RUNS),
    "spark.options": (_SPARK_OPTIONS, "tests/spark"),
    "spark.offsets": (_SPARK_OPTIONS, "tests/spark"),
    "spark.source": (_SPARK_OPTIONS, "tests/spark"),
    "spark": ("tests/spark", _SPARK_RUNS),
    "cli": ("tests/cli",),
    "compiled": ("tests/compiled",),
}
#: Rooms that the seeds have no part in.
_WITHOUT_SEEDS: Final = (
    *("fencepost.spark", "fencepost.client.shared_transaction"),
    *("fencepost.client.commit_order", "fencepost.client.admin", "fencepost.log.cleaner"),
)

#: Those that are no default tests.
_LATER: Final = ("compare", "soak")
ENDLESS: Final = "it does not end"
#: Folders whose files take long, and are tried one by one.
_LONG: Final = ("tests/simulation", "tests/spark", "tests/crash", "tests/fuzz")

_PUT_IN: Final = """
from fencepost.simulation import bugs
bugs.put_in({bug!r})
"""
_TEST: Final = """
import sys
import pytest
sys.exit(pytest.main(["-x", "-q", "-rfE", "--no-header", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def own_tests_of(module: str) -> list[str]:
    """The file that bears the name of a module, if there is one."""
    *outer, last = module.split(".")[1:]
    same = "/".join(("tests", *outer, f"test_{last}.py"))
    return [same] if (ROOT / same).exists() else []


def tests_of_its_room(bug: Bug) -> Sequence[str]:
    """Where its like is tested, the nearest first."""
    place = bug.module.removeprefix("fencepost.")
    return next((tests for name, tests in ROOMS.items() if f"{place}.".startswith(f"{name}.")), ())


def near_tests(bug: Bug) -> list[str]:
    """The file of its name, default tests that import its module or send its request, and files named as its users.

    Of the second kind those of its room come first, and the shortest first.
    """
    package, _, last = bug.module.rpartition(".")
    imports = rf"from {re.escape(bug.module)} import|from {re.escape(package)} import [^\n]*\b{last}\b"
    request = "".join(map(str.title, last.split("_"))) + "Request"
    in_tests = re.compile(rf"{imports}|\b{request}\b" if ".apis." in bug.module else imports)
    found = [
        (f"/{bug.room}/" not in path, len(text), path)
        for path, text in _texts("tests", "test_*.py")
        if in_tests.search(text) and path.split("/")[1] not in _LATER
    ]
    importing = [path for *_, path in sorted(found)[:NEAR]]
    users = [_module(path) for path, text in _texts("src/fencepost", "*.py") if re.search(imports, text)]
    of_users = [test for user in users for test in own_tests_of(user)]
    return list(dict.fromkeys((*own_tests_of(bug.module), *importing, *of_users[:NEAR])))


def _texts(folder: str, pattern: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / folder).rglob(pattern)):
        yield str(path.relative_to(ROOT)), path.read_text()


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def run_with(bug: str, tests: Sequence[str], patience: float = PATIENCE) -> str | None:
    """The first of these tests that finds it, None if none does."""
    failed = failing(bug, tests, patience)
    if failed is None or failing("", tests if failed == ENDLESS else [failed], patience) is not None:
        return None
    return f"{tests[0]} ({ENDLESS})" if failed == ENDLESS else failed


def failing(bug: str, tests: Sequence[str], patience: float = PATIENCE) -> str | None:
    """The first of these tests that fails with a bug, or, where it has no name, without one."""
    put_in = _PUT_IN.format(bug=bug) if bug else ""  # in the command, too: Python goes on where a sitecustomize fails
    command = [sys.executable, "-c", put_in + _TEST, *tests]
    with TemporaryDirectory() as folder:
        # The processes that a test begins have it too.
        (Path(folder) / "sitecustomize.py").write_text(put_in)
        environment = _environment() | {"PYTHONPATH": folder}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            return ENDLESS
    if done.returncode == 0:
        return None
    if "BugUnusable" in done.stderr:
        raise SystemExit(done.stderr.splitlines()[-1])  # it would count as found
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else tests[0]


def _environment() -> dict[str, str]:
    """Without what was asked of the tests that look for bugs: others would remove their folders."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


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


def is_found_again(record: dict[str, Any]) -> bool:
    """Whether what found a bug finds it now: its test alone, which passes without it, or the seeds."""
    name, test = record["name"], record.get("test")
    if test is None:
        return seeds_with(name)[0] is not None
    path = test.removesuffix(f" ({ENDLESS})")
    return run_with(name, [path], PATIENCE if path == test else NEAR_PATIENCE) is not None


def find_near(name: str) -> dict[str, Any] | None:
    """What is known of a bug if the tests nearest to it find it, else None."""
    begun = time.monotonic()
    near = near_tests(BUGS[name])
    short = [path for path in near if not path.startswith(_LONG)]
    test = first_of(name, [short] * bool(short) + [[path] for path in near if path not in short], NEAR_PATIENCE)
    return (
        None
        if test is None
        else {"name": name, "found": test, "seconds": round(time.monotonic() - begun), "test": test}
    )


def find_far(name: str) -> dict[str, Any]:
    """What is known of a bug that they do not find."""
    bug, begun = BUGS[name], time.monotonic()
    found: dict[str, Any] = {"name": name, "found": None}
    if not bug.module.startswith(_WITHOUT_SEEDS):
        found["found"], found["seeds"] = seeds_with(name)
    if found["found"] is None:
        near = near_tests(bug)
        found["found"] = found["test"] = first_of(name, [[each] for each in tests_of_its_room(bug) if each not in near])
    return {**found, "seconds": round(time.monotonic() - begun)}


def first_of(bug: str, tests: Sequence[Sequence[str]], patience: float = PATIENCE) -> str | None:
    """What finds it first of these tests, one process for each of these lists of files; None if none does."""
    return next(filter(None, (run_with(bug, each, patience) for each in tests)), None)


def known() -> dict[str, dict[str, Any]]:
    """What was found before, by the names of the bugs."""
    return {each["name"]: each for each in _read()}


def _read() -> Iterator[dict[str, Any]]:
    yield from map(json.loads, FOUND.read_text().splitlines())


def main() -> None:
    before = known()
    unfound = [name for name, bug in BUGS.items() if not bug.masked and not before.get(name, {}).get("found")]
    names = sys.argv[1:] or unfound
    if unknown := sorted(set(names) - set(BUGS)):
        raise SystemExit(f"there is no bug {', '.join(unknown)}: docs/reference/bugs/ has their names\n{__doc__}")
    left: list[str] = []
    for name in names:
        near = find_near(name)
        if near is None:
            left.append(name)
        else:
            _note(before, near)
    for name in left:
        _note(before, find_far(name))


def _note(known: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    print(f"{found['name']}: {found['found'] or 'not found'}"[:150], flush=True)
    known[found["name"]] = found
    FOUND.write_text("".join(json.dumps(known[name]) + "\n" for name in BUGS if name in known))


if __name__ == "__main__":
    main()
