"""A consumer of very many partitions: what it does takes time that grows with them, not with their square."""

from __future__ import annotations

import pytest
from tests.client.test_group import member
from tests.client.test_producer import simulate

from fencepost.client import TopicPartition
from fencepost.simulation.world import World


def test_to_seek_in_many_partitions_looks_through_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = 0

    def compared(one: TopicPartition, other: object) -> bool:
        nonlocal times
        times += 1
        return tuple.__eq__(one, other)

    async def scenario(world: World) -> None:
        async with member(world, "first", group_id=None) as reader:
            await reader.unsubscribe()
            many = [TopicPartition("t", number) for number in range(1000)]
            monkeypatch.setattr(TopicPartition, "__eq__", compared)
            reader.assign(many)
            for at in many:
                reader.seek(TopicPartition(*at), 1)
            monkeypatch.undo()

    simulate(scenario)
    assert times < 100 * 1000, "half of the square is 500,000"
