"""The troubles that befall the node, each at its time: drawn, or as a script says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from fencepost.simulation.script import Happening
from fencepost.simulation.world import World


async def happenings(world: World, seconds: float, kinds: Sequence[str], between: float) -> AsyncIterator[str]:
    """The names of troubles, each when it is to happen and the one before is over; ends `seconds` after 0.

    Where no script is given they are drawn: of these kinds, with so many seconds between them on average.
    """
    given = world.prompter.troubles
    async for happening in _drawn(world, seconds, kinds, between) if given is None else _given(world, given):
        world.prompter.happens(happening)
        world.random = world.chance(f"trouble {happening.number}")
        yield happening.trouble
    await world.until(seconds)


async def _drawn(world: World, seconds: float, kinds: Sequence[str], between: float) -> AsyncIterator[Happening]:
    chance, number = world.chance("troubles"), 0
    while kinds and (time := world.loop.time() + chance.expovariate(1 / between)) < seconds:
        await world.until(time)
        yield Happening(time, chance.choice(kinds), number)
        number += 1


async def _given(world: World, troubles: Iterable[Happening]) -> AsyncIterator[Happening]:
    for happening in troubles:
        await world.until(happening.time)
        yield happening
