"""The producer on virtual time, against the real broker: commits, recovery, misuse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencepost.client import (
    Admin,
    Consumer,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from fencepost.client.errors import BrokerError, MisuseError, TransactionAbortedError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

Scenario = Callable[[World], Awaitable[None]]


def simulate(scenario: Scenario, transaction_version: int = 2, **settings: object) -> None:
    """Run a scenario, within 400 virtual seconds, against a fresh broker with a topic `t` of two partitions."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 7, settings)
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.update_feature("transaction.version", transaction_version)
            await admin.create_topic("t", partitions=2)
        async with asyncio.timeout(400):
            await scenario(world)
        await world.stop()

    run(main)


def producer(world: World, name: str = "id", **options: int) -> Producer:
    runtime = world.runtime(f"{name}-{world.random.random()}")
    return Producer(ADDRESS, transactional_id=name, runtime=runtime, transaction_timeout_ms=1000, **options)  # type: ignore[arg-type]


async def shown(world: World) -> list[bytes]:
    partitions = [TopicPartition("t", n) for n in range(2)]
    async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), fetch_max_wait_ms=50) as consumer:
        consumer.assign(partitions)
        values: list[bytes] = []
        while records := await consumer.poll(500):
            values += [record.value or b"" for record in records]
        return values


async def fail_in(writer: Producer) -> None:
    async with writer.transaction():
        await writer.send("t", b"lost", partition=0)
        raise ZeroDivisionError


async def fail_when_replaced(writer: Producer, other: Producer, error: type[BaseException]) -> None:
    async with writer.transaction():
        await (await writer.send("t", b"lost", partition=0))
        async with other:
            await other.init_transactions()
        raise error


async def go_on_and_commit(writer: Producer, call: str) -> None:
    if call == "send":
        await writer.send("t", b"too late", partition=1)
    elif call == "offsets":
        await writer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group")
    await writer.commit_transaction()


LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


@LEVELS
def test_a_commit_waits_for_every_record_that_was_sent_before_it(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            for number in range(200):
                await writer.begin_transaction()
                sent = [await writer.send("t", b"%d-%d" % (number, n), partition=n % 2) for n in range(5)]
                await writer.commit_transaction()
                assert all(future.done() for future in sent), "the commit overtook a send"
        assert len(await shown(world)) == 1000

    simulate(scenario, level)


@LEVELS
def test_an_aborted_transaction_shows_nothing_and_the_next_one_all(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            for number in range(10):
                await writer.begin_transaction()
                future = await writer.send("t", b"%d" % number, partition=0)
                if number % 2:
                    await writer.commit_transaction()
                else:
                    await writer.abort_transaction()
                    assert future.done()
        assert sorted(await shown(world)) == sorted(b"%d" % n for n in range(1, 10, 2))

    simulate(scenario, level)


@LEVELS
def test_a_block_that_raises_is_aborted(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            with pytest.raises(ZeroDivisionError):
                await fail_in(writer)
            async with writer.transaction():
                await writer.send("t", b"kept", partition=0)
        assert await shown(world) == [b"kept"]

    simulate(scenario, level)


@pytest.mark.promise("588.same-producer", "588.produce", "588.older-brokers")
@LEVELS
@pytest.mark.parametrize("first_call", ["commit", "send", "offsets"])
def test_the_same_producer_goes_on_after_a_time_out(level: int, first_call: str) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"late", partition=0))
            await asyncio.sleep(15)
            with pytest.raises(TransactionAbortableError) as told:
                await go_on_and_commit(writer, first_call)
            if first_call != "send":
                assert isinstance(told.value, TransactionTimedOutError)
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"again", partition=0)
        assert await shown(world) == [b"again"]

    simulate(scenario, level)


@pytest.mark.promise("588.abort")
@LEVELS
def test_the_same_producer_goes_on_after_it_aborts_what_was_timed_out(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"late", partition=0))
            await asyncio.sleep(15)
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"again", partition=0)
        assert await shown(world) == [b"again"]

    simulate(scenario, level)


@pytest.mark.promise("2014.one-producer")
@LEVELS
def test_a_producer_that_was_replaced_is_told_so_and_writes_nothing(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as first, producer(world) as second:
            await first.init_transactions()
            await first.begin_transaction()
            await (await first.send("t", b"zombie", partition=0))
            await second.init_transactions()
            async with second.transaction():
                await second.send("t", b"successor", partition=0)
            with pytest.raises(ProducerFencedError, match="taken over"):
                await first.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await first.begin_transaction()
        assert await shown(world) == [b"successor"]

    simulate(scenario, level)


@pytest.mark.promise("360.abort-and-go-on")
@LEVELS
def test_a_record_that_is_refused_fails_the_commit_and_the_rest_is_not_shown(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=3_000_000) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"small", partition=0)
            await writer.send("t", bytes(2_000_000), partition=1)
            with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
                await writer.commit_transaction()
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"after", partition=1)
        assert await shown(world) == [b"after"]

    simulate(scenario, level)


@LEVELS
@pytest.mark.parametrize("why", ["timed out", "too large"])
def test_a_record_of_a_transaction_that_has_failed_says_to_abort_it(why: str, level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=3_000_000) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"first", partition=0))
            if why == "timed out":
                await asyncio.sleep(30)
            told = await writer.send("t", bytes(2_000_000 if why == "too large" else 1), partition=0)
            with pytest.raises(TransactionAbortableError, match="abort it, then go on") as raised:
                await told
            assert isinstance(raised.value.__cause__, BrokerError)
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"after", partition=0)
        assert await shown(world) == [b"after"]

    simulate(scenario, level)


def test_features_that_change_between_transactions_are_followed() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer, Admin(ADDRESS, runtime=world.runtime("changer")) as admin:
            await writer.init_transactions()
            for number, level in enumerate([1, 2, 0, 2, 1]):
                await admin.update_feature("transaction.version", level)
                for _ in range(2):
                    try:
                        async with writer.transaction():
                            await writer.send("t", b"%d" % number, partition=0)
                        break
                    except TransactionAbortableError:
                        world.network.break_connections(9092)
                        await asyncio.sleep(1)
        assert set(await shown(world)) == {b"%d" % number for number in range(5)}
        assert len(await shown(world)) == 5

    simulate(scenario)


@pytest.mark.promise("2014.idempotent-alone")
def test_without_transactions_a_broken_connection_doubles_nothing() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("idempotent")
        async with Producer(ADDRESS, runtime=runtime) as writer:
            futures = []
            for number in range(300):
                futures.append(await writer.send("t", b"%d" % number, partition=0))
                if number % 20 == 0:
                    await asyncio.sleep(0.002)
                    world.network.break_connections(9092)
            offsets = [(await future).offset for future in futures]
        assert await shown(world) == [b"%d" % number for number in range(300)]
        assert [offset for offset in offsets if offset >= 0] == sorted({offset for offset in offsets if offset >= 0})

    simulate(scenario)


AT_ONCE: dict[str, Callable[[Producer], Awaitable[None]]] = {
    "commit_transaction": lambda writer: writer.commit_transaction(),
    "abort_transaction": lambda writer: writer.abort_transaction(),
    "send_offsets_to_transaction": lambda writer: writer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g"),
}


@LEVELS
@pytest.mark.parametrize("second", AT_ONCE)
@pytest.mark.parametrize("first", AT_ONCE)
def test_of_two_calls_at_once_the_second_is_refused_and_the_next_transaction_is_its_own(
    first: str, second: str, level: int
) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"first", partition=0)
            under_way = asyncio.ensure_future(AT_ONCE[first](writer))
            await asyncio.sleep(0.001)
            with pytest.raises(MisuseError, match=f"{second}.*"):
                await AT_ONCE[second](writer)
            await under_way
            if first == "send_offsets_to_transaction":
                await writer.commit_transaction()
            await writer.begin_transaction()
            await writer.send("t", b"aborted", partition=0)
            await writer.abort_transaction()
        assert await shown(world) == ([] if first == "abort_transaction" else [b"first"])

    simulate(scenario, level)


@LEVELS
def test_a_commit_that_was_cancelled_may_be_called_again(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"first", partition=0)
            cancelled = asyncio.ensure_future(writer.commit_transaction())
            await asyncio.sleep(0.001)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
            for call in (writer.begin_transaction, writer.abort_transaction):
                with pytest.raises(MisuseError, match=r"not confirmed: call commit_transaction\(\) again to find out"):
                    await call()
            await writer.commit_transaction()
        assert await shown(world) == [b"first"]

    simulate(scenario, level)


@LEVELS
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_an_abort_that_fails_does_not_hide_why_the_block_ended(error: type[BaseException], level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            with pytest.raises(error) as raised:
                await fail_when_replaced(writer, producer(world), error)
            assert "could not be aborted" in raised.value.__notes__[0]
        assert await shown(world) == []

    simulate(scenario, level)


def test_misuse_is_told_with_what_to_do() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            with pytest.raises(MisuseError, match="init_transactions"):
                await writer.begin_transaction()
            await writer.init_transactions()
            with pytest.raises(MisuseError, match="begin_transaction"):
                await writer.send("t", b"")
            with pytest.raises(MisuseError, match="begin_transaction"):
                await writer.commit_transaction()
            await writer.begin_transaction()
            with pytest.raises(KafkaError) as told:
                await writer.send("t", b"", partition=7)
            assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            future = await writer.send("t", b"", partition=0)
            await writer.abort_transaction()
            if future.exception() is not None:
                assert isinstance(future.exception(), TransactionAbortedError)
        async with Producer(ADDRESS, runtime=world.runtime("plain")) as plain:
            with pytest.raises(MisuseError, match="transactional_id"):
                await plain.begin_transaction()

    simulate(scenario)


@LEVELS
def test_positions_without_a_record_are_a_transaction_too(level: int) -> None:
    async def scenario(world: World) -> None:
        at = TopicPartition("t", 0)
        async with producer(world) as writer:
            await writer.init_transactions()
            for number, commits in enumerate((True, False, True)):
                await writer.begin_transaction()
                await writer.send_offsets_to_transaction({at: number}, "group")
                await (writer.commit_transaction() if commits else writer.abort_transaction())
                runtime = world.runtime(f"look-{number}")
                async with Consumer(bootstrap_servers=ADDRESS, group_id="group", runtime=runtime) as group:
                    position = (await group.committed([at]))[at]
                    assert position is not None
                    assert position.offset == (number if commits else 0)

    simulate(scenario, level)


@LEVELS
def test_a_transaction_whose_positions_are_refused_is_not_committed(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"lost", partition=0)
            with pytest.raises(TransactionAbortableError):
                await writer.send_offsets_to_transaction(
                    {TopicPartition("t", 0): OffsetAndMetadata(1, "x" * 11)}, "group"
                )
            with pytest.raises(TransactionAbortableError):
                await writer.commit_transaction()
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"kept", partition=0)
        assert await shown(world) == [b"kept"]

    simulate(scenario, level, **{"offset.metadata.max.bytes": 10})


def test_records_that_are_refused_leave_their_room_to_others() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, buffer_bytes=5000, runtime=world.runtime("writer")) as writer:
            async with asyncio.timeout(60):
                for _ in range(10):
                    with pytest.raises(BrokerError):
                        await (await writer.send("t", b"x" * 2000, partition=0))
                assert (await (await writer.send("t", b"small", partition=0))).offset == 0

    simulate(scenario, **{"message.max.bytes": 1000})
