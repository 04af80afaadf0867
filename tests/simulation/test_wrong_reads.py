"""A disk that gives flipped bits or too little: readers are told of an error, and shown only what was written."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fencepost.client import records
from fencepost.log import damage
from fencepost.simulation.cast import Window
from fencepost.simulation.disk_faults import FaultyDisk, Wrong
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan, plan_of
from fencepost.simulation.reach import Mark, counted
from fencepost.simulation.troubles import Trouble

WRONG = Plan(
    1,
    3,
    Circumstances(log={"segment_bytes": 10_000}, troubles=(Trouble.READS_ARE_WRONG,), between=0.05),
    {"producer-0": Window(), "producer-1": Window(), "single-0": Window(), "reader-0": Window(), "reader-1": Window()},
)


@pytest.mark.parametrize("how", Wrong)
def test_some_reads_of_the_file_are_wrong_until_it_is_healed(how: Wrong) -> None:
    disk, path, written = FaultyDisk(Random(1)), Path("/data/a.log"), bytes(range(100))
    disk.make_directory(path.parent)
    file = disk.open(path)
    file.pwrite(written, 0)
    disk.give_wrong(path, how, Random(1))
    given = [file.pread(100, 0) for _ in range(100)]
    wrong = [each for each in given if each != written]
    assert 20 < len(wrong) < 80
    for each in wrong:
        flipped = sum((a ^ b).bit_count() for a, b in zip(each, written, strict=False))
        assert (len(each), flipped) == (100, 1) if how is Wrong.FLIPPED else (len(each) < 100 and not flipped)
    with disk.spared():
        assert [file.pread(100, 0) for _ in range(20)] == [written] * 20
    disk.heal()
    assert [file.pread(100, 0) for _ in range(20)] == [written] * 20


def test_nobody_is_shown_what_was_not_written() -> None:
    with counted([Mark("damaged", f"{damage.__name__}:DamageNotes.say")]) as reached:
        report = carry_out(WRONG)
    assert report.faults == []
    assert reached["damaged"] > 0


def test_progress_is_there_though_its_segment_was_left_as_damaged() -> None:
    """It would be compacted then, and what was written first be missed."""
    troubles = [Trouble.READS_ARE_WRONG] * 2 + [Trouble.A_FILE_FAILS, Trouble.KILLED, Trouble.HANGING_LOOKED_FOR]
    assert carry_out(plan_of(30111, 2, troubles)).faults == []


def test_a_client_that_believes_what_it_is_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node sends batches on as its disk gives them: the CRC is looked at by who reads them."""
    monkeypatch.setattr(records, "crc_matches", lambda *_: True)
    assert carry_out(WRONG).faults != []
