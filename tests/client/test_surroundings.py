"""Every call of every client after its end, in a forked child, cancelled, and from two tasks at once: a sentence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.test_falling_silent import ADMIN, CASES, CONSUMER, PRODUCER, Case, made
from tests.client.test_producer import simulate

from fencepost.client import (
    Admin,
    ClientError,
    ClosedError,
    Consumer,
    MisuseError,
    Producer,
    TopicPartition,
    TransactionAbortableError,
    home,
)
from fencepost.simulation.world import World

AT = TopicPartition("t", 0)
ALL = [pytest.param(kind, call, id=f"{kind.__name__}.{call}") for kind, cases in CASES.items() for call in cases]
#: What there is to end may be ended twice, and of what was sent nothing is left.
MAY_BE_CALLED_WHEN_CLOSED = {"close", "flush"}
SENTENCE = re.compile(r"\w+ \w+ \w+")


async def begun(kind: type[Any], call: str, world: World) -> tuple[Any, Case]:
    client, case = made(kind, call, world), CASES[kind][call]
    if case.before is not None:
        await case.before(client)
    elif kind is Producer:
        await client.start()
    return client, case


async def end(client: Any) -> None:
    await (getattr(client, "abandon", None) or client.close)()


async def works(client: Any) -> None:
    """What it is for, whatever was called before."""
    if isinstance(client, Producer):
        if client.transactional_id is None:
            await client.send_and_wait("t", b"good", partition=1)
        elif client.is_initialized:
            for end_it in (client.commit_transaction, client.abort_transaction):  # whichever has begun is asked again
                await until_it_works(end_it, MisuseError, TransactionAbortableError)
            async with client.transaction():
                await client.send("t", b"good", partition=1)
    elif isinstance(client, Consumer):
        assert AT in await client.end_offsets([AT])
    else:
        await client.topics()


async def until_it_works(call: Callable[[], Awaitable[object]], *passes: type[BaseException]) -> None:
    for _ in range(10):
        try:
            await call()
        except passes:
            return
        except ClientError:
            continue
        return
    raise AssertionError("it never works again")


@pytest.mark.parametrize(("kind", "call"), ALL)
def test_it_is_refused_after_close(kind: type[Any], call: str) -> None:
    async def scenario(world: World) -> None:
        client, case = await begun(kind, call, world)
        await client.close()
        await client.close()
        if call in MAY_BE_CALLED_WHEN_CLOSED:
            await case.call(client)
            return
        with pytest.raises(ClosedError, match="is closed: make a new one"):
            await case.call(client)

    simulate(scenario)


@pytest.mark.parametrize(("kind", "call"), ALL)
def test_it_is_refused_in_a_forked_child(kind: type[Any], call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the child sees it: nothing of its parent's is touched, also where it closes."""

    async def scenario(world: World) -> None:
        client, case = await begun(kind, call, world)
        with monkeypatch.context() as patch:
            patch.setattr(home, "_forks", home._forks + 1)
            if call == "close":
                await case.call(client)
                return
            with pytest.raises(MisuseError, match="make a new one in the child"):
                await case.call(client)
        await works(client)
        await client.close()

    simulate(scenario)


@pytest.mark.parametrize(("kind", "call"), ALL)
def test_of_two_at_once_each_ends_or_is_told_a_sentence_and_the_next_call_works(kind: type[Any], call: str) -> None:
    async def scenario(world: World) -> None:
        client, case = await begun(kind, call, world)
        ends = await asyncio.gather(case.call(client), case.call(client), return_exceptions=True)
        for found in ends:
            if isinstance(found, BaseException):
                assert isinstance(found, ClientError), repr(found)
                assert SENTENCE.search(str(found))
        if call != "close":
            await works(client)
        await end(client)

    simulate(scenario)


@pytest.mark.parametrize("turns", [0, 2, 8, 50])
@pytest.mark.parametrize(("kind", "call"), ALL)
def test_the_next_call_works_after_one_that_was_cancelled(kind: type[Any], call: str, turns: int) -> None:
    async def scenario(world: World) -> None:
        client, case = await begun(kind, call, world)
        calling = asyncio.ensure_future(case.call(client))
        for _ in range(turns):
            await asyncio.sleep(0 if turns < 10 else 0.001)
        calling.cancel()
        ended = (await asyncio.gather(calling, return_exceptions=True))[0]
        assert not isinstance(ended, Exception) or isinstance(ended, ClientError), repr(ended)
        if call != "close":
            await works(client)
        await end(client)

    simulate(scenario)


def test_no_call_is_left_out() -> None:
    """What is asked of a client that is not awaited is in `test_asked_when_closed`."""
    assert {Producer: PRODUCER, Consumer: CONSUMER, Admin: ADMIN} == CASES
