"""Long work of a request goes on as if nobody were let in between, and ends whole wherever its client or node does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.network.limits import A_FEW_AT_A_TIME
from fencepost.broker.network.pacing import HandlerSteps, begin, in_steps
from fencepost.protocol.messages import HeartbeatRequest, ListGroupsRequest
from fencepost.simulation.loop import VirtualLoop, run

SMALL: Any = HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
LARGE: Any = ListGroupsRequest()
KINDS = ("pause", "work", "failing work", "wait", "failing wait")


class Failed(Exception):
    pass


def fail() -> None:
    raise Failed


async def late(number: int) -> int:
    await asyncio.sleep(0.01)
    return number


async def fails_late() -> None:
    await asyncio.sleep(0.01)
    fail()


def asked(kind: str, number: int) -> Callable[[], Any] | Awaitable[Any] | None:
    return {
        "pause": lambda: None,
        "work": lambda: lambda: number,
        "failing work": lambda: fail,
        "wait": lambda: late(number),
        "failing wait": fails_late,
    }[kind]()


def told(kind: str, number: int) -> Any:
    return "failed" if kind.startswith("failing") else None if kind == "pause" else number


class Stand:
    """In place of a node: lets others go first, and has places for those whose answers may be large."""

    def __init__(self) -> None:
        self.slices = self.answer_memory = self
        self.log: list[str] = []
        self.is_stopping = False

    async def pause(self) -> None:
        self.log.append("others")
        if self.is_stopping:
            raise asyncio.CancelledError

    async def place(self) -> None:
        self.log.append("place")

    def leave(self, _: object) -> None:
        self.log.append("left")


def work(kinds: list[str], ended: list[str], *, catches: bool = True) -> HandlerSteps[Any]:
    """What each step was told."""
    found = []
    try:
        for number, kind in enumerate(kinds):
            try:
                found.append((yield asked(kind, number)))
            except Failed:
                if not catches:
                    raise
                found.append("failed")
    finally:
        ended.append("ended")
    return found


async def answered(stand: Stand, kinds: list[str], request: Any, ended: list[str], *, catches: bool = True) -> Any:
    handler: Any = in_steps(cast(Any, lambda *_: work(kinds, ended, catches=catches)))
    reply = handler(request, None, stand)
    return await reply if kinds else reply


@given(st.lists(st.sampled_from(KINDS), max_size=6), st.booleans())
def test_every_step_is_told_what_it_asked_for(kinds: list[str], is_large: bool) -> None:
    stand, ended = Stand(), list[str]()
    request = LARGE if is_large else SMALL
    assert LARGE.__schema__.api in A_FEW_AT_A_TIME and SMALL.__schema__.api not in A_FEW_AT_A_TIME

    async def main(_: VirtualLoop) -> Any:
        return await answered(stand, kinds, request, ended)

    assert run(main) == [told(kind, number) for number, kind in enumerate(kinds)]
    assert ended == ["ended"]
    at_work = [kind for kind in kinds if "wait" not in kind]
    assert stand.log.count("others") == len([kind for kind in at_work if not kind.startswith("failing")])
    places = ["left" if "wait" in kind else "place" for kind in kinds] if is_large else []
    assert [each for each in stand.log if each != "others"] == places


@pytest.mark.parametrize("kind", ["work", "failing work"])
def test_what_no_thread_can_be_started_for_is_done_here(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand, ended = Stand(), list[str]()

    async def main(loop: VirtualLoop) -> Any:
        monkeypatch.setattr(loop, "run_in_executor", Mock(side_effect=RuntimeError("can't start new thread")))
        return await answered(stand, [kind, "pause"], SMALL, ended)

    assert run(main) == [told(kind, 0), None]
    assert (stand.log[0], ended) == ("others", ["ended"])


@pytest.mark.parametrize("kind", ["failing work", "failing wait"])
def test_what_is_not_caught_ends_the_request_and_nothing_else(kind: str) -> None:
    stand, ended = Stand(), list[str]()

    async def main(_: VirtualLoop) -> None:
        with pytest.raises(Failed):
            await answered(stand, ["pause", kind, "pause"], SMALL, ended, catches=False)

    run(main)
    assert ended == ["ended"]


@pytest.mark.parametrize("kind", ["pause", "wait"])
def test_of_a_request_whose_connection_ends_nothing_is_left_open(kind: str) -> None:
    ended: list[str] = []

    async def main(_: VirtualLoop) -> None:
        steps = work(["pause", kind, "wait"], ended)  # held, as a traceback may
        handler: Any = in_steps(cast(Any, lambda *_: steps))
        task = asyncio.ensure_future(handler(SMALL, None, Stand()))
        for _turn in range(2):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["ended"]

    run(main)


def test_when_the_node_stops_the_rest_is_not_done() -> None:
    stand, ended = Stand(), list[str]()
    stand.is_stopping = True

    async def main(_: VirtualLoop) -> None:
        with pytest.raises(asyncio.CancelledError):
            await answered(stand, ["work", "wait"], SMALL, ended)

    run(main)
    assert ended == ["ended"]


@pytest.mark.parametrize("kinds", [[], ["pause"], ["pause", "work"]])
def test_who_is_interrupted_is_told_before_others_go_first_and_not_where_there_is_no_rest(kinds: list[str]) -> None:
    stand, ended = Stand(), list[str]()

    async def main(_: VirtualLoop) -> None:
        interrupted = partial(stand.log.append, "interrupted")
        reply: Any = begin(work(kinds, ended), cast(Any, stand), interrupted=interrupted)
        assert stand.log == (["interrupted"] if kinds else [])
        assert (await reply if kinds else reply) == [told(kind, number) for number, kind in enumerate(kinds)]

    run(main)
