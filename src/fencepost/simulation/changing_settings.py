"""Settings of topics that somebody changes while others write and read; each is what it was set to last, for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from fencepost.client import Admin
from fencepost.client.admin.configs import ConfigChange
from fencepost.client.errors import ClientError
from fencepost.simulation.surroundings import TOPICS
from fencepost.simulation.world import ADDRESS, World

#: Milliseconds for which somebody tries to change one.
_PATIENCE_MS: Final = 1000


class ChangingSettings:
    """The settings of the topics that producers write to.

    `at_first`: what they were made with; `changes`: setting -> what it may be set to.
    """

    def __init__(self, world: World, at_first: Mapping[str, str], changes: Mapping[str, Sequence[str]]) -> None:
        self._world = world
        self._changes = changes
        self._may_be: dict[tuple[str, str], list[str | None]] = {
            (topic, name): [at_first.get(name)] for topic in TOPICS for name in changes
        }
        """What each is by now, None for the default; several where nobody was told whether a change was made."""

    async def change(self, chance: Random) -> None:
        """Change one setting of one topic: to something else, or back to the default."""
        if not self._changes:
            return
        topic, name = chance.choice([*TOPICS]), chance.choice(sorted(self._changes))
        value = chance.choice((None, *self._changes[name]))
        change = ConfigChange(delete=[name]) if value is None else ConfigChange(set={name: value})
        runtime = self._world.runtime(f"settings-{self._world.loop.time()}")
        told = f"{name} of {topic} is to be {'the default' if value is None else value}"
        try:
            async with Admin(ADDRESS, runtime=runtime, max_block_ms=_PATIENCE_MS) as admin:
                await admin.alter_topic_config(topic, change)
        except ClientError as error:
            self._may_be[topic, name].append(value)
            self._world.note(f"{told}, and may be: {type(error).__name__}")
        else:
            self._may_be[topic, name] = [value]
            self._world.note(told)

    async def judge(self) -> list[str]:
        """The settings that are not as they were set, in sentences."""
        if not self._changes:
            return []
        async with Admin(ADDRESS, runtime=self._world.runtime("settings")) as admin:
            found = await admin.describe_topic_configs(TOPICS)
        is_now = {
            (topic, name): entry.value if entry.source == "DYNAMIC_TOPIC_CONFIG" else None
            for topic, entries in found.items()
            for name, entry in entries.items()
        }
        return [
            f"{name} of {topic} is {is_now[topic, name] or 'the default'}, and was set to {may_be[-1] or 'the default'}"
            for (topic, name), may_be in self._may_be.items()
            if is_now[topic, name] not in may_be
        ]
