"""The temporary file: what is written is read, space comes back, and a disk that fails loses nothing."""

from __future__ import annotations

import os
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.commit_order.reading import Disk

from fencepost.client.commit_order import spill_file
from fencepost.client.commit_order.spill_file import BLOCK, Blocks, Spilled, SpillFile, temporary_file
from fencepost.client.errors import SpillError

SIZES = st.sampled_from([0, 1, 12, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]) | st.integers(0, 2 * BLOCK)


@given(st.lists(st.integers(0, 20), max_size=80))
def test_a_block_has_one_owner_and_the_end_is_behind_the_last_one(choices: list[int]) -> None:
    blocks, held = Blocks(), list[int]()
    for choice in choices:
        if choice >= len(held):
            number = blocks.take()
            assert number not in held and number == min(set(range(len(held) + 1)) - set(held))
            held.append(number)
        else:
            blocks.give_back(held.pop(choice))
        assert blocks.end == max(held, default=-1) + 1


@given(
    st.lists(st.tuples(st.sampled_from(["append", "append", "take", "drop"]), st.integers(0, 2), SIZES), max_size=30),
    st.lists(st.sampled_from(["well", "well", "well", "short", "failed"]), max_size=30),
)
def test_what_several_write_in_turns_each_reads_in_order(steps: list[tuple[str, int, int]], fates: list[str]) -> None:
    disk = Disk(iter(fates))
    file, spilled = SpillFile(disk.open), [Spilled() for _ in range(3)]
    model = [b""] * 3
    for number, (what, which, size) in enumerate(steps):
        if what == "append":
            data = bytes([number % 251 + 1]) * size
            try:
                file.append(spilled[which], data)
            except SpillError:
                continue  # everything is as it was
            model[which] += data
        elif what == "take" and model[which]:
            size = min(size, len(model[which]))
            try:
                assert file.take(spilled[which], size) == model[which][:size]
            except SpillError:
                file.drop(spilled[which])
                model[which] = b""
            model[which] = model[which][size:]
        elif what == "drop":
            file.drop(spilled[which])
            model[which] = b""
        assert [each.size for each in spilled] == [len(each) for each in model]
        assert all(len(each.blocks) <= each.size // BLOCK + 2 for each in spilled)
    disk.fate = repeat("well")
    for each, expected in zip(spilled, model, strict=True):
        assert not expected or file.take(each, len(expected)) == expected
    assert file.blocks.end == 0 and all(each.seek(0, 2) == 0 for each in disk.files)
    file.close()


def test_a_full_disk_is_named_with_what_to_do() -> None:
    file = SpillFile(Disk(iter(["well", "failed"])).open)
    spilled = Spilled()
    file.append(spilled, b"first")
    with pytest.raises(SpillError, match=r"it fails.*Nothing is lost: make room.*spill_directory"):
        file.append(spilled, b"second")
    assert spilled.size == 5
    file.append(spilled, b"second")
    assert file.take(spilled, 11) == b"firstsecond"


def test_a_file_that_was_cut_is_named_and_not_waited_for() -> None:
    disk = Disk(chain(repeat("well", 5), repeat("failed")))
    file, spilled = SpillFile(disk.open), Spilled()
    file.append(spilled, b"what was there")
    disk.files[0].truncate(4)
    with pytest.raises(SpillError, match="it is shorter than what was written to it"):
        file.take(spilled, 14)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = SpillFile(lambda: temporary_file(str(tmp_path / "gone")))
    with pytest.raises(SpillError, match=r"No such file or directory: .*/gone"):
        file.append(Spilled(), b"data")
    file.close()


def test_no_name_is_left_in_the_directory_while_it_is_used_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    """So nothing is left behind by whatever end the process takes."""
    file = temporary_file(str(tmp_path))
    file.write(b"data")
    assert os.listdir(tmp_path) == []
    assert os.fstat(file.fileno()).st_mode & 0o077 == 0  # type: ignore[attr-defined]
    file.close()
    file.close()


def test_many_small_pieces_take_no_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_file, "BLOCK", 64)
    file, spilled = SpillFile(Disk(repeat("well")).open), Spilled()
    for number in range(2000):
        file.append(spilled, b"%07d" % number)
    assert file.blocks.end == -(-7 * 2000 // 64)
    for number in range(2000):
        assert file.take(spilled, 7) == b"%07d" % number
        assert len(spilled.blocks) <= -(-spilled.size // 64) + 1, "what was read takes no room"
    assert file.blocks.end == 0
    file.close()
