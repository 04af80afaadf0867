"""What one call that hands over many records is told of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencepost.client.together import Together
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import run

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def on_virtual_time(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(lambda _: scenario())


def test_offsets_are_told_in_runs_without_those_that_others_wrote_in_between() -> None:
    async def scenario() -> None:
        together = Together()
        for at, base_offset, count in ((AT, 0, 2), (OTHER, 7, 1), (AT, 2, 1), (AT, 5, 1), (AT, 6, 3)):
            together.one_more()
            together.written(at, base_offset, count)
        assert not together.result.done(), "more may be handed over"
        together.one_less()
        assert await together.result == (8, {AT: [range(3), range(5, 9)], OTHER: [range(7, 8)]})

    on_virtual_time(scenario)


def test_records_whose_place_is_not_told_count_and_have_no_offsets() -> None:
    async def scenario() -> None:
        together = Together()
        together.one_more()
        together.written(AT, -1, 4)
        together.one_less()
        assert await together.result == (4, {})

    on_virtual_time(scenario)


def test_the_first_of_several_errors_is_told_when_all_are_answered() -> None:
    async def scenario() -> None:
        together = Together()
        for error in (LookupError("first"), ZeroDivisionError("second")):
            together.one_more()
            together.failed(error, reported=False)
        together.one_more()
        together.one_less()
        assert not together.result.done()
        together.written(AT, 0, 1)
        with pytest.raises(LookupError, match="first"):
            await together.result

    on_virtual_time(scenario)


@pytest.mark.parametrize("reported", [[True, False], [False, True], [False, False]])
def test_an_error_that_its_caller_hears_of_elsewhere_need_not_be_asked_for(reported: list[bool]) -> None:
    async def scenario() -> None:
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        together = Together()
        for each in reported:
            together.one_more()
            together.failed(LookupError(), reported=each)
        together.one_less()
        del together
        gc.collect()
        assert bool(said) == (not any(reported))

    on_virtual_time(scenario)
