"""A producer without transactions that lost a batch: the next epoch, from sequence 0 (KIP-360)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.client.test_producer import shown, simulate

from fencepost.broker.network.registry import SERVED, Reply, independent
from fencepost.client import Producer
from fencepost.client.batches import Batch
from fencepost.client.cluster import Cluster
from fencepost.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    DeliveryError,
    UnreachableError,
)
from fencepost.client.idempotence import Idempotence
from fencepost.client.outcomes import Outcome
from fencepost.protocol.batch import read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import InitProducerIdResponse
from fencepost.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from fencepost.protocol.types import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition
from fencepost.simulation.world import ADDRESS, PORT, World


def epochs(world: World) -> list[tuple[int, int]]:
    """What partition 0 knows of its producers: epoch and last sequence."""
    assert world.broker is not None
    partition = world.broker.node.storage.partition("t", 0)
    assert partition is not None
    return [(each.producer_epoch, each.last_sequence) for each in partition.active_producers()]


@pytest.mark.promise("360.idempotent-bump")
def test_what_follows_a_batch_that_was_given_up_has_the_next_epoch() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("idempotent")
        async with Producer(ADDRESS, runtime=runtime, delivery_timeout_ms=500) as writer:
            for value in (b"first", b"second"):
                await (await writer.send("t", value, partition=0))
            assert epochs(world) == [(0, 1)]
            lost = await writer.send("t", b"lost", partition=0)
            await asyncio.sleep(0.0005)  # it is on its way
            world.kill()
            with pytest.raises(ClientError):
                await lost
            await world.start()
            await (await writer.send("t", b"after", partition=0))
            assert epochs(world) == [(1, 0)]
        assert [value for value in await shown(world) if value != b"lost"] == [b"first", b"second", b"after"]

    simulate(scenario)


def test_the_numbers_of_a_batch_in_doubt_are_not_given_to_the_next_one() -> None:
    """It was written, its answer lost; sent again it is refused, since the broker's clock was set back meanwhile."""

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("idempotent")) as writer:
            await (await writer.send("t", b"first", partition=0))
            doubtful = await writer.send("t", b"doubtful", partition=0)
            while epochs(world) != [(0, 1)]:  # noqa: ASYNC110
                await asyncio.sleep(0.0001)
            world.network.break_connections(PORT)
            world.clock.skew_ms -= 2 * 3_600_000
            with pytest.raises(BrokerError, match="its time"):
                await doubtful
            world.clock.skew_ms += 2 * 3_600_000
            await (await writer.send("t", b"after", partition=0))
            assert epochs(world) == [(1, 0)]
        assert await shown(world) == [b"first", b"doubtful", b"after"]

    simulate(scenario)


def test_so_it_is_where_a_batch_in_doubt_fails_since_its_topic_may_not_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def denied(_: Cluster, topic: str, *__: Any, **___: Any) -> Any:
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("idempotent")) as writer:
            await (await writer.send("t", b"first", partition=0))
            doubtful = await writer.send("t", b"doubtful", partition=0)
            while epochs(world) != [(0, 1)]:  # noqa: ASYNC110
                await asyncio.sleep(0.0001)
            with monkeypatch.context() as patch:
                patch.setattr(Cluster, "topic", denied)
                world.network.break_connections(PORT)
                with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                    await doubtful
            await (await writer.send("t", b"after", partition=0))
            assert epochs(world) == [(1, 0)]
        assert await shown(world) == [b"first", b"doubtful", b"after"]

    simulate(scenario)


#: A leader may have written a batch whose numbers it refuses so, or of which it does not know what went wrong.
NOT_SURELY_REFUSED = (
    *(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH),
    *(ErrorCode.UNKNOWN_SERVER_ERROR, 999),
)


@pytest.mark.promise("360.permanent-sequence")
@pytest.mark.parametrize("code", NOT_SURELY_REFUSED)
def test_a_batch_that_lost_its_place_is_not_sent_again_under_other_numbers(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has written it, and answers an error: the user chooses whether to send the record again."""
    handler, asked = SERVED[0].handler, 0

    def refused_after_all(request: Any, context: Any, node: Any) -> Any:
        nonlocal asked
        asked += 1
        reply = handler(request, context, node)
        assert isinstance(reply, Reply)
        if asked == 2:
            reply.response.responses[0].partition_responses[0].error_code = code
        return reply

    monkeypatch.setitem(SERVED, 0, replace(SERVED[0], handler=refused_after_all))

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("idempotent")) as writer:
            await (await writer.send("t", b"first", partition=0))
            with pytest.raises(BrokerError, match="were refused") as told:
                await (await writer.send("t", b"in doubt", partition=0))
            after = await (await writer.send("t", b"after", partition=0))
            assert (after.offset, epochs(world)) == (2, [(1, 0)])
            assert ("is not known" in str(told.value)) == (code in (ErrorCode.UNKNOWN_SERVER_ERROR, 999))
        assert await shown(world) == [b"first", b"in doubt", b"after"]

    simulate(scenario)


@pytest.mark.promise("360.later-batches-fail")
@pytest.mark.parametrize(
    "errors",
    [[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_TIMESTAMP]],
    ids=["its number", "its records, after a try that may have written them"],
)
def test_later_batches_that_have_numbers_fail_with_one_that_fails_for_good(
    errors: list[ErrorCode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent afterwards goes under the next epoch."""
    told = iter(errors)
    handler = SERVED[0].handler
    numbers: list[tuple[int, int]] = []

    def second_fails(request: Any, context: Any, node: Any) -> Any:
        [partition] = request.topic_data[0].partition_data
        batch = read_header(partition.records)
        numbers.append((batch.producer_epoch, batch.base_sequence))
        if numbers[-1] != (0, 1):
            return handler(request, context, node)
        error = next(told)
        answer = PartitionProduceResponse(index=partition.index, error_code=error, base_offset=-1)
        topic = TopicProduceResponse(name=request.topic_data[0].name, partition_responses=[answer])
        return independent(ProduceResponse(responses=[topic]))

    monkeypatch.setitem(SERVED, 0, replace(SERVED[0], handler=second_fails))

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("idempotent"), batch_bytes=1, linger_ms=0) as writer:
            await (await writer.send("t", b"0", partition=0))
            later = [await writer.send("t", b"%d" % n, partition=0) for n in range(1, 5)]
            with pytest.raises(BrokerError, match=errors[-1].name):
                await later[0]
            for each in later[1:]:
                with pytest.raises(DeliveryError, match="with those before them"):
                    await each
            await (await writer.send("t", b"5", partition=0))
        assert numbers == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), *[(0, 1)] * (len(errors) - 1), (1, 0)]
        assert await shown(world) == [b"0", b"5"]

    simulate(scenario)


@pytest.mark.parametrize("epoch", [0, 1, MAX_PRODUCER_EPOCH - 1, MAX_PRODUCER_EPOCH])
def test_after_the_last_epoch_comes_another_producer_id(epoch: int) -> None:
    who = ProducerIdAndEpoch.of(7, epoch)
    rules = Idempotence(cast(Cluster, None))
    rules._producer_id_and_epoch = who
    batch = Batch(TopicPartition("t", 0), Compression.NONE, 0.0)
    batch.producer_id_and_epoch = who
    for _ in range(2):  # the second one is of an epoch that is left already
        rules.failed(batch, Outcome.ABORTABLE, DeliveryError("too late"), True)
        following = None if epoch == MAX_PRODUCER_EPOCH else ProducerIdAndEpoch.of(7, epoch + 1)
        assert rules._producer_id_and_epoch == following


def answered(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


#: What the request for a producer id may meet, each of which passes.
PASSING = {
    "lost": ConnectionLostError("x"),
    "nobody there": UnreachableError("x"),
    "not the coordinator yet": answered(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "still loading": answered(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
}


@pytest.mark.parametrize("max_block_ms", [60_000, 300], ids=["in one call", "over several calls"])
@pytest.mark.parametrize("passing", PASSING.values(), ids=PASSING)
def test_a_producer_id_is_asked_for_until_it_is_there(
    passing: Any, max_block_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also longer than a call may take: the record has its own time."""
    request, passes_at = Idempotence._request, 3.0

    async def meeting(rules: Idempotence) -> InitProducerIdResponse:
        if asyncio.get_running_loop().time() >= passes_at:
            return await request(rules)
        if isinstance(passing, Exception):
            raise passing
        assert isinstance(passing, InitProducerIdResponse)
        return passing

    async def scenario(world: World) -> None:
        nonlocal passes_at
        passes_at = asyncio.get_running_loop().time() + 2
        monkeypatch.setattr(Idempotence, "_request", meeting)
        options: dict[str, Any] = {"max_block_ms": max_block_ms, "runtime": world.runtime("writer")}
        async with Producer(ADDRESS, **options) as writer, asyncio.timeout(5):
            await (await writer.send("t", b"patient", partition=0))
        assert await shown(world) == [b"patient"]

    simulate(scenario)


def test_who_is_not_let_in_fails_what_was_sent_until_then_and_may_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password may have been changed, at the broker or here."""

    async def not_let_in(_: Idempotence) -> InitProducerIdResponse:
        raise AuthenticationError("x")

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with monkeypatch.context() as patch:
                patch.setattr(Idempotence, "_request", not_let_in)
                with pytest.raises(AuthenticationError):
                    await (await writer.send("t", b"locked out", partition=0))
            await (await writer.send("t", b"let in", partition=0))
        assert await shown(world) == [b"let in"]

    simulate(scenario)


def test_who_is_given_no_producer_id_is_told_so_by_every_send(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: Idempotence) -> InitProducerIdResponse:
        return answered(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def scenario(world: World) -> None:
        monkeypatch.setattr(Idempotence, "_request", refused)
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with pytest.raises(BrokerError, match="no producer id was given"):
                await (await writer.send("t", b"refused", partition=0))
            for _ in range(2):
                with pytest.raises(BrokerError, match="no producer id was given"):
                    await writer.send("t", b"not taken", partition=0)

    simulate(scenario)


def test_nothing_is_left_of_an_id_that_is_asked_for_when_the_producer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(_: Idempotence) -> InitProducerIdResponse:
        await asyncio.sleep(1000)
        raise AssertionError("nobody waits for so long")

    async def scenario(world: World) -> None:
        before = asyncio.all_tasks()
        monkeypatch.setattr(Idempotence, "_request", silent)
        writer = await Producer(ADDRESS, runtime=world.runtime("writer")).start()
        told = await writer.send("t", b"too late", partition=0)
        await writer.close(timeout_ms=100)
        with pytest.raises(ClosedError):
            await told
        assert asyncio.all_tasks() <= before

    simulate(scenario)
