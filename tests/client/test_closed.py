"""After `close` everything says so, whoever waits for something included; and closing twice is nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.slow_requests import slowly
from tests.client.test_producer import LEVELS, producer, shown, simulate

from fencepost.broker import running_broker
from fencepost.client import (
    Admin,
    ClosedError,
    Consumer,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    blocking,
)
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError, CommitInDoubtError, TimedOutError
from fencepost.protocol.messages import EndTxnRequest, LeaveGroupRequest, OffsetCommitRequest
from fencepost.simulation.world import ADDRESS, PORT, World

AT = TopicPartition("t", 0)

PRODUCER_CALLS: dict[str, Callable[[Producer], Awaitable[Any]]] = {
    "send": lambda writer: writer.send("t", b""),
    "partitions_for": lambda writer: writer.partitions_for("t"),
    "init_transactions": lambda writer: writer.init_transactions(),
    "begin_transaction": lambda writer: writer.begin_transaction(),
    "prepare_transaction": lambda writer: writer.prepare_transaction(),
    "complete_transaction": lambda writer: writer.complete_transaction("1:1"),
    "commit_transaction": lambda writer: writer.commit_transaction(),
    "abort_transaction": lambda writer: writer.abort_transaction(),
    "send_offsets_to_transaction": lambda writer: writer.send_offsets_to_transaction({AT: 1}, "group"),
}
CONSUMER_CALLS: dict[str, Callable[[Consumer], Awaitable[Any]]] = {
    "poll": lambda reader: reader.poll(),
    "next": lambda reader: reader.__anext__(),
    "commit": lambda reader: reader.commit({AT: 1}),
    "commit of all": lambda reader: reader.commit(),
    "lag": lambda reader: reader.lag(),
    "committed": lambda reader: reader.committed([AT]),
    "beginning_offsets": lambda reader: reader.beginning_offsets([AT]),
    "end_offsets": lambda reader: reader.end_offsets([AT]),
    "offsets_for_times": lambda reader: reader.offsets_for_times({AT: 0}),
}
ADMIN_CALLS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "topics": lambda admin: admin.topics(),
    "partitions": lambda admin: admin.partitions("t"),
    "create_topic": lambda admin: admin.create_topic("new"),
    "delete_topic": lambda admin: admin.delete_topic("t"),
    "update_feature": lambda admin: admin.update_feature("transaction.version", 1),
    "describe_topics": lambda admin: admin.describe_topics(),
    "describe_groups": lambda admin: admin.describe_groups(["group"]),
    "list_groups": lambda admin: admin.list_groups(),
    "list_offsets": lambda admin: admin.list_offsets({AT: 0}),
    "alter_group_offsets": lambda admin: admin.alter_group_offsets("group", {AT: 0}),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs([0]),
    "list_transactions": lambda admin: admin.list_transactions(),
    "find_hanging_transactions": lambda admin: admin.find_hanging_transactions(),
}


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_a_closed_producer_says_so(call: str) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"aborted", partition=0)
        with pytest.raises(ClosedError, match="is closed: make a new one"):
            await PRODUCER_CALLS[call](writer)
        await writer.flush()
        await writer.close()
        assert await shown(world) == []

    simulate(scenario)


@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_a_closed_consumer_says_so(call: str, group: str | None) -> None:
    async def scenario(world: World) -> None:
        reader = Consumer("t", group_id=group, bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        await reader.poll(10)
        await reader.close()
        if group is None and call in ("commit", "commit of all", "committed"):
            return
        with pytest.raises(ClosedError, match="is closed: make a new one"):
            await CONSUMER_CALLS[call](reader)
        await reader.close()

    simulate(scenario)


@pytest.mark.parametrize("call", ADMIN_CALLS)
def test_a_closed_admin_says_so(call: str) -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("closed")) as admin:
            await admin.topics()
        with pytest.raises(ClosedError, match="is closed: make a new one"):
            await ADMIN_CALLS[call](admin)
        await admin.close()

    simulate(scenario)


@pytest.mark.parametrize("reached", [True, False], ids=["connected", "nobody answers"])
@pytest.mark.parametrize("iterates", [True, False])
def test_who_waits_for_a_record_is_told(iterates: bool, reached: bool) -> None:
    async def scenario(world: World) -> None:
        if not reached:
            world.kill()
        reader = Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        waiting = asyncio.ensure_future(anext(reader) if iterates else reader.poll(3_600_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await asyncio.gather(reader.close(), reader.close())
        async with asyncio.timeout(10):
            with pytest.raises(ClosedError):
                await waiting
        if not reached:
            await world.start()

    simulate(scenario)


def test_who_waits_for_room_in_the_buffer_is_told_and_so_is_who_waits_for_an_answer() -> None:
    async def scenario(world: World) -> None:
        writer = await Producer(ADDRESS, runtime=world.runtime("writer"), buffer_bytes=100).start()
        await (await writer.send("t", b"first", partition=0))
        world.network.break_connections(PORT)
        world.kill()
        unanswered = await writer.send("t", bytes(200), partition=0)
        waiting = asyncio.ensure_future(writer.send("t", b"waits for room", partition=0))
        await asyncio.sleep(1)
        assert not waiting.done()
        closing = asyncio.ensure_future(writer.close())
        await asyncio.sleep(1)
        await writer.abandon()
        async with asyncio.timeout(10):
            await closing
            with pytest.raises(ClosedError):
                await waiting
            with pytest.raises(ClosedError):
                await unanswered
        await world.start()

    simulate(scenario)


def test_a_thread_that_waits_is_told_when_another_closes_the_client() -> None:
    told: list[BaseException] = []

    def wait(reader: blocking.Consumer) -> None:
        try:
            reader.poll(3_600_000)
        except ClosedError as error:
            told.append(error)

    with running_broker() as broker:
        reader = blocking.Consumer("t", bootstrap_servers=broker.bootstrap_servers)
        reader.poll(10)
        thread = threading.Thread(target=wait, args=[reader])
        thread.start()
        reader.close()
        reader.close()
        thread.join(60)
        assert len(told) == 1
        with pytest.raises(ClosedError):
            reader.poll(10)


def test_a_record_whose_topic_was_looked_up_while_the_producer_was_closed_is_refused() -> None:
    async def scenario(world: World) -> None:
        writer = await Producer(ADDRESS, runtime=world.runtime("closed")).start()
        await (await writer.send("t", b"before", partition=0))
        topic = writer._cluster.topic

        async def closed_meanwhile(*args: Any) -> Any:
            found = await topic(*args)
            await writer.close()
            return found

        writer._cluster.forget_topic("t")
        writer._cluster.topic = closed_meanwhile  # type: ignore[assignment, method-assign]
        with pytest.raises(ClosedError):
            await writer.send("t", b"after", partition=0)
        assert await shown(world) == [b"before"]

    simulate(scenario)


def test_what_became_of_a_record_is_told_after_close_as_well() -> None:
    with running_broker() as broker, blocking.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t")
        with blocking.Producer(broker.bootstrap_servers) as writer:
            sent = writer.send("t", b"")
        assert sent.result().offset == 0


@LEVELS
def test_closing_after_an_abort_that_was_interrupted_aborts(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """It is not left to the time-out, for which readers of committed records would wait."""

    async def scenario(world: World) -> None:
        call, ends = Cluster.call, list[Any]()

        async def losing(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
            if isinstance(request, EndTxnRequest):
                ends.append(request)
                if len(ends) == 1:
                    return await asyncio.get_running_loop().create_future()
            return await call(cluster, node, request, **how)

        monkeypatch.setattr(Cluster, "call", losing)
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"aborted", partition=0))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await writer.abort_transaction()
        assert [end.committed for end in ends] == [False, False]

    simulate(scenario, level)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_producer_is_closed_in_the_time_that_it_was_given(transactional: bool) -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        writer = Producer(ADDRESS, runtime=runtime, transactional_id="id" if transactional else None)
        await writer.start()
        if transactional:
            await writer.init_transactions()
            await writer.begin_transaction()
        await (await writer.send("t", b"first", partition=0))
        world.kill()
        unanswered = await writer.send("t", b"last", partition=0)
        if not transactional:
            with pytest.raises(TimedOutError, match=r"flush\(\)"):
                await writer.flush(500)
            assert not unanswered.done()
        began = asyncio.get_running_loop().time()
        await writer.close(1500)
        assert asyncio.get_running_loop().time() - began <= 1.6
        with pytest.raises(ClientError):
            await unanswered
        await world.start()

    simulate(scenario)


def test_what_can_be_done_in_the_time_for_closing_is_done() -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("u")
        for time_out in (10_000, None):
            writer = await Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=200).start()
            await writer.send("u", b"value", partition=0)
            await writer.close(time_out)
        reader = Consumer("u", group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        assert [record.value for record in await reader.poll(10_000)] == [b"value"] * 2
        await reader.poll(0)
        await reader.close(10_000)
        async with Consumer(group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("look")) as look:
            found = await look.committed([TopicPartition("u", 0)])
        assert found == {TopicPartition("u", 0): OffsetAndMetadata(2, "", 0)}

    simulate(scenario)


def test_a_consumer_is_closed_in_the_time_that_it_was_given() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"value", partition=0)
        reader = Consumer("t", group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        assert await reader.poll(10_000)
        world.kill()
        began = asyncio.get_running_loop().time()
        await reader.close(1000)
        assert asyncio.get_running_loop().time() - began <= 1.1
        await world.start()

    simulate(scenario)


@LEVELS
def test_who_is_closed_while_a_commit_waits_for_its_answer_is_not_told_that_it_failed(level: int) -> None:
    """It may have been carried out: who writes the same again would double it."""

    async def scenario(world: World) -> None:
        told: dict[object, None] = {}
        for number in range(40):
            writing = producer(world, "id")
            await writing.start()
            await writing.init_transactions()
            await writing.begin_transaction()
            await (await writing.send("t", b"%d" % number, partition=0))
            committing = asyncio.ensure_future(writing.commit_transaction())
            await asyncio.sleep(number / 10_000)
            await writing.close(0)
            error = (await asyncio.gather(committing, return_exceptions=True))[0]
            told[type(error)] = None
            visible = b"%d" % number in await shown(world)
            assert visible if error is None else not (visible and isinstance(error, ClosedError))
        assert {CommitInDoubtError, type(None)} <= set(told)

    simulate(scenario, level)


@LEVELS
@pytest.mark.parametrize("closes", [1, 2])
def test_a_commit_that_is_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch, level: int, closes: int) -> None:
    async def scenario(world: World) -> None:
        slowly(monkeypatch, EndTxnRequest, 1)
        writer = await producer(world).start()
        await writer.init_transactions()
        await writer.begin_transaction()
        await writer.send("t", b"committed", partition=0)
        committing = asyncio.ensure_future(writer.commit_transaction())
        await asyncio.sleep(0.5)
        await asyncio.gather(*(writer.close() for _ in range(closes)))
        assert committing.done()
        await committing
        assert await shown(world) == [b"committed"]

    simulate(scenario, level)


@LEVELS
def test_closing_twice_at_once_aborts_once(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    async def scenario(world: World) -> None:
        ends = slowly(monkeypatch, EndTxnRequest, 1)
        writer = await producer(world).start()
        await writer.init_transactions()
        await writer.begin_transaction()
        await (await writer.send("t", b"aborted", partition=0))
        first = asyncio.ensure_future(writer.close())
        await asyncio.sleep(0.5)
        await writer.close()
        assert first.done()
        assert [end.committed for end in ends] == [False]

    simulate(scenario, level)


@pytest.mark.parametrize("closes", [1, 2])
def test_positions_that_are_being_committed_are_waited_for(monkeypatch: pytest.MonkeyPatch, closes: int) -> None:
    async def scenario(world: World) -> None:
        slowly(monkeypatch, OffsetCommitRequest, 1)
        how: dict[str, Any] = {"bootstrap_servers": ADDRESS, "group_id": "group"}
        reader = Consumer("t", auto_commit=False, runtime=world.runtime("reader"), **how)
        await reader.poll(5000)
        committing = asyncio.ensure_future(reader.commit({AT: 7}))
        await asyncio.sleep(0.5)
        await asyncio.gather(*(reader.close() for _ in range(closes)))
        assert committing.done()
        await committing
        async with Consumer(runtime=world.runtime("look"), **how) as look:
            assert await look.committed([AT]) == {AT: OffsetAndMetadata(7)}

    simulate(scenario)


def test_a_second_close_waits_for_the_first_as_long_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        left = slowly(monkeypatch, LeaveGroupRequest, 1)
        reader = Consumer("t", group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        await reader.poll(5000)
        first = asyncio.ensure_future(reader.close())
        await asyncio.sleep(0.1)
        await reader.close(100)
        assert not first.done()
        await reader.close()
        assert first.done() and len(left) == 1

    simulate(scenario)


def test_a_consumer_whose_close_is_cancelled_is_closed() -> None:
    async def scenario(world: World) -> None:
        reader = Consumer("t", group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        await reader.poll(5000)
        world.kill()
        closing = asyncio.ensure_future(reader.close())
        await asyncio.sleep(0.1)
        closing.cancel()
        async with asyncio.timeout(3):
            await reader.close()
        with pytest.raises(ClosedError):
            await reader.poll(10)
        await world.start()

    simulate(scenario)
