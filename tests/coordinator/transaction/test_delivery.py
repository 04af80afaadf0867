"""When markers that somebody refused are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.coordinator.transaction.delivery import Delivery
from fencepost.coordinator.transaction.markers import FIRST_DELAY, Marker, Results
from fencepost.coordinator.transaction.shards import Completion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, ProducerId, TopicPartition
from fencepost.simulation.loop import VirtualLoop, run

AT = TopicPartition("t", 0)


class Leader:
    """On another node; refuses at first.  Each answer takes so many seconds."""

    def __init__(self, refusals: int, takes: float) -> None:
        self.refusals, self.takes = refusals, takes
        self.begun: list[float] = []
        self.asked = self.most = 0

    def write(self, _: Marker, partitions: Sequence[TopicPartition]) -> Awaitable[Results]:
        return self._write(list(partitions))

    async def _write(self, partitions: Sequence[TopicPartition]) -> Results:
        self.begun.append(asyncio.get_running_loop().time())
        self.asked += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(self.takes)
        self.asked -= 1
        refused = len(self.begun) <= self.refusals
        return dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER if refused else ErrorCode.NONE)


def delivery(leader: Leader, finished: list[float]) -> tuple[Delivery, Completion]:
    loop = asyncio.get_running_loop()
    clock: Any = SimpleNamespace(now=lambda: Milliseconds(int(loop.time() * 1000)))

    def done(*_: object) -> bool:
        finished.append(loop.time())
        return True

    marker = Marker(ProducerId(7), Epoch(0), LeaderEpoch(0), commit=True, transaction_version=2)
    return Delivery(leader, clock, done), Completion(marker, [AT])


@pytest.mark.parametrize("takes", [0.001, 5.0])
def test_what_was_refused_is_tried_again_after_its_delay_without_a_tick(takes: float) -> None:
    async def main(loop: VirtualLoop) -> None:
        leader, finished = Leader(1, takes), list[float]()
        deliveries, completion = delivery(leader, finished)
        begun = loop.time()
        assert not deliveries.start(completion, Milliseconds(int(begun * 1000)))
        await asyncio.sleep(60)
        assert len(leader.begun) == 2 and len(finished) == 1
        waited = leader.begun[1] - begun
        assert max(takes, FIRST_DELAY / 1000) - 0.002 <= waited <= takes + FIRST_DELAY / 1000 + 0.002

    run(main)


def test_a_leader_is_asked_one_thing_at_a_time_whoever_has_it_tried_again() -> None:
    async def main(loop: VirtualLoop) -> None:
        leader, finished = Leader(1, 0.001), list[float]()
        deliveries, completion = delivery(leader, finished)
        deliveries.start(completion, Milliseconds(int(loop.time() * 1000)))
        await asyncio.sleep(0.002)
        leader.takes = 60
        for at_once in (True, True, False):
            deliveries.retry(Milliseconds(int(loop.time() * 1000)), at_once=at_once)
            await asyncio.sleep(10)
        assert len(leader.begun) == 2 and leader.most == 1
        await asyncio.sleep(60)
        assert len(finished) == 1

    run(main)
