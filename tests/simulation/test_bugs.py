"""Bugs on purpose: each changes lines that are there, once, and makes other code of them."""

from __future__ import annotations

import ast
import importlib.util

import pytest

from fencepost.simulation.bugs import BUGS, BugUnusable
from fencepost.simulation.bugs.bug import Bug, read


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    with open(spec.origin) as file:
        return file.read()


@pytest.mark.parametrize("name", BUGS)
def test_it_fits_into_the_code_as_that_is(name: str) -> None:
    bug = BUGS[name]
    source = source_of(bug.module)
    wrong = bug.put_into(source)
    assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(source))
    assert bug.what


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


@pytest.mark.parametrize("source", ["a = 1\n", "a = 1\nb = 2\na = 1\nb = 2\n", "  a = 1\n  b = 2\n"])
def test_lines_that_do_not_stand_there_once_are_refused(source: str) -> None:
    (bug,) = read(TEXT)
    with pytest.raises(BugUnusable, match="not once"):
        bug.put_into(source)
