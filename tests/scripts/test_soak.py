"""`make soak` keeps every failure, goes on where it was ended, and is misled by no file that it finds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripts.soak import Totals, load, save
from tests.processes import begun

from scripts import soak

SOAK = [sys.executable, "-m", "scripts.soak", "--for", "50ms", "--jobs", "1"]


def soaked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SOAK, "--folder", str(folder), *words], capture_output=True, text=True, check=False)


def test_a_failure_is_kept_with_what_repeats_it_and_shrunk(tmp_path: Path) -> None:
    how = ["--hours", "0.00001", "--first", "0", "--bug", "end-txn-too-early", "--tries", "5"]
    found = soaked(tmp_path, *how)
    assert found.returncode == 1, found.stderr
    (kept,) = (tmp_path / "failures").glob("seed_*.txt")
    seed = int(kept.stem.removeprefix("seed_"))
    simulate = ["fencepost", "simulate", "--for", "50ms", "--bug", "end-txn-too-early", "--seed", str(seed), "--quiet"]
    repeated = subprocess.run([sys.executable, "-m", *simulate], capture_output=True, text=True, check=False)
    assert repeated.returncode == 1
    assert repeated.stdout.splitlines()[0] == kept.read_text().splitlines()[1], "it is this seed, and no other"
    lines = kept.read_text().splitlines()
    assert lines[0] == f"seed {seed}"
    assert lines[1].startswith("BROKEN: ")
    assert lines[-1] == f"again: fencepost simulate --seed {seed} --for 50ms --bug end-txn-too-early"
    assert "assert carry_out(PLAN).faults == []" in (tmp_path / "failures" / f"test_seed_{seed}.py").read_text()
    assert load(tmp_path / "state.json")[0].failures == 1
    again = soaked(tmp_path, "--hours", "0")
    assert again.returncode == 0, "nothing was found this time"
    assert "all times: " in again.stderr and "1 failures" in again.stderr
    assert kept.exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once_and_loses_nothing(how: signal.Signals, tmp_path: Path) -> None:
    words = [*SOAK, "--folder", str(tmp_path), "--hours", "1", "--for", "10m"]
    running = begun(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
    assert running.stderr is not None
    assert "seeds from" in running.stderr.readline()
    running.send_signal(how)
    rest = running.stderr.read()
    assert running.wait(30) == 130
    assert "interrupted" in rest
    assert load(tmp_path / "state.json")[1] == ""


def test_no_seed_comes_twice_whatever_becomes_of_the_state(tmp_path: Path) -> None:
    firsts = set()
    for content in ("", "", '{"format": "another"}', None):
        if content is not None:
            (tmp_path / "state.json").write_text(content)
        told = soaked(tmp_path, "--hours", "0").stderr
        firsts.add(told.partition("seeds from ")[2].split()[0])
    assert len(firsts) == 4


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"format": "fencepost-soak", "version": 2}',
        b'{"format": "fencepost-soak", "version": 1, "seeds": "many", "seconds": 0, "failures": 0}',
    ],
)
def test_a_damaged_state_is_put_aside_and_said(content: bytes, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_bytes(content)
    totals, said = load(state)
    assert totals == Totals()
    assert said.endswith("the totals begin at 0, failures are kept")
    assert (tmp_path / "state.damaged").read_bytes() == content
    assert load(state) == (Totals(), ""), "it is not there any more"


def test_a_state_is_read_as_it_was_written_and_no_part_of_it_is_taken_for_it(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    totals = Totals(1234, 56.5, 7)
    save(state, totals)
    assert load(state) == (totals, "")
    whole = state.read_bytes()
    for size in range(len(whole) - 1):
        state.write_bytes(whole[:size])
        assert load(state)[0] == Totals()
    save(state, totals)
    assert json.loads(state.read_text())["seeds"] == 1234


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--hours", "-1"], "--hours -1: it must be 0 to 10000"),
        (["--hours", "nan"], "--hours nan: it must be 0 to 10000"),
        (["--jobs", "0"], "--jobs 0: it must be at least 1"),
    ],
)
def test_what_cannot_be_used_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        soak.options_of(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = soaked(tmp_path / "file", "--hours", "0")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and "cannot be written" in refused.stderr


def test_a_run_that_does_not_end_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "PATIENCE", 0.2)
    begun = time.monotonic()
    options = soak.options_of(["--hours", "0.00001", "--for", "10h", "--jobs", "1", "--folder", str(tmp_path)])
    assert soak.Soak(options).run() == 1
    assert time.monotonic() - begun < 30
    (kept,) = (tmp_path / "failures").iterdir()
    assert "has not ended after 0.2 s" in kept.read_text()
