"""Fewer acknowledgements than all: which settings go together, what is told, and what goes on when a node moves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.client.test_producer import shown, simulate

from fencepost.client import Producer
from fencepost.client.acknowledgements import checked_acks
from fencepost.client.batch_ends import BatchEnds
from fencepost.client.batches import Batch
from fencepost.client.errors import BrokerError
from fencepost.client.lanes import Lane
from fencepost.protocol.batch import read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.types import NO_PRODUCER, TopicPartition
from fencepost.simulation.world import ADDRESS, PORT, World

AT = TopicPartition("t", 0)


@pytest.mark.parametrize("acks", ["all", -1, "-1", 1, "1", 0, "0", 2, "one", True, None, 1.0])
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("transactional_id", [None, "id"])
def test_every_mix_of_settings_is_taken_or_refused_by_name(
    acks: Any, idempotent: bool, transactional_id: str | None
) -> None:
    known = {"all": -1, -1: -1, "-1": -1, 1: 1, "1": 1, 0: 0, "0": 0}
    legal = not isinstance(acks, bool | float) and acks in known
    needs_all = idempotent or transactional_id is not None
    if legal and (known[acks] == -1 or not needs_all) and (idempotent or transactional_id is None):
        assert checked_acks(acks, enable_idempotence=idempotent, transactional_id=transactional_id) == known[acks]
    else:
        with pytest.raises((TypeError, ValueError), match=r"^(acks|enable_idempotence)="):
            Producer(ADDRESS, acks=acks, enable_idempotence=idempotent, transactional_id=transactional_id)


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_records_without_numbers_are_written_in_order_and_told(acks: int | str) -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, acks=acks, enable_idempotence=False, batch_bytes=100) as writer:
            told = [await writer.send("t", b"%03d" % n, partition=0) for n in range(200)]
            many = await writer.send_many("t", [b"%03d" % n for n in range(200, 300)], partition=0)
            found = await asyncio.gather(*told)
            assert [each.offset for each in found] == ([-1] * 200 if acks == 0 else list(range(200)))
            assert (await many).offsets == ({} if acks == 0 else {TopicPartition("t", 0): [range(200, 300)]})
        assert await shown(world) == [b"%03d" % n for n in range(300)]

    simulate(scenario)


@pytest.mark.parametrize("acks", ["all", 1])
def test_a_refused_batch_takes_none_with_it_and_the_producer_goes_on(acks: int | str) -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, acks=acks, enable_idempotence=False, batch_bytes=1) as writer:
            told = [await writer.send("t", bytes(size), partition=0) for size in (1, 2000, 2, 2000, 3)]
            found = await asyncio.gather(*told, return_exceptions=True)
            assert [isinstance(each, BrokerError) for each in found] == [False, True, False, True, False]
            assert writer.statistics().record_error_total == 2
        assert await shown(world) == [bytes(1), bytes(2), bytes(3)]

    simulate(scenario, **{"message.max.bytes": 1000})


def test_a_connection_that_ends_is_taken_for_a_refusal_where_nothing_is_answered() -> None:
    """The node may not lead the partition any more: its leader is looked up again."""

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, acks=0, enable_idempotence=False) as writer:
            await writer.send_and_wait("t", b"1", partition=0)
            await asyncio.sleep(1)  # it arrives
            topic = writer._cluster.topics["t"]
            world.network.break_connections(PORT)
            await asyncio.sleep(1)
            await writer.send_and_wait("t", b"2", partition=0)
            assert writer._cluster.topics["t"] is not topic
        await asyncio.sleep(1)
        assert await shown(world) == [b"1", b"2"]

    simulate(scenario)


def test_a_batch_without_numbers_that_fails_takes_none_with_it_that_is_on_its_way() -> None:
    lane, batches = Lane(AT), [Batch(AT, Compression.NONE, deadline=1.0) for _ in range(3)]
    lane.is_known = True
    for batch in batches:
        batch.append(0, None, b"", (), None)
        lane.queue.append(batch)
        assert (
            read_header(lane.take(NO_PRODUCER, "the connection", transactional=False).data or b"").base_sequence == -1
        )
    assert not lane.give_up(batches[1], is_spent=True, others_fail=True)
    assert list(lane.in_flight) == [batches[0], batches[2]]
    assert lane.take_stranded() == []


def test_whatever_a_transactional_id_is_it_needs_numbers() -> None:
    """Also one of which it is said elsewhere that it is too short."""
    with pytest.raises(ValueError, match=r"^enable_idempotence=False"):
        checked_acks("all", enable_idempotence=False, transactional_id="")


@pytest.mark.parametrize("is_idle", [True, False])
def test_who_waits_for_room_hears_of_each_batch_that_has_ended(is_idle: bool) -> None:
    told: list[str] = []
    ends: Any = SimpleNamespace(_busy={AT: None}, settled=lambda: told.append("settled"))
    BatchEnds.settle(ends, cast(Any, SimpleNamespace(is_idle=is_idle, at=AT)))
    assert told == ["settled"] and list(ends._busy) == ([] if is_idle else [AT])
