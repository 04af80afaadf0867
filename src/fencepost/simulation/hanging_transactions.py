"""An operator who looks for transactions that hang, and tries to end what is open, while everybody works (KIP-664)."""

from __future__ import annotations

from random import Random
from typing import Final

from fencepost.client import Admin
from fencepost.client.errors import ClientError, MisuseError
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.surroundings import TOPICS
from fencepost.simulation.world import ADDRESS, World

#: Milliseconds for which the operator tries.
_PATIENCE_MS: Final = 1000
#: Milliseconds after which a transaction is looked at, however long one may take: live ones are among them.
_AGES_MS: Final = (0, 50, 1000)


async def look_for_what_hangs(world: World, chance: Random) -> None:
    """Ask for hanging transactions, and try to end an open one; a violation if one is found or can be ended."""
    age_ms = chance.choice(_AGES_MS)
    runtime = world.runtime(f"operator-{world.loop.time()}")
    try:
        async with Admin(ADDRESS, runtime=runtime, max_block_ms=_PATIENCE_MS) as admin:
            found = await admin.find_hanging_transactions(TOPICS, max_transaction_timeout_ms=age_ms)
            for each in found:
                world.violated(f"it is said to hang: {each}")
            world.note(f"an operator found {len(found)} transactions that hang for {age_ms} ms")
            await _end_one(admin, world, chance, age_ms)
    except ClientError as error:
        world.note(f"an operator gave up: {type(error).__name__}")


async def _end_one(admin: Admin, world: World, chance: Random, age_ms: int) -> None:
    places = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    is_open = [
        (at, state.transaction_start_offset)
        for at, states in (await admin.describe_producers(places)).items()
        for state in states
        if state.transaction_start_offset is not None
    ]
    if not is_open:
        return
    at, start = chance.choice(is_open)
    try:
        await admin.abort_transaction(at, start, max_transaction_timeout_ms=age_ms)
    except MisuseError:
        world.note(f"an operator was not let end what begins at offset {start} of {at}")
    else:
        world.violated(f"what begins at offset {start} of {at} was ended by an operator, beside its coordinator")
