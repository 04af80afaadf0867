"""Bugs on purpose: each changes lines that are there, once, and makes other code of them."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scripts.find_bugs import SEEDS
from scripts.page import ROOT

from fencepost.compiled import files
from fencepost.simulation import bugs
from fencepost.simulation.bugs import BUGS, BugUnusable
from fencepost.simulation.bugs.bug import Bug, read
from scripts import find_bugs

FOUND = find_bugs.known()


@cache
def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    with open(spec.origin) as file:
        return file.read()


def digest(source: str) -> bytes:
    """The same for two sources that differ in comments and layout alone."""
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).digest()


@cache
def right(module: str) -> bytes:
    return digest(source_of(module))


@cache
def wrong(name: str) -> bytes:
    return digest(BUGS[name].put_into(source_of(BUGS[name].module)))


@pytest.mark.parametrize("name", BUGS)
def test_it_fits_into_the_code_as_that_is(name: str) -> None:
    assert wrong(name) != right(BUGS[name].module)
    assert BUGS[name].what


def test_each_has_a_name_of_its_own_and_makes_code_of_its_own() -> None:
    """Of two with one name the first would never be tried; two that make the same code are one."""
    folder = Path(bugs.__file__).parent
    written = [bug for path in sorted(folder.glob("*.patch")) for bug in read(path.read_text())]
    assert [name for name, times in Counter(bug.name for bug in written).items() if times > 1] == []
    assert {bug.name for bug in written} == set(BUGS)
    made = Counter((bug.module, wrong(bug.name)) for bug in written)
    assert [module for (module, _), times in made.items() if times > 1] == []


def found_by(name: str, seeds: int) -> subprocess.CompletedProcess[str]:
    command = ["simulate", "--bug", name, "--runs", str(seeds), "--quiet", "--until-broken"]
    return subprocess.run([sys.executable, "-m", "fencepost", *command], capture_output=True, text=True, check=False)


#: One of each room; the others take minutes.
SAMPLE = ("duplicate-of-any-epoch", "aborted-not-indexed", "commit-without-flush", "end-txn-too-early")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_bug_is_found_by_the_seeds_of_the_default_tests(name: str) -> None:
    assert found_by(name, SEEDS).returncode == 1


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, known in FOUND.items() if known["found"] and name not in SAMPLE])
def test_what_was_found_before_is_found_again(name: str) -> None:
    assert find_bugs.is_found_again(FOUND[name])


#: One that these tests find, and one that they have no part in.
@pytest.mark.parametrize(("name", "finds"), [("pauses-grow-for-ever", True), ("commit-without-bump", False)])
def test_a_test_that_finds_a_bug_is_named(name: str, finds: bool) -> None:
    path = "tests/client/test_deadline.py"
    assert (find_bugs.run_with(name, [path]) or "").startswith(f"{path}::test_") == finds


def test_a_bug_is_looked_for_where_its_module_is_tested() -> None:
    """First in the file of its name, then where its module is imported."""
    bug = BUGS["first-members-get-less"]
    assert find_bugs.near_tests(bug)[0] == "tests/client/test_assignors.py"
    assert "tests/client/test_rebalances.py" in find_bugs.near_tests(bug)
    assert find_bugs.own_tests_of(bug.module) == ["tests/client/test_assignors.py"]
    assert find_bugs.tests_of_its_room(bug)[0] == "tests/client"
    assert all(find_bugs.tests_of_its_room(bug) for bug in BUGS.values())
    assert all((ROOT / path.partition("::")[0]).exists() for path in sum(find_bugs.ROOMS.values(), ()))


def test_what_was_looked_for_is_among_them() -> None:
    assert set(FOUND) <= set(BUGS), "run scripts/find_bugs.py"


def what_is_wrong_with(record: dict[str, Any]) -> str:
    """What a record of what finds a bug lacks; nothing if the test that it names is there, or a seed found it."""
    if record["found"] is None:
        return "" if BUGS[record["name"]].masked else "nothing finds it"
    if not record.get("test"):
        return "" if record.get("seeds") else "neither a test nor a seed is named"
    if record["found"] != record["test"]:
        return "what found it is not the test that is named"
    path, _, function = record["test"].removesuffix(f" ({find_bugs.ENDLESS})").partition("::")
    if not (ROOT / path).is_file():
        return "there is no such file"
    if not function:
        return "" if find_bugs.ENDLESS in record["test"] else "no function is named"
    return "" if set(function.split("::")) <= named_in(path) else "there is no such test"


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the functions and classes in a file of tests."""
    return frozenset(node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name"))


def test_each_record_names_a_test_that_is_there() -> None:
    """A test that was renamed, or is gone, finds nothing any more: the bug is to be tried anew."""
    lacking = {name: what for name, record in FOUND.items() if (what := what_is_wrong_with(record))}
    assert lacking == {}, f"run scripts/find_bugs.py {' '.join(lacking)}"


@pytest.mark.parametrize(
    "test",
    [
        *("tests/client", "tests/client/test_group.py", "(it does not end)", "tests/no/test_such.py::test_it"),
        "tests/simulation/test_bugs.py::test_that_was_renamed",
    ],
)
def test_a_record_that_names_no_test_is_seen(test: str) -> None:
    assert what_is_wrong_with({"name": "window-of-one", "found": test, "test": test})


TEXT = """\
@ of-two
@ something else is done
@ fencepost.somewhere like KAFKA-1
 a = 1
-b = 2
+b = 3
"""


def test_it_is_read_as_it_is_written() -> None:
    (bug,) = read(TEXT)
    assert bug == Bug(
        "of-two", "something else is done", "fencepost.somewhere", [" a = 1", "-b = 2", "+b = 3"], "KAFKA-1"
    )
    assert bug.put_into("a = 1\nb = 2\nc = 4\n") == "a = 1\nb = 3\nc = 4\n"


def test_each_can_be_put_into_a_fresh_process() -> None:
    """Nothing that has one is imported by what puts them in."""
    program = "import sys; from fencepost.simulation.bugs import BUGS as all; "
    program += "print(*{bug.module for bug in all.values()} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert (
        tuple(dict.fromkeys(f"fencepost.protocol.{name.partition('.')[0]}" for name in files.SOURCES)) == bugs.COMPILED
    )
    assert bugs.FORCE_PURE == files.FORCE_PURE


def test_one_that_cannot_be_put_in_does_not_count_as_found() -> None:
    with pytest.raises(SystemExit, match="there is no such bug"):
        find_bugs.run_with("none-of-that-name", ["tests/simulation/test_bugs.py"])


def test_what_makes_up_for_a_bug_is_told() -> None:
    (bug,) = read(TEXT.replace(" a = 1\n", "@ masked: by what comes later\n a = 1\n"))
    assert (bug.masked, bug.changes[0], bug.what) == ("by what comes later", " a = 1", "something else is done")


@pytest.mark.parametrize("source", ["a = 1\n", "a = 1\nb = 2\na = 1\nb = 2\n", "  a = 1\n  b = 2\n"])
def test_lines_that_do_not_stand_there_once_are_refused(source: str) -> None:
    (bug,) = read(TEXT)
    with pytest.raises(BugUnusable, match="not once"):
        bug.put_into(source)
