"""`fencepost history`: what was saved of a run is told or shown; anything else is refused in one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.cli import main

SEED = ["simulate", "--seed", "5", "--for", "60ms"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "history.jsonl"
    assert main([*SEED, "--quiet", "--history", str(path)]) == 0
    return path


def test_a_saved_history_is_told_line_by_line(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = signal.getsignal(signal.SIGPIPE)
    assert main(["history", str(saved)]) == 0
    assert signal.getsignal(signal.SIGPIPE) == former
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(saved.read_text().splitlines()) - 2
    assert lines[0] == "0.000000 run            seed 5: fencepost simulate --seed 5 --for 60ms"
    assert any("transactional_id=producer-0 nothing -> Empty" in line for line in lines)


def test_it_can_be_told_of_one_thing_only(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(saved), "--about", "#2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines[:2]] == ["Metadata #2", "Metadata #2 arrives"]


@pytest.mark.parametrize("word", ["producer-99", "producer-"])
def test_a_word_that_is_in_no_line_is_named(word: str, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(saved), "--about", word]) == 2
    printed, refused = capsys.readouterr()
    assert printed == "" and f"--about {word}: " in refused and len(refused.splitlines()) == 1


def test_whoever_reads_may_have_enough_of_it(saved: Path) -> None:
    command = f"{sys.executable} -m fencepost history {saved} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_the_page_of_a_saved_history_is_that_of_its_run(saved: Path, tmp_path: Path) -> None:
    assert main(["history", str(saved), "--page", str(tmp_path / "one.html")]) == 0
    assert main([*SEED, "--quiet", "--page", str(tmp_path / "two.html")]) == 0
    assert (tmp_path / "one.html").read_text() == (tmp_path / "two.html").read_text()


def test_a_file_is_whole_or_as_it_was(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(saved.read_bytes()[:-3])
    assert main(["history", str(damaged), "--page", str(page)]) == 2
    assert "it is damaged, or cut off" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert main(["history", str(saved), "--page", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "it cannot be read: No such file or directory"),
        (b"", "line 1: the file is empty"),
        (b"\xff\xfe\0", "line 1: this is no history of a simulation"),
        (b'{"format":"fencepost-history","version":9}\n', "line 1: the history has the format version 9"),
        (b'{"format":"fencepost-history","version":1}\n', "line 1: the history has no end"),
    ],
)
def test_what_is_no_history_is_refused_in_a_sentence(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main(["history", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"fencepost history: {path}: {says}")
    assert told.count("\n") == 1


def test_a_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(tmp_path)]) == 2
    assert "it cannot be read: Is a directory" in capsys.readouterr().err


def test_a_full_disk_is_said_in_a_sentence(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full to write to")
    assert main(["history", str(saved), "--page", "/dev/full"]) == 2
    assert "--page /dev/full: it cannot be written: No space left on device" in capsys.readouterr().err


def test_the_same_seed_saves_the_same_bytes_in_every_process(saved: Path, tmp_path: Path) -> None:
    """Sets and hashes are in another order in every process; nothing may follow them."""
    for hashes in ("1", "2"):
        path = tmp_path / hashes
        program = [sys.executable, "-m", "fencepost", *SEED, "--history", str(path)]
        done = subprocess.run(program, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, check=True)
        assert path.read_bytes() == saved.read_bytes()
        assert f'"sha256":"{done.stdout.decode().split()[-1]}"' in path.read_text(), (
            "the digest is the one that was told"
        )


def test_one_file_is_not_written_over_by_the_other(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, link = saved.read_bytes(), tmp_path / "link.html"
    link.symlink_to(saved)
    for page in (saved, link):
        assert main(["history", str(saved), "--page", str(page)]) == 2
        assert "it is the history itself; name another file" in capsys.readouterr().err
    assert saved.read_bytes() == before
    both = str(tmp_path / "both")
    assert main([*SEED, "--history", both, "--page", both]) == 2
    assert "it is the file of --history, too" in capsys.readouterr().err
