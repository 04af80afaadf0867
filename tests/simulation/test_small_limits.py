"""Limits that a run makes small are small in every place that has them, and what they were afterwards."""

from __future__ import annotations

import importlib
from random import Random

import pytest

from fencepost.log.producer_state import WINDOW
from fencepost.simulation import plans
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.small_limits import LIMITS, draw, lowered
from fencepost.simulation.surroundings import TOPICS
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.world import World


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


def test_there_are_sequences_enough_to_tell_a_batch_from_those_that_are_remembered() -> None:
    """Of a producer whose sequences go on over all that it sends; else what was acknowledged is rightly not there."""
    drawn = [plans.draw(seed) for seed in range(2000)]
    goes_on = [each for each in drawn if each.idempotent and each.load.batch_bytes > 1000]
    for each in goes_on:
        assert each.limits.get("largest sequence", 10**9) >= WINDOW * each.load.most_records
    assert {each.limits.get("largest sequence") for each in goes_on} == {None, 31, 63, 255}
    assert carry_out(plans.plan_of(219, 3)).faults == []


def test_every_log_has_the_settings_of_the_run() -> None:
    """Those of its topic are put in place when it is made, and again when it is opened."""
    given = Circumstances(
        log={"segment_bytes": 1234}, topic_settings={"retention.bytes": "3000"}, troubles=(Trouble.KILLED,), between=0.3
    )
    found: list[tuple[int, set[tuple[int, int]]]] = []

    def look(world: World) -> None:
        if world.storage is not None:
            logs = [each.settings for each in world.storage.partitions() if each.topic in TOPICS]
            found.append((len(logs), {(each.segment_bytes, each.retention_bytes) for each in logs}))
        world.loop.call_later(0.1, look, world)

    report = carry_out(
        Plan(1, 1, given, {"producer-0": Window()}), lambda world: world.loop.call_later(0.1, look, world)
    )
    assert (report.faults, "broker killed" in " ".join(report.history)) == ([], True)
    assert len(found) > 5
    assert found == [(5, {(1234, 3000)})] * len(found)
