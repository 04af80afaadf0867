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
        (["--tries", "0"], "--tries 0: it must be at least 1"),
        (["--first", "-1"], "--first -1: it must be 0 to 4611686018427387904"),
        (["--first", str(2**63)], "--first 9223372036854775808: it must be 0 to 4611686018427387904"),
        (["--for", "ever"], "--for ever: a time is a number and ms, s, m or h"),
        (["--bug", "everything"], "--bug everything: there is no such bug"),
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


#: In the place of Python: three seeds pass, the fourth is broken, does not end or ends in another way; as it is told.
STAND_IN = f"""#!{sys.executable}
import os, signal, sys, time
seed = int(sys.argv[sys.argv.index("--seed") + 1])
if "--shrink" in sys.argv:
    def interrupted(*_):
        print("the shortest plan so far")
        sys.exit(1)
    signal.signal(signal.SIGINT, interrupted)
    open(os.environ["SHRINKS"], "w").close()
    time.sleep(float(os.environ["TAKES"]))
    print("the shortest plan")
    sys.exit(1)
for each in range(seed, seed + 3):
    print(f"seed {{each}} 00")
if os.environ["FOURTH"] == "hangs":
    time.sleep(600)
if os.environ["FOURTH"] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
print("BROKEN: a promise")
print(f"seed {{seed + 3}} 00")
sys.exit(1)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made when a failure is being shrunk."""
    path, shrinks = tmp_path / "python", tmp_path / "shrinks"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setenv("SHRINKS", str(shrinks))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return shrinks


def a_soak(folder: Path, hours: str = "0.00001") -> soak.Soak:
    words = ["--first", "7", "--jobs", "1", "--folder", str(folder / "soak")]
    return soak.Soak(soak.options_of(["--hours", hours, *words]))


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("fourth", "says"), [("hangs", "BROKEN: the run has not ended after 5 s"), ("dies", "seed 9 00")]
)
def test_a_seed_that_does_not_come_to_its_end_is_named_and_not_the_first_of_those_before_it(
    fourth: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fourth == "hangs":  # else it may take what a busy machine takes
        monkeypatch.setattr(soak, "PATIENCE", 5)
    monkeypatch.setenv("FOURTH", fourth)
    assert a_soak(tmp_path).run() == 1
    (kept,) = (tmp_path / "soak" / "failures").iterdir()
    lines = kept.read_text().splitlines()
    assert (lines[0], lines[-2:]) == ("seed 10", [says, "again: fencepost simulate --seed 10 --for 3s"])
    assert load(tmp_path / "soak" / "state.json")[0].seeds == 3


def test_what_ctrl_c_or_its_time_leaves_of_shrinking_is_kept(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOURTH", "is broken")
    monkeypatch.setenv("TAKES", "600")
    monkeypatch.setattr(soak, "PATIENCE", 5)
    assert a_soak(tmp_path).run() == 1
    (kept,) = (tmp_path / "soak" / "failures").glob("test_seed_10.py")
    assert kept.read_text() == "the shortest plan so far\n"
    kept.unlink()
    stand_in.unlink()
    monkeypatch.setattr(soak, "PATIENCE", 600)
    interrupted = a_soak(tmp_path)
    turn = interrupted._turn

    def until_it_shrinks() -> None:
        turn()
        interrupted.is_interrupted = stand_in.exists()

    monkeypatch.setattr(interrupted, "_turn", until_it_shrinks)
    assert interrupted.run() == 130
    assert kept.read_text() == "the shortest plan so far\n"


@pytest.mark.usefixtures("stand_in")
def test_what_was_not_shrunk_is_shrunk_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKES", "0")
    failures = tmp_path / "soak" / "failures"
    failures.mkdir(parents=True)
    (failures / "seed_5.txt").write_text("seed 5\nBROKEN: a promise\nagain: fencepost simulate --seed 5 --for 1s\n")
    (failures / "seed_6.txt").write_text("seed 6\nkilled\nagain: fencepost simulate --seed 6 --for 1s\n")
    (failures / "seed_x.txt").write_text("mine")
    assert a_soak(tmp_path, "0").run() == 0
    assert [path.name for path in sorted(failures.glob("test_*"))] == ["test_seed_5.py"]


def test_two_at_once_do_not_use_one_folder(tmp_path: Path) -> None:
    first = a_soak(tmp_path)
    refused = soaked(tmp_path / "soak", "--hours", "0")
    assert refused.returncode == 2
    assert "another soak writes there" in refused.stderr and refused.stderr.count("\n") == 1
    del first
    assert soaked(tmp_path / "soak", "--hours", "0").returncode == 0
