"""Ours are 20 digits and a suffix; whatever else is somebody's."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fencepost.log.file_names import numbered, numbered_path


@given(st.integers(0, 10**20 - 1), st.sampled_from([".log", ".index", ".log.deleted"]))
def test_a_number_with_a_suffix_is_ours(number: int, suffix: str) -> None:
    name = f"{number:020d}{suffix}"
    assert numbered([name], ".log", ".index", ".log.deleted") == [(name, number)]
    assert numbered([name], ".snapshot") == []


@given(st.text(st.sampled_from("01 _-+.٣logx"), max_size=30))
def test_anything_else_is_not(name: str) -> None:
    ours = len(name) == 24 and name.endswith(".log") and all(digit in "0123456789" for digit in name[:20])
    assert bool(numbered([name], ".log")) is ours


@given(st.integers(0, 10**20 - 1), st.sampled_from([".log", ".index", ".log.cleaned"]))
def test_the_path_of_a_number_is_that_of_its_file_in_the_directory_that_is_meant(number: int, suffix: str) -> None:
    for directory in (Path("/data/t-0"), Path("/data/t-1"), Path("/data/t-0")):
        path = numbered_path(directory, number, suffix)
        assert str(path) == f"{directory}/{number:020d}{suffix}"
        assert numbered([path.name], suffix) == [(path.name, number)]
