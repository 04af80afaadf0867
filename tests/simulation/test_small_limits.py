"""Limits that a run makes small are small in every place that has them, and what they were afterwards."""

from __future__ import annotations

import importlib
from random import Random

import pytest

from fencepost.simulation.small_limits import LIMITS, draw, lowered


@pytest.mark.parametrize("what", LIMITS)
def test_it_is_small_everywhere_and_then_as_before(what: str) -> None:
    limit = LIMITS[what]
    modules = [importlib.import_module(path) for path in limit.modules]
    former = [getattr(module, limit.name) for module in modules]
    assert len(set(former)) == 1
    with lowered({what: limit.drawn_from[0]}):
        assert {getattr(module, limit.name) for module in modules} == {limit.drawn_from[0]}
    assert [getattr(module, limit.name) for module in modules] == former


def test_it_is_as_before_after_an_error_too() -> None:
    module = importlib.import_module("fencepost.protocol.batch")
    former = module.MAX_INT32
    with pytest.raises(ZeroDivisionError), lowered({"largest sequence": 31}):
        raise ZeroDivisionError
    assert former == module.MAX_INT32


def test_each_of_its_numbers_is_drawn() -> None:
    drawn = {(what, number) for seed in range(200) for what, number in draw(Random(seed)).items()}
    assert drawn == {(what, number) for what, limit in LIMITS.items() for number in limit.drawn_from}
