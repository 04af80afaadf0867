"""A topic that was made anew is read from its beginning, and a log that was truncated from where it is different."""

from __future__ import annotations

import asyncio
import pickle
import struct
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.client.test_group import QUICK, SHORT_SESSIONS, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, LogTruncatedError, OffsetAndMetadata
from fencepost.client.lost_positions import find_lost_positions
from fencepost.log.leader_epochs import assigned
from fencepost.protocol.types import LeaderEpoch, Offset, TopicPartition
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def test_the_next_fetch_asks_for_the_topic_that_is_there_now() -> None:
    sought: list[int] = []
    followed = SimpleNamespace(seeks=0, topic_id=OLD, seek=sought.append)
    fetcher = SimpleNamespace(
        followed={AT: followed}, made_anew=lambda: {AT: NEW}, lost=dict, working={AT: 4}, out_of_range={AT: 4}
    )

    async def ends(partitions: list[TopicPartition], _: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def instead_of(lost: dict[TopicPartition, int], **_: bool) -> dict[TopicPartition, int]:
        return lost

    places = SimpleNamespace(ends=ends, instead_of=instead_of)
    asyncio.run(find_lost_positions(cast(Any, fetcher), cast(Any, places)))
    assert (sought, followed.topic_id) == ([0], NEW)
    assert (fetcher.working, fetcher.out_of_range) == ({}, {}), "what was known of the former one counts no more"


@pytest.mark.parametrize("meanwhile", ["sought", "given up"])
@pytest.mark.parametrize("lost", ["made anew", "out of range"])
def test_what_the_caller_said_meanwhile_counts(lost: str, meanwhile: str) -> None:
    """To find a position takes a while, in which the caller may seek, or read the partition no more."""
    sought: list[Any] = []
    one = SimpleNamespace(seeks=3, topic_id=OLD, seek=sought.append, committed=lambda: OffsetAndMetadata(4))
    fetcher = SimpleNamespace(
        followed={AT: one},
        made_anew=lambda: {AT: NEW} if lost == "made anew" else {},
        lost=lambda: {AT: None} if lost == "out of range" else {},
        working={},
        out_of_range={},
    )

    async def found(partitions: Any, *_: Any, **__: Any) -> dict[TopicPartition, int]:
        if partitions and meanwhile == "sought":
            one.seeks += 1
        elif partitions:
            fetcher.followed.clear()
        return dict.fromkeys(partitions, 0)

    places = SimpleNamespace(ends=found, instead_of=found)
    asyncio.run(find_lost_positions(cast(Any, fetcher), cast(Any, places)))
    assert sought == []


# Logs that have not what is to be fetched next


async def lost(consumer: Consumer, at: TopicPartition, offset: int) -> None:
    """It is heard, and nothing is done about it yet, that a partition has no such offset."""
    consumer.seek(at, offset)
    await asyncio.sleep(1)
    consumer._fetcher.fetch()
    await asyncio.sleep(1)
    assert [*consumer._fetcher.lost()] == [at]


@pytest.mark.parametrize("delivery", ["offset_order", "commit_order"])
@pytest.mark.parametrize(("reset", "is_noticed"), [("earliest", True), ("earliest", False), ("error", True)])
def test_a_position_that_is_lost_with_its_topic_keeps_nobody_from_the_others(
    reset: str, is_noticed: bool, delivery: str
) -> None:
    async def scenario(world: World) -> None:
        other = TopicPartition("u", 0)
        async with (
            Admin(ADDRESS, runtime=world.runtime("another admin")) as admin,
            reader(world, reset, delivery=delivery) as consumer,
        ):
            await admin.create_topic("u", partitions=1)
            await write(world, [b"0", b"1", b"2"])
            consumer.assign([AT, other])
            for at in (AT, other):
                consumer.seek(at, 0)
            assert [each.value for each in await consumer.poll(1000, max_records=1)] == [b"0"]
            await lost(consumer, other, 1000)
            await admin.delete_topic("u")
            if is_noticed:
                consumer._fetcher.refresh(["u"])
                await asyncio.sleep(1)
            assert [*consumer._fetcher.out_of_range] == [other]
            assert await offsets(consumer, 2) == [1, 2]
            assert consumer._fetcher.lost() == {}, "where a topic is not there nobody knows where its log begins"
            await admin.create_topic("u", partitions=1)
            await write(world, [b"v"], "u")
            assert [each.topic for each in await take(consumer, 1)] == ["u"]

    simulate(scenario)


@pytest.mark.parametrize("delivery", ["offset_order", "commit_order"])
def test_a_position_that_the_log_has_reached_meanwhile_is_read_on_from(delivery: str) -> None:
    """As of a leader that had not heard yet how far its log goes: what was read from there on is read once."""

    async def scenario(world: World) -> None:
        async with reader(world, "earliest", delivery=delivery) as consumer:
            await write(world, [b"0"])
            consumer.assign([AT])
            consumer.seek(AT, 0)
            assert await offsets(consumer, 1) == [0]
            await lost(consumer, AT, 3)
            await write(world, [b"1", b"2", b"3", b"4"])
            consumer._fetcher.fetch()
            await asyncio.sleep(1)
            assert await offsets(consumer, 3, patience=2) == [3, 4]

    simulate(scenario)


# Logs that have other records than were read (KIP-320)

READ = 6
"""How many records are read before another leader is elected."""


def reader(world: World, reset: str, **options: Any) -> Consumer:
    how: dict[str, Any] = {"group_id": "g", "auto_commit": False, "auto_offset_reset": reset, **QUICK, **options}
    return Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime(f"reader of {world.loop.time()}"), **how)


def elect(world: World, first: int) -> None:
    """As if the leader of another epoch had written what stands there from this offset on."""
    assert world.storage is not None
    partition = world.storage.partition(*AT)
    assert partition is not None
    partition.leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
    starts = [each for each in partition.epoch_starts if each[1] < first]
    partition.epoch_starts = assigned(starts, partition.leader_epoch, Offset(first))
    (segment,) = partition.segments
    for place, header in list(segment.headers_from(0)):
        if header.base_offset >= first:
            segment.file.pwrite(struct.pack(">i", partition.leader_epoch), place + 12)


async def new_leader(world: World, first: int, more: int = 2) -> None:
    elect(world, first)
    await write(world, [b"new"] * more)


async def write_old(world: World) -> None:
    """Each record in a batch of its own, in front of which another leader may begin."""
    for _ in range(READ):
        await write(world, [b"old"])


async def offsets(consumer: Consumer, count: int, patience: float = 5) -> list[int]:
    return [record.offset for record in await take(consumer, count, patience)]


async def begun(world: World, consumer: Consumer) -> None:
    """All that is there is read, and it is heard that nothing follows."""
    await write_old(world)
    consumer.assign([AT])
    consumer.seek(AT, 0)
    assert await offsets(consumer, READ) == list(range(READ))
    assert await consumer.poll(300) == []


@pytest.mark.parametrize("delivery", ["offset_order", "commit_order"])
@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("first", [0, 3, READ - 1, READ])
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_what_stands_now_where_a_log_was_truncated_is_read(reset: str, first: int, more: int, delivery: str) -> None:
    """In commit order nobody can tell which transactions were open there: reading begins as for a lost position."""

    async def scenario(world: World) -> None:
        async with reader(world, reset, delivery=delivery) as consumer:
            await begun(world, consumer)
            await new_leader(world, first, more)
            if reset == "error" and first < READ:
                for _ in range(2):
                    with pytest.raises(LogTruncatedError, match=rf"t-0 was read up to offset 6.*from {first} on.*seek"):
                        await consumer.poll(1000)
                consumer.seek(AT, first)
            begins = first
            if delivery == "commit_order" and first < READ and reset != "error":
                begins = 0 if reset == "earliest" else READ + more
            assert await offsets(consumer, READ + more - begins + 1, 2) == list(range(begins, READ + more))

    simulate(scenario, **SHORT_SESSIONS)


def test_whoever_wants_to_go_on_behind_a_truncation_can() -> None:
    async def scenario(world: World) -> None:
        async with reader(world, "error") as consumer:
            await begun(world, consumer)
            await new_leader(world, 3)
            with pytest.raises(LogTruncatedError) as raised:
                await consumer.poll(1000)
            error = pickle.loads(pickle.dumps(raised.value))
            assert (error.at, error.position, error.parted, str(error)) == (AT, READ, 3, str(raised.value))
            consumer.seek(AT, error.position)
            assert await offsets(consumer, 3, 2) == [READ, READ + 1]

    simulate(scenario, **SHORT_SESSIONS)


def test_records_that_were_fetched_before_a_log_was_truncated_are_handed_out_first() -> None:
    async def scenario(world: World) -> None:
        async with reader(world, "earliest") as consumer:
            await write_old(world)
            consumer.assign([AT])
            found = await consumer.poll(1000, max_records=1)
            await asyncio.sleep(1)
            await new_leader(world, 3)
            found += await take(consumer, 2 * READ + 2 - 3 - 1)
            assert [each.offset for each in found] == [*range(READ), *range(3, READ + 2)]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("polled", [2, READ])
def test_whoever_goes_on_from_a_committed_position_hears_of_a_truncation_since_then(polled: int) -> None:
    """As what the group keeps says in which leader epoch it was reached."""

    async def scenario(world: World) -> None:
        async with reader(world, "latest") as former:
            await write_old(world)
            former.assign([AT])
            former.seek(AT, 0)
            found = await former.poll(1000, max_records=polled)
            assert [each.offset for each in found] == list(range(polled))
            await former.commit()
            assert await former.committed([AT]) == {AT: OffsetAndMetadata(polled, "", 0)}
        await new_leader(world, 1)
        async with reader(world, "latest") as next_one:
            next_one.assign([AT])
            assert await offsets(next_one, READ + 2, 2) == list(range(1, READ + 2))

    simulate(scenario, **SHORT_SESSIONS)


def test_a_log_of_several_leaders_that_lost_nothing_is_read_once() -> None:
    """Wherever reading goes on from what is committed: a leader epoch that is too early would turn it back."""

    async def scenario(world: World) -> None:
        total = 0
        for count in (3, 1, 4):
            await write(world, [b"x"] * count)
            total += count
            elect(world, total)
        await write(world, [b"x"])
        for size in range(1, total + 2):
            found = list[int]()
            while len(found) <= total:
                async with reader(world, "earliest", group_id=f"by {size}") as consumer:
                    consumer.assign([AT])
                    found += [each.offset for each in await consumer.poll(1000, max_records=size)]
                    await consumer.commit()
            assert found == list(range(total + 1))

    simulate(scenario, **SHORT_SESSIONS)


def test_whoever_seeks_is_not_held_against_what_was_read_before() -> None:
    async def scenario(world: World) -> None:
        async with reader(world, "error") as consumer:
            await write(world, [b"x"] * 3)
            elect(world, 3)
            await write(world, [b"x"] * 3)
            consumer.assign([AT])
            consumer.seek(AT, 4)
            assert await offsets(consumer, 2) == [4, 5]
            elect(world, 6)
            consumer.seek(AT, 1)
            assert await offsets(consumer, 5) == [1, 2, 3, 4, 5]
            consumer.seek(AT, OffsetAndMetadata(3, "", 0))
            assert await offsets(consumer, 3) == [3, 4, 5]
            consumer.seek(AT, OffsetAndMetadata(4, "", 0))
            with pytest.raises(LogTruncatedError, match=r"up to offset 4.*from 3 on"):
                await consumer.poll(1000)

    simulate(scenario, **SHORT_SESSIONS)


def test_a_reader_in_commit_order_that_is_sent_elsewhere_reads_on_in_a_log_of_several_leaders() -> None:
    async def scenario(world: World) -> None:
        async with reader(world, "error", delivery="commit_order") as consumer:
            await begun(world, consumer)
            await new_leader(world, READ)
            consumer.seek(AT, READ + 1)
            assert await offsets(consumer, 1) == [READ + 1]
            consumer.seek(AT, 2)
            assert await offsets(consumer, READ) == list(range(2, READ + 2))

    simulate(scenario, **SHORT_SESSIONS)
