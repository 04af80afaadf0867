"""Marks count what is entered while they are looked at, and leave nothing behind."""

from __future__ import annotations

from fencepost.log.partition import Partition
from fencepost.simulation.drawn_runs import simulate
from fencepost.simulation.reach import MARKS, Mark, counted


def test_what_is_entered_is_counted_and_what_is_not_is_named() -> None:
    marks = (
        Mark("appends", "fencepost.log.partition:Partition.append"),
        Mark("never", "fencepost.log.partition:Partition.append", lambda _, __: False),
    )
    with counted(marks) as reached:
        simulate(1, 0.2)
    assert reached["appends"] > 0
    assert reached["never"] == 0


def test_the_code_is_as_it_was_afterwards() -> None:
    former = Partition.roll
    with counted():
        assert Partition.roll is not former
    assert Partition.roll is former


def test_each_mark_has_a_name_of_its_own() -> None:
    assert len({mark.what for mark in MARKS}) == len(MARKS)
