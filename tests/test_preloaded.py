"""Processes that are forked from one that is ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.preloaded import preloaded

HERE = "tests.test_preloaded"


def speak(arguments: list[str]) -> int:
    print(os.getppid(), *arguments)
    print("something else", file=sys.stderr)
    return 3


def fail(arguments: list[str]) -> int:
    raise ValueError(*arguments)


def leave(arguments: list[str]) -> int:
    sys.exit(int(arguments[0]))


def live(_: list[str]) -> int:
    print("alive", flush=True)
    time.sleep(600)
    return 0


def test_it_says_what_it_says_and_ends_with_what_it_returns(tmp_path: Path) -> None:
    first, second = (preloaded(f"{HERE}.speak", [word], tmp_path / "said") for word in ("one", "two"))
    assert [second.wait(), first.wait()] == [3, 3]
    (parent, word), (other, another) = first.stdout.read().split(), second.stdout.read().split()
    assert (word, another) == ("one", "two")
    assert parent == other != str(os.getpid()), "the same one for all"
    assert (tmp_path / "said").read_text() == "something else\n" * 2


def test_what_fails_says_how_and_what_leaves_leaves(tmp_path: Path) -> None:
    assert preloaded(f"{HERE}.fail", ["for a reason"], tmp_path / "said").wait() == 1
    assert (tmp_path / "said").read_text().endswith("ValueError: for a reason\n")
    assert preloaded(f"{HERE}.leave", ["130"]).wait() == 130


def test_it_is_killed_once_and_what_is_sent_to_it_later_reaches_nobody() -> None:
    process = preloaded(f"{HERE}.live", [])
    assert process.stdout.readline() == "alive\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait() == process.returncode == process.wait(0) == -signal.SIGKILL
    process.kill()
    assert process.stdout.read() == ""


def test_all_end_with_the_process_that_asked_for_them() -> None:
    program = f"from tests.preloaded import preloaded; print(preloaded('{HERE}.live', []).stdout.readline())"
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), "and standard output is closed by all who had it"
