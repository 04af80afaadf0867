"""A loop of transactions whose consumer keeps its partitions through rebalances: each record counts once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.client.test_exactly_once import output, writer
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, write
from tests.client.test_producer import simulate
from tests.client.test_rebalances import Notes

from fencepost.broker.network.registry import SERVED
from fencepost.client import Admin, Consumer, ExactlyOnce, RebalanceListener, TopicPartition
from fencepost.client.assignors import COOPERATIVE_STICKY
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, World

OFFSET_COMMIT = 8
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": COOPERATIVE_STICKY}


class Slow(RebalanceListener):
    """Takes some seconds for what it is told."""

    def __init__(self, assigned: float = 0, revoked: float = 0) -> None:
        self._assigned, self._revoked = assigned, revoked
        self.lost: list[TopicPartition] = []

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:  # noqa: ARG002
        await asyncio.sleep(self._assigned)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        if any(at.topic == "u" for at in partitions):
            await asyncio.sleep(self._revoked)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.lost += partitions


async def make(world: World, *names: str) -> None:
    async with Admin(ADDRESS, runtime=world.runtime("maker")) as admin:
        for name in names:
            await admin.create_topic(name, partitions=1)


async def run(world: World, consumer: Consumer, name: str, loops: list[ExactlyOnce], **options: Any) -> None:
    async with writer(world, name) as producer:
        loop = ExactlyOnce(consumer, producer, **options)
        loops.append(loop)
        async for transaction in loop:
            async with transaction:
                for record in transaction.records:
                    await transaction.send("out", record.value)


def test_records_that_were_collected_when_the_subscription_changed_are_handed_out_again() -> None:
    async def scenario(world: World) -> None:
        await make(world, "out")
        reader, loops = member(world, "reader", **COOPERATIVE), list[ExactlyOnce]()
        working = asyncio.create_task(run(world, reader, "id", loops, linger_ms=1000))
        await asyncio.sleep(1)
        await write(world, [b"0", b"1", b"2"])
        await asyncio.sleep(0.15)
        reader.subscribe("t", listener=Slow(assigned=1))
        await asyncio.sleep(3)
        await write(world, [b"3", b"4", b"5"])
        await asyncio.sleep(4)
        loops[0].stop()
        await working
        await reader.close()
        assert sorted(await output(world)) == list(range(6))

    simulate(scenario, **SHORT_SESSIONS)


def test_who_loses_its_place_while_its_listener_works_does_not_keep_what_others_have() -> None:
    async def scenario(world: World) -> None:
        await make(world, "u", "out")
        await write(world, [b"0", b"1", b"2"])
        first, loops, listener = member(world, "first", "t", "u", **COOPERATIVE), list[ExactlyOnce](), Slow(revoked=12)
        first.subscribe("t", "u", listener=listener)
        working = asyncio.create_task(run(world, first, "first", loops))
        await asyncio.sleep(2)
        first.subscribe("t", listener=listener)
        await asyncio.sleep(0.5)
        second = member(world, "second", "t", **COOPERATIVE)
        other = asyncio.create_task(run(world, second, "second", loops))
        await asyncio.sleep(7)
        await write(world, [b"3", b"4", b"5"])
        await asyncio.sleep(2)
        loops[1].stop()
        await other
        await second.close()
        await asyncio.sleep(15)
        loops[0].stop()
        await working
        await first.close()
        assert listener.lost
        assert sorted(await output(world)) == list(range(6))

    simulate(scenario, **SHORT_SESSIONS)


def test_records_are_handed_out_again_where_a_rebalance_keeps_their_beginning_from_being_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their partitions stay here, and the group has no position of them: nobody else would hand them out."""
    handler, refused = SERVED[OFFSET_COMMIT].handler, list[Any]()

    def refusing(request: Any, *rest: Any) -> Any:
        if refused:
            return handler(request, *rest)
        refused.append(request)
        request.generation_id_or_member_epoch = 99
        reply: Any = handler(request, *rest)
        for part in reply.response.topics[0].partitions:
            part.error_code = ErrorCode.REBALANCE_IN_PROGRESS
        return reply

    async def scenario(world: World) -> None:
        await make(world, "out")
        reader, loops = member(world, "reader", auto_offset_reset="latest", **COOPERATIVE), list[ExactlyOnce]()
        assert await reader.poll(1000) == []
        await write(world, [b"0", b"1", b"2"])
        monkeypatch.setitem(SERVED, OFFSET_COMMIT, replace(SERVED[OFFSET_COMMIT], handler=refusing))
        working = asyncio.create_task(run(world, reader, "id", loops))
        await asyncio.sleep(3)
        await write(world, [b"3"])
        await asyncio.sleep(1)
        loops[0].stop()
        await working
        await reader.close()
        assert refused
        assert sorted(await output(world)) == list(range(4))

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("during", ["assigned", "revoked"])
def test_who_goes_back_while_its_listener_works_still_gives_up_and_takes_what_the_group_says(during: str) -> None:
    """The listener is not interrupted, and the others get what they wait for."""

    async def scenario(world: World) -> None:
        finished: list[str] = []

        async def work(what: str) -> None:
            await asyncio.sleep(1)
            finished.append(what)

        listener = Notes(work)
        first, second = member(world, "first", **COOPERATIVE), member(world, "second", **COOPERATIVE)
        async with first, second:
            first.subscribe("t", listener=listener)
            gone_back, shares = 0, list[list[TopicPartition]]()
            for turn in range(100):
                await asyncio.gather(first.poll(100), *([second.poll(100)] if turn > 30 else []))
                shares = [first.assignment(), second.assignment()]
                told = [what for what, _ in listener.told]
                ours = set[int]()
                for what, numbers in listener.told[: len(finished)]:
                    ours = ours | {*numbers} if what == "assigned" else ours - {*numbers}
                assert told != finished or {at.partition for at in shares[0]} <= ours
                if told.count(during) > finished.count(during) and not gone_back:
                    gone_back += 1
                    first.seek_to_committed()
            assert gone_back
            assert sorted(at for share in shares for at in share) == PARTITIONS and all(shares)
            assert finished == told

    simulate(scenario, **SHORT_SESSIONS)
