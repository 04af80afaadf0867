"""What an earlier run left goes, but never from under a broker that somebody has started on it since."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo.__main__ import Day
from demo.node import empty

from fencepost.broker import running_broker


def test_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for _ in range(2):
        empty(folder, folder / "data")
        assert list(folder.iterdir()) == []
        with running_broker(data=folder / "data"):
            pass
        assert (folder / "data" / ".lock").exists()


def test_a_broker_that_runs_on_it_keeps_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with running_broker(data=folder / "data"):
        before = sorted(folder.rglob("*"))
        with pytest.raises(SystemExit, match="a broker runs on"):
            empty(folder, folder / "data")
        assert sorted(folder.rglob("*")) == before


def test_a_cluster_that_is_none_is_told_in_a_sentence() -> None:
    with pytest.raises(SystemExit, match=r"no topics can be made on localhost: .* it must be host:port"):
        Day("localhost", 1).run()
