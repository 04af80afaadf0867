"""A caller that waits no longer for `send_offsets_to_transaction` does not know whether the positions are in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.test_producer import LEVELS, producer, simulate

from fencepost.client import Consumer, TopicPartition, TransactionAbortableError
from fencepost.client.cluster import Cluster
from fencepost.protocol.messages import TxnOffsetCommitRequest
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)


def hold_back_the_first(patch: pytest.MonkeyPatch) -> list[Any]:
    """The first TxnOffsetCommit is on its way for as long as somebody waits, and arrives when it is awaited here."""
    call, held = Cluster.call, list[Any]()

    async def holding(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
        if not isinstance(request, TxnOffsetCommitRequest) or held:
            return await call(cluster, node, request, **how)
        held.append(call(cluster, node, request, **how))
        return await asyncio.get_running_loop().create_future()

    patch.setattr(Cluster, "call", holding)
    return held


@LEVELS
def test_positions_of_an_aborted_transaction_are_not_committed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """The request of the one that was aborted arrives in the next one (KAFKA-17754)."""

    async def scenario(world: World) -> None:
        held = hold_back_the_first(monkeypatch)
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"aborted", partition=0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await writer.send_offsets_to_transaction({AT: 99}, "group")
            await writer.abort_transaction()
            await writer.begin_transaction()
            await writer.send("t", b"committed", partition=0)
            await writer.send_offsets_to_transaction({AT: 1}, "group")
            await held[0]
            await writer.commit_transaction()
        async with Consumer(bootstrap_servers=ADDRESS, group_id="group", runtime=world.runtime("reader")) as reader:
            position = (await reader.committed([AT]))[AT]
            assert position is not None
            assert position.offset == 1

    simulate(scenario, level)


@LEVELS
def test_a_transaction_that_may_lack_its_positions_cannot_be_committed(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    async def scenario(world: World) -> None:
        held = hold_back_the_first(monkeypatch)
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"written", partition=0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await writer.send_offsets_to_transaction({AT: 1}, "group")
            with pytest.raises(TransactionAbortableError, match="interrupted"):
                await writer.commit_transaction()
            await writer.abort_transaction()
            held[0].close()

    simulate(scenario, level)


@pytest.mark.parametrize("level", [0, 1])
def test_what_they_may_have_begun_late_is_aborted_before_a_new_epoch_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """Apache Kafka would abort it under an epoch of its own, and answer PRODUCER_FENCED from then on."""

    async def scenario(world: World) -> None:
        held, call, asked = hold_back_the_first(monkeypatch), Cluster.call, list[str]()

        async def noting(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
            asked.append(type(request).__name__)
            return await call(cluster, node, request, **how)

        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await writer.send_offsets_to_transaction({AT: 99}, "group")
            await writer.abort_transaction()
            monkeypatch.setattr(Cluster, "call", noting)
            await writer.begin_transaction()
            assert asked == ["EndTxnRequest", "InitProducerIdRequest"]
            await writer.abort_transaction()
            held[0].close()

    simulate(scenario, level)
