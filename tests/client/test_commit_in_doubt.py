"""Before transaction.version 2 a commit whose answer is lost may stay in doubt, and is said to be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.test_producer import producer, shown, simulate

from fencepost.client import CommitInDoubtError, TransactionAbortableError
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ConnectionLostError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from fencepost.protocol.types import Milliseconds, ProducerIdAndEpoch
from fencepost.simulation.world import World

OLDER = pytest.mark.parametrize("level", [0, 1])


def lose_the_first_end(patch: pytest.MonkeyPatch, world: World, *, carried_out: bool) -> list[EndTxnRequest]:
    """The first EndTxn gets no answer; after it an InitProducerId of the epoch before arrives, long overdue."""
    call, lost = Cluster.call, list[EndTxnRequest]()

    async def losing(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
        if not isinstance(request, EndTxnRequest) or lost:
            return await call(cluster, node, request, **how)
        lost.append(request)
        if carried_out:
            await call(cluster, node, request, **how)
            assert world.broker is not None
            pair = request.producer_id, request.producer_epoch - 1
            late = world.broker.node.transactions.init_producer_id(
                request.transactional_id, Milliseconds(1000), *ProducerIdAndEpoch.of(*pair)
            )
            assert (late.producer_id, late.producer_epoch) == (request.producer_id, request.producer_epoch)
        raise ConnectionLostError("the connection is gone")

    patch.setattr(Cluster, "call", losing)
    return lost


@OLDER
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_repeated_commit_is_not_taken_for_refused_when_it_may_be_committed(
    monkeypatch: pytest.MonkeyPatch, level: int, carried_out: bool
) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"too slow", partition=0))
            await asyncio.sleep(15)
            await writer.abort_transaction()
            await writer.begin_transaction()
            await writer.send("t", b"in doubt", partition=0)
            with monkeypatch.context() as patch:
                lost = lose_the_first_end(patch, world, carried_out=carried_out)
                if carried_out:
                    with pytest.raises(CommitInDoubtError, match="read the output"):
                        await writer.commit_transaction()
                    with pytest.raises(CommitInDoubtError):
                        await writer.begin_transaction()
                else:
                    await writer.commit_transaction()
                assert lost
        assert await shown(world) == [b"in doubt"]

    simulate(scenario, level)


@OLDER
def test_a_commit_that_is_answered_at_once_is_never_in_doubt(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"too slow", partition=0))
            await asyncio.sleep(15)
            with pytest.raises(TransactionAbortableError):
                await writer.commit_transaction()
            await writer.abort_transaction()
        assert await shown(world) == []

    simulate(scenario, level)


@OLDER
def test_what_came_late_is_ended_before_a_new_epoch_is_asked_for(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka ends what InitProducerId finds open by an epoch of its own, and then takes us for fenced."""
    call, late, asked = Cluster.call, list[tuple[int, Any]](), list[str]()

    async def losing(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
        if isinstance(request, AddPartitionsToTxnRequest) and not late:
            late.append((node, request))
            raise ConnectionLostError("the connection is gone")
        if isinstance(request, EndTxnRequest | InitProducerIdRequest):
            asked.append(type(request).__name__)
        return await call(cluster, node, request, **how)

    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            monkeypatch.setattr(Cluster, "call", losing)
            async with writer.transaction():
                await writer.send("t", b"first", partition=0)
            ((node, request),) = late
            await writer._cluster.call(node, request, most=3)  # it arrives now, and opens a transaction
            asked.clear()
            async with writer.transaction():
                assert asked == ["EndTxnRequest", "InitProducerIdRequest"]
                await writer.send("t", b"second", partition=1)
            asked.clear()
            async with writer.transaction():
                assert asked == [], "only once"
        assert await shown(world) == [b"first", b"second"]

    simulate(scenario, level)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, 999])
def test_a_commit_that_failed_nobody_knows_where_may_be_committed(
    level: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has decided, and then something went wrong there; or a newer one says what is not known here."""
    call = Cluster.call

    async def failing(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
        answer = await call(cluster, node, request, **how)
        if isinstance(request, EndTxnRequest):
            answer.error_code = code
        return answer

    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"in doubt", partition=0)
            monkeypatch.setattr(Cluster, "call", failing)
            with pytest.raises(CommitInDoubtError, match="read the output"):
                await writer.commit_transaction()
            with pytest.raises(CommitInDoubtError):
                await writer.begin_transaction()
        assert await shown(world) == [b"in doubt"]

    simulate(scenario, level)
