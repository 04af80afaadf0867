"""The wall clock is set by a month: what is kept or open does not expire for that, and later does as it should."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencepost.broker.authorizer import AllowEverything
from fencepost.broker.clock_jumps import LEAST_MS, ClockJumps
from fencepost.broker.network.registry import SERVED, Reply
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import (
    NO_LEADER_EPOCH,
    Epoch,
    Milliseconds,
    Offset,
    ProducerId,
    TopicPartition,
)
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import World

DAY = 86_400_000
HOUR = 3_600_000
AT = TopicPartition("t", 0)
KEPT_MS = 2 * 3600 * 1000
"""Much less than any jump."""
SETTINGS = {
    "log.retention.check.interval.ms": 60_000,
    "offsets.retention.check.interval.ms": 60_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 60_000,
    "log.segment.bytes": 1024 * 1024,
    "log.retention.ms": KEPT_MS,
    "offsets.retention.minutes": KEPT_MS // 60_000,
}
#: How the wall clock is set, one after the other.
JUMPS = [(30 * DAY,), (-30 * DAY,), (30 * DAY, -30 * DAY), (-30 * DAY, 30 * DAY), (20 * DAY, 20 * DAY), (9000,)]


class Scene:
    """One node on virtual time, with a topic."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def broker(self) -> Any:
        assert self.world.broker is not None
        return self.world.broker

    async def produce(self, pair: tuple[int, int], sequence: int) -> tuple[int, int]:
        """One record of an idempotent producer: error and offset."""
        record = (self.world.clock.now(), None, b"x", ())
        records = encode_batch(
            [record], producer_id=ProducerId(pair[0]), producer_epoch=Epoch(pair[1]), base_sequence=sequence
        )
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
        context = RequestContext(Peer(AllowEverything(), "/here"), 9, None)
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=9, topic_data=data)
        answer = SERVED[0].handler(request, context, self.broker.node)
        assert isinstance(answer, Reply)
        (written,) = answer.response.responses[0].partition_responses
        return written.error_code, written.base_offset

    def begin(self, name: str) -> Any:
        """A transaction of one minute, open in the partition."""
        transactions = self.broker.node.transactions
        pair = transactions.init_producer_id(name, 60_000)
        added = transactions.add_partitions(name, pair.producer_id, pair.producer_epoch, [AT], 0)
        assert (pair.error, added.error) == (ErrorCode.NONE, ErrorCode.NONE)
        return pair

    def state(self, name: str) -> str:
        return str(self.broker.node.transactions.describe(name).state)

    async def set_clock(self, jumps: tuple[int, ...]) -> None:
        for jump in jumps:
            self.world.clock.skew_ms += jump
            await asyncio.sleep(90)  # everything looks at least once


async def scene(loop: VirtualLoop) -> Scene:
    world = World(loop, 1, SETTINGS)
    await world.start()
    assert world.broker is not None
    for name in ("__transaction_state", "__consumer_offsets"):
        await world.broker.node.ensure_coordinator(name)
    world.broker.node.topics.create_at_once("t", 1)
    return Scene(world)


def on_virtual_time(main: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def begin(loop: VirtualLoop) -> None:
        made = await scene(loop)
        await main(made)
        await made.world.stop()

    run(begin)


@pytest.mark.parametrize("jumps", JUMPS)
def test_what_is_kept_is_kept(jumps: tuple[int, ...]) -> None:
    """A producer's dedup window, an id, committed offsets, records; and their time is up when it really is."""

    async def main(scene: Scene) -> None:
        broker, before = scene.broker, scene.world.clock.now()
        producer = (4711, 0)
        assert await scene.produce(producer, 0) == (ErrorCode.NONE, 0)
        identity = broker.node.transactions.init_producer_id("id", 60_000)
        broker.node.groups.commit_offsets(
            CommitFor("g", "", None, -1), {AT: CommittedOffset(Offset(7), NO_LEADER_EPOCH, "", before)}
        )
        await scene.set_clock(jumps)
        assert await scene.produce(producer, 0) == (ErrorCode.NONE, 0), "the same batch again is a duplicate"
        assert broker.node.storage.partition("t", 0).log_end_offset == 1
        assert broker.node.storage.partition("t", 0).log_start_offset == 0
        assert scene.state("id") == "Empty"
        assert broker.node.groups.fetch_offsets("g", [AT], True)[AT].offset == 7
        again = broker.node.transactions.init_producer_id("id", 60_000)
        assert again.producer_id == identity.producer_id
        if sum(jumps) == 0 and jumps[0] > 0:
            await asyncio.sleep(1.1 * KEPT_MS / 1000)
            assert broker.node.storage.partition("t", 0).log_start_offset == 1
            assert broker.node.groups.fetch_offsets("g", [AT], True)[AT] is None

    on_virtual_time(main)


@pytest.mark.parametrize("jumps", [jumps for jumps in JUMPS if min(jumps) >= LEAST_MS])
def test_an_open_transaction_has_its_time(jumps: tuple[int, ...]) -> None:
    """Not less for a clock set ahead, and not more, begun before it or after."""

    async def main(scene: Scene) -> None:
        scene.begin("before")
        await asyncio.sleep(20)
        for jump in jumps:
            scene.world.clock.skew_ms += jump
            await asyncio.sleep(5)
        scene.begin("after")
        await asyncio.sleep(59 - 20 - 5 * len(jumps))
        assert scene.state("before") == scene.state("after") == "Ongoing"
        await asyncio.sleep(3)
        assert scene.state("before") == "CompleteAbort"
        assert scene.state("after") == "Ongoing"
        await asyncio.sleep(60)
        assert scene.state("after") == "CompleteAbort"

    on_virtual_time(main)


class SetClock:
    """Set by the test."""

    def __init__(self) -> None:
        self.wall = 1_000_000_000
        self.real = 0.0

    def now(self) -> Milliseconds:
        return Milliseconds(self.wall)

    def pass_(self, milliseconds: int, jump: int = 0) -> None:
        self.real += milliseconds / 1000
        self.wall += milliseconds + jump


@pytest.mark.parametrize("seed", range(50))
def test_jumps_are_taken_off_and_taken_back(seed: int) -> None:
    """For every time since the last correction: what has really passed is what the clock shows less its jumps."""
    chance, clock = random.Random(seed), SetClock()
    jumps = ClockJumps(clock, lambda: clock.real)
    marks = [(clock.wall, clock.real)]
    for _ in range(chance.randint(1, 250)):
        passed = chance.choice((0, chance.randrange(1, 5000)))  # what was touched may be so in the moment of the jump
        clock.pass_(passed, chance.choice((0, 0, LEAST_MS + 10, 30 * DAY, HOUR)))
        jumps.notice()
        marks.append((clock.wall, clock.real))
    for wall, real in marks[-90:]:
        passed = clock.wall - wall - jumps.since(wall)
        assert abs(passed - (clock.real - real) * 1000) <= 2 * len(marks)
    steady = marks[0][0] + clock.real * 1000
    assert abs(jumps.steady(Milliseconds(clock.wall)) - steady) <= 2 * len(marks), "of no jump less than all"
    ahead = clock.wall - jumps.steady(Milliseconds(clock.wall))
    clock.pass_(1000, -ahead)
    jumps.notice()
    assert jumps.steady(Milliseconds(clock.wall)) == clock.wall
    clock.pass_(1000, -DAY)
    jumps.notice()
    assert jumps.steady(Milliseconds(clock.wall)) == clock.wall, "a clock that is set back takes nothing off"


def test_a_clock_that_is_steered_is_no_jump() -> None:
    clock = SetClock()
    jumps = ClockJumps(clock, lambda: clock.real)
    for _ in range(1000):
        clock.pass_(1000, LEAST_MS - 1000)
        jumps.notice()
    assert jumps.since(0) == 0


@pytest.mark.parametrize("back", [HOUR, DAY + HOUR])
def test_a_jump_back_takes_back_as_much_of_those_ahead_as_it_is_long(back: int) -> None:
    """The rest of them is time that has not passed still."""
    clock = SetClock()
    jumps = ClockJumps(clock, lambda: clock.real)
    before = clock.wall
    for ahead in (30 * DAY, DAY):
        clock.pass_(1000, ahead)
        jumps.notice()
    clock.pass_(1000, -back)
    jumps.notice()
    assert jumps.since(before) == 31 * DAY - back
    assert jumps.steady(Milliseconds(clock.wall)) == before + 3000
