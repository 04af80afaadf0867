"""What tests start ends with them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import begun, end_all
from tests.source_trees import tree_of

TESTS = Path(__file__).parent
#: They end theirs by themselves, in a `finally`; most of them live longer than one test.
BY_THEMSELVES = {
    "compare/stock_clients/test_flink.py",
    "compare/stock_clients/test_java_changing_levels.py",
    "compare/stock_clients/test_kafka_streams.py",
    "compare/nodes/two_nodes.py",
    "crash/ledger_workers.py",
    "preloaded.py",
    "simulation/test_real_runs.py",
    "spark/chaos.py",
    "spark/standalone.py",
    "test_readme.py",
}


@pytest.mark.parametrize("it_is", ["alive", "dead", "read to its end"])
def test_what_is_left_is_ended(it_is: str) -> None:
    program = "input()" if it_is == "alive" else "print('done')"
    process = begun(subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    if it_is == "dead":
        process.wait()
    elif it_is == "read to its end":
        process.communicate()
    end_all()
    assert process.returncode == (-9 if it_is == "alive" else 0)
    assert process.stdout is not None and process.stdout.closed


def loose(tree: ast.AST) -> bool:
    """Whether a process is started and not handed to `begun`."""
    started = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func) == "begun"]
    kept = {id(argument) for each in started for argument in each.args}
    return any(
        isinstance(each, ast.Call) and ast.unparse(each.func).endswith("Popen") and id(each) not in kept
        for each in ast.walk(tree)
    )


@pytest.mark.parametrize(
    ("code", "is_loose"),
    [("begun(subprocess.Popen(a))", False), ("x = Popen(a)", True), ("f(begun(b), Popen(a))", True)],
)
def test_a_loose_process_is_seen(code: str, is_loose: bool) -> None:
    assert loose(ast.parse(code)) == is_loose


def test_every_process_of_a_test_ends_with_it() -> None:
    found = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if loose(tree_of(path))}
    assert found == BY_THEMSELVES
