"""Fetching ahead, on virtual time: nothing waits behind a request that waits for records."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from tests.client.test_producer import simulate

from fencepost.broker.leader.fetch_plan import FetchPlan
from fencepost.broker.network.registry import SERVED
from fencepost.client import Admin, ClientError, Consumer, ConsumerRecord, Producer, TopicPartition
from fencepost.client.errors import BrokerError, DamagedRecordsError
from fencepost.client.fetcher import Fetcher
from fencepost.client.followed import Followed
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, PORT, World

FETCH = 1
METADATA = 3
LONG_WAIT_MS = 5000
BUSY, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)


async def fill(world: World, partitions: list[TopicPartition], count: int) -> None:
    async with Producer(ADDRESS, runtime=world.runtime("writer"), batch_bytes=1) as writer:
        for number in range(count):
            for at in partitions:
                await writer.send(at.topic, b"%d" % number, partition=at.partition)


def reader(world: World, **options: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=ADDRESS,
        runtime=world.runtime("reader"),
        fetch_max_wait_ms=LONG_WAIT_MS,
        max_partition_fetch_bytes=200,
        **options,
    )


@pytest.mark.parametrize("iterates", [True, False])
@pytest.mark.parametrize("of_the_other", [0, 3, 100])
def test_an_idle_partition_does_not_slow_the_others(of_the_other: int, iterates: bool) -> None:
    """What is there is read without a single wait for what is not."""

    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 100)
        await fill(world, [IDLE], of_the_other)
        async with reader(world) as consumer:
            consumer.assign([BUSY, IDLE])
            begun, values = world.loop.time(), list[bytes]()
            while len(values) < 100 + of_the_other:
                some = [await anext(consumer)] if iterates else await consumer.poll(max_records=1)
                values += [each.value or b"" for each in some]
                await asyncio.sleep(0.005)  # what is fetched ahead is there when it is wanted
            assert world.loop.time() - begun < LONG_WAIT_MS / 1000
        assert sorted(values) == sorted(b"%d" % number for number in (*range(100), *range(of_the_other)))

    simulate(scenario)


def test_a_record_for_an_idle_partition_comes_at_once() -> None:
    async def scenario(world: World) -> None:
        async with reader(world) as consumer, Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            consumer.assign([BUSY, IDLE])
            for at in (BUSY, IDLE, IDLE, BUSY):
                assert await consumer.poll(10) == []
                begun = world.loop.time()
                await (await writer.send(at.topic, b"", partition=at.partition))
                assert [(each.topic, each.partition) for each in await consumer.poll(LONG_WAIT_MS)] == [at]
                assert world.loop.time() - begun < 0.1

    simulate(scenario)


def test_a_commit_does_not_wait_behind_a_fetch() -> None:
    async def scenario(world: World) -> None:
        async with reader(world, group_id="group") as consumer:
            consumer.assign([BUSY, IDLE])
            assert await consumer.poll(100) == []
            begun = world.loop.time()
            await consumer.commit({BUSY: 0})
            assert world.loop.time() - begun < 0.1

    simulate(scenario)


def test_a_node_has_one_fetch_to_answer_and_is_not_asked_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """While records wait here to be handed out, an idle partition is not asked for again and again."""
    handler, asked = SERVED[FETCH].handler, list[int]()

    def counted(request: Any, context: Any, node: Any) -> Any:
        asked.append(request.max_wait_ms)
        return handler(request, context, node)

    monkeypatch.setitem(SERVED, FETCH, replace(SERVED[FETCH], handler=counted))

    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 10)
        async with reader(world) as consumer:
            consumer.assign([BUSY, IDLE])
            while not await consumer.poll(1000, max_records=1):
                pass
            await asyncio.sleep(1)
            before = len(asked)
            for _ in range(200):
                consumer._fetcher.fetch()
                await asyncio.sleep(0.01)
            assert len(asked) - before <= 1
            assert asked.count(LONG_WAIT_MS) <= 2

    simulate(scenario)


def test_a_node_that_says_it_does_not_lead_is_not_asked_as_fast_as_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As during an election: metadata still names it."""
    asked = list[None]()
    take_answer = Fetcher._take_answer

    def counted(self: Fetcher, *answer: Any) -> None:
        asked.append(None)
        take_answer(self, *answer)

    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 1)
        async with reader(world) as consumer:
            consumer.assign([BUSY])
            with monkeypatch.context() as patch:
                patch.setattr(Fetcher, "_take_answer", counted)
                patch.setattr(FetchPlan, "_place", lambda *_: ErrorCode.NOT_LEADER_OR_FOLLOWER)
                assert await consumer.poll(1000) == []
            assert 5 <= len(asked) <= 12
            assert len(await consumer.poll(1000)) == 1

    simulate(scenario)


def test_iterating_a_busy_partition_mends_the_lost_position_of_another() -> None:
    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 300)
        await fill(world, [IDLE], 1)
        async with reader(world) as consumer:
            consumer.assign([BUSY, IDLE])
            await anext(consumer)
            consumer.seek(BUSY, 0)
            consumer.seek(IDLE, 1000)
            seen = 0
            async for record in consumer:
                seen += record.partition == BUSY.partition
                await asyncio.sleep(0.01)  # what is fetched ahead is there when it is wanted
                if record.partition == IDLE.partition:
                    break
            assert seen < 100

    simulate(scenario)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21])
def test_what_is_assigned_last_is_read_whatever_was_being_looked_up(turns: int) -> None:
    async def scenario(world: World) -> None:
        await fill(world, [BUSY, IDLE], 1)
        async with reader(world) as consumer:
            consumer.assign([BUSY])
            assert await consumer.poll(0) == []
            for _ in range(turns):
                await asyncio.sleep(0)
            consumer.assign([IDLE])
            found = list[ConsumerRecord]()
            while not found:
                found = await consumer.poll(1000)
            assert [(each.topic, each.partition) for each in found] == [IDLE]
            assert consumer.assignment() == [IDLE]
            assert await consumer.poll(100) == []

    simulate(scenario)


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("is_idle", [False, True])
def test_who_asks_without_waiting_again_and_again_lets_others_do_something(is_idle: bool, is_batch: bool) -> None:
    """Records come in, and heartbeats go out, in turns of the event loop that is theirs as well."""

    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 100)
        async with reader(world) as consumer:
            consumer.assign([IDLE if is_idle else BUSY])
            await consumer.poll(100)
            turns = nothing = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            busy = asyncio.create_task(others())
            for _ in range(200):
                found = await (consumer.poll_batch(0) if is_batch else consumer.poll(0))
                nothing += not found
            busy.cancel()
            assert turns >= nothing > 100

    simulate(scenario)


@pytest.mark.parametrize("unasked", [7, "another topic"])
def test_an_answer_about_what_was_not_asked_is_told_and_reading_goes_on(
    unasked: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, answers = SERVED[FETCH].handler, list[Any]()

    async def handled(request: Any, context: Any, node: Any) -> Any:
        reply = handler(request, context, node)
        reply = await reply if asyncio.iscoroutine(reply) else reply
        answers.append(reply)
        if len(answers) == 1:
            (topic,) = reply.response.responses
            if isinstance(unasked, int):
                topic.partitions[0].partition_index = unasked
            else:
                topic.topic, topic.topic_id = unasked, uuid4()
        return reply

    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 1)
        monkeypatch.setitem(SERVED, FETCH, replace(SERVED[FETCH], handler=handled))
        async with reader(world) as consumer:
            consumer.assign([BUSY])
            with pytest.raises(ClientError, match=r"^node 0 sent what cannot be read: it is about what was not asked"):
                await consumer.poll(2000)
            assert len(await consumer.poll(5000)) == 1

    simulate(scenario)


def test_who_may_not_describe_a_topic_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says where to read it then; what else is read goes on."""
    handler, refused = SERVED[METADATA].handler, {"not read here"}

    async def handled(request: Any, *rest: Any) -> Any:
        reply: Any = handler(request, *rest)
        reply = await reply if asyncio.iscoroutine(reply) else reply
        for topic in reply.response.topics:
            if topic.name in refused:
                topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return reply

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("maker")) as admin:
            await admin.create_topic("u", partitions=1)
        monkeypatch.setitem(SERVED, METADATA, replace(SERVED[METADATA], handler=handled))
        async with reader(world) as consumer:
            consumer.assign([BUSY, TopicPartition("u", 0)])
            consumer._fetcher.refresh(["not read here"])  # as who leads a group does for the others
            assert await consumer.poll(1000) == []
            refused.add("t")
            world.network.break_connections(PORT)
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED: topic 't' cannot be read"):
                await consumer.poll(5000)
            await fill(world, [TopicPartition("u", 0)], 1)
            refused.clear()
            assert [each.topic for each in await consumer.poll(5000)] == ["u"]
            await fill(world, [BUSY], 1)
            assert [each.topic for each in await consumer.poll(2 * LONG_WAIT_MS)] == ["t"]

    simulate(scenario)


def test_a_position_that_was_lost_is_forgotten_where_the_caller_has_gone_elsewhere() -> None:
    async def scenario(world: World) -> None:
        await fill(world, [BUSY], 3)
        async with reader(world) as consumer:
            consumer.assign([BUSY])
            while not await consumer.poll(1000):
                pass
            consumer.seek(BUSY, 1000)
            consumer._fetcher.fetch()
            await asyncio.sleep(1)
            assert [*consumer._fetcher.lost()] == [BUSY]
            consumer.seek(BUSY, 1)
            assert consumer._fetcher.lost() == {}
            assert [each.value for each in await consumer.poll(1000)] == [b"1", b"2"]

    simulate(scenario)


def test_batches_come_of_partitions_in_turn() -> None:
    async def scenario(world: World) -> None:
        await fill(world, [BUSY, IDLE], 40)
        async with reader(world) as consumer:
            consumer.assign([BUSY, IDLE])
            found = list[int]()
            while len(found) < 6:
                batch = await consumer.poll_batch(1000)
                assert batch is not None
                found.append(batch.at.partition)
                await asyncio.sleep(0.1)  # more of it is there when the next one is asked for
            assert {*found[0::2]} != {*found[1::2]} and len({*found[0::2]}) == 1

    simulate(scenario)


def test_batches_of_others_come_before_it_is_said_that_a_partition_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_batch = Followed.take_batch

    def damaged(partition: Followed) -> Any:
        if partition.at == BUSY and partition.fetched is not None:
            raise DamagedRecordsError(BUSY, 0, ValueError("a wrong bit"))
        return take_batch(partition)

    async def scenario(world: World) -> None:
        await fill(world, [BUSY, IDLE], 1)
        monkeypatch.setattr(Followed, "take_batch", damaged)
        async with reader(world) as consumer:
            consumer.assign([BUSY, IDLE])
            assert await consumer.poll_batch(0) is None
            await asyncio.sleep(1)  # both are there when one is asked for
            batch = await consumer.poll_batch(1000)
            assert batch is not None and batch.at == IDLE
            with pytest.raises(DamagedRecordsError):
                await consumer.poll_batch(1000)

    simulate(scenario)


def test_nothing_is_fetched_any_more_for_who_is_closed() -> None:
    async def scenario(world: World) -> None:
        async with reader(world) as consumer:
            consumer.assign([BUSY])
            assert await consumer.poll(100) == []
            waiting = [task for task in asyncio.all_tasks() if task.get_name() == "fetch"]
            assert len(waiting) == 1
            await consumer._fetcher.close()
            await asyncio.sleep(0)
            assert waiting[0].cancelled()

    simulate(scenario)


def test_what_is_handed_out_next_is_fetched_while_another_partition_has_records_waiting() -> None:
    """Of who had some there may be more at once: nobody waits for it when what is here is handed out."""

    async def scenario(world: World) -> None:
        await fill(world, [BUSY, IDLE], 100)
        async with reader(world) as consumer:
            consumer.assign([BUSY, IDLE])
            while not (taken := await consumer.poll(1000, max_records=1)):
                pass
            await asyncio.sleep(1)
            first = TopicPartition(taken[0].topic, taken[0].partition)
            assert all(each.fetched is not None for each in consumer._fetcher.followed.values())
            assert consumer._fetcher.followed[first].ready, "what was looked into is not handed out"

    simulate(scenario)


def test_who_waits_may_be_woken_by_several_at_once() -> None:
    """As by the answers of two nodes that come in one turn of the event loop."""

    async def scenario(world: World) -> None:
        async with reader(world) as consumer:
            waiting = asyncio.ensure_future(consumer._fetcher.wait(60))
            await asyncio.sleep(0)
            consumer._fetcher.wake()
            consumer._fetcher.wake()
            begun = world.loop.time()
            await waiting
            assert world.loop.time() == begun

    simulate(scenario)
