"""Fencepost's own clients do the same on an Apache Kafka as on Fencepost, with the newest requests that both know."""

from __future__ import annotations

import asyncio

import pytest
from tests.compare.client.playing import Node, play, reading, take, until
from tests.compare.client.versions import noted_versions

from fencepost.client import Admin, Producer
from fencepost.client.errors import FencedInstanceIdError, ProducerFencedError
from fencepost.protocol.partitioning import partition_for_key

pytestmark = pytest.mark.compare

KEYS = [b"%d" % number for number in range(20)]
#: Of a group that reads; what changes with transaction.version is not among them.
OF_A_CONSUMER = {
    "Fetch": 18,
    "FindCoordinator": 4,
    "Heartbeat": 4,
    "JoinGroup": 9,
    "LeaveGroup": 5,
    "ListOffsets": 7,
    "Metadata": 12,
    "OffsetCommit": 10,
    "OffsetFetch": 7,
    "SyncGroup": 5,
}
OF_A_TRANSACTION = {
    1: {"AddPartitionsToTxn": 3, "AddOffsetsToTxn": 4, "EndTxn": 4, "Produce": 11, "TxnOffsetCommit": 4},
    2: {"EndTxn": 5, "Produce": 12, "TxnOffsetCommit": 5},
}


def test_a_group_reads_and_commits_with_the_newest_requests(node: Node) -> None:
    async def scenario(node: Node) -> None:
        await node.write(b"0", b"1", b"2")
        async with node.reader() as reader:
            assert await take(reader, 3) == [b"0", b"1", b"2"]
            await reader.commit()
            await asyncio.sleep(0.3)
            found = await reader.committed([node.at(0), node.at(1)])
            assert [one and one.offset for one in found.values()] == [3, 0]
            assert await reader.beginning_offsets([node.at(0)]) == {node.at(0): 0}
        await node.write(b"3")
        async with node.reader() as again:
            assert await take(again, 1) == [b"3"]

    with noted_versions() as noted:
        play(scenario, node)
    assert {name: versions for name, versions in noted.items() if name in OF_A_CONSUMER} == {
        name: {version} for name, version in OF_A_CONSUMER.items()
    }


def test_offsets_are_told_by_time_and_stop_before_an_open_transaction(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with node.writer() as plain, node.writer(transactional_id=f"{node.topic}-id") as writer:
            for timestamp in (1000, 3000, 2000):
                await (await plain.send(node.topic, b"v", partition=0, timestamp=timestamp))
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send(node.topic, b"open", partition=0, timestamp=5000))
            ends = {}
            for isolation in ("read_committed", "read_uncommitted"):
                async with node.reader(isolation_level=isolation) as reader:
                    ends[isolation] = (await reader.end_offsets([node.at(0)]))[node.at(0)]
                    times = [(await reader.offsets_for_times({node.at(0): time}))[node.at(0)] for time in (0, 1001)]
                    assert times == [(0, 1000), (1, 3000)]
            assert ends == {"read_committed": 3, "read_uncommitted": 4}
            await writer.abort_transaction()

    play(scenario, node)


def test_positions_of_a_group_are_committed_with_the_transaction_or_not_at_all(node: Node, level: int) -> None:
    async def scenario(node: Node) -> None:
        await node.write(*(b"%d" % number for number in range(6)))
        async with node.reader() as reader, node.writer(transactional_id=f"{node.topic}-id") as writer:
            assert len(await take(reader, 6)) == 6
            await writer.init_transactions()
            for position, commits in ((2, True), (4, False), (5, True)):
                await writer.begin_transaction()
                await writer.send(node.topic, b"out %d" % position, partition=1)
                await writer.send_offsets_to_transaction({node.at(0): position}, reader.group_metadata())
                await (writer.commit_transaction() if commits else writer.abort_transaction())
                (found,) = (await reader.committed([node.at(0)])).values()
                assert found is not None and found.offset == (position if commits else 2)
            assert await take(reader, 2) == [b"out 2", b"out 5"]

    with noted_versions() as noted:
        play(scenario, node)
    assert {name: versions for name, versions in noted.items() if name in OF_A_TRANSACTION[1]} == {
        name: {version} | ({11} if name == "Produce" else set()) for name, version in OF_A_TRANSACTION[level].items()
    }


@pytest.mark.usefixtures("level")
def test_a_successor_fences_the_producer_before_it(node: Node) -> None:
    async def scenario(node: Node) -> None:
        name = f"{node.topic}-id"
        async with node.writer(transactional_id=name) as first, node.writer(transactional_id=name) as second:
            await first.init_transactions()
            await first.begin_transaction()
            await (await first.send(node.topic, b"lost", partition=0))
            await second.init_transactions()
            async with second.transaction():
                await second.send(node.topic, b"kept", partition=0)
            with pytest.raises(ProducerFencedError):
                await first.commit_transaction()
        async with node.reader() as reader:
            assert await take(reader, 1) == [b"kept"]

    play(scenario, node)


@pytest.mark.parametrize("partitions", [2, 3])
def test_a_topic_made_anew_is_read_from_its_beginning(node: Node, partitions: int) -> None:
    """Its records are other ones, and nothing is left of the positions in the one before."""

    async def scenario(node: Node) -> None:
        await node.write(*(b"old %d" % number for number in range(5)))
        async with node.reader() as reader, node.reader(group_id=None) as alone, node.admin() as admin:
            for each in (reader, alone):
                assert len(await take(each, 5)) == 5
            await reader.commit()
            await admin.delete_topic(node.topic)
            for each in (reader, alone):
                assert await each.poll(500) == []
            await reader.commit()
            await made_anew(admin, node.topic, partitions)
            await node.write(b"new 0", b"new 1")
            for each in (reader, alone):
                assert await take(each, 2) == [b"new 0", b"new 1"]
            await reader.commit()
            (found,) = (await reader.committed([node.at(0)])).values()
            assert found is not None and found.offset == 2

    play(scenario, node)


async def made_anew(admin: Admin, topic: str, partitions: int) -> None:
    """A reader's look for it may have made it already, with one partition."""
    await admin.create_topic(topic, partitions=partitions, exist_ok=True)
    there = await admin.partitions(topic)
    if there < partitions:
        await admin.create_partitions(topic, partitions)


def test_a_static_member_that_returns_has_its_partitions_without_a_rebalance(node: Node) -> None:
    async def scenario(node: Node) -> None:
        for partition in range(2):
            await node.write(b"0", partition=partition)
        static = {"group_instance_id": "i", "session_timeout_ms": 30_000}
        async with node.reader(group_instance_id="other") as other:
            async with node.reader(**static) as first:
                async with reading(first, other):
                    await until(lambda: len(first.assignment()) == len(other.assignment()) == 1)
                before, theirs = first.assignment(), other.group_metadata()
                await first.commit()
            async with node.reader(**static) as again:
                async with reading(again):
                    await until(lambda: bool(again.assignment()))
                assert again.assignment() == before
                await other.poll(500)
                assert other.group_metadata() == theirs

    play(scenario, node)


def test_a_static_leader_that_was_away_when_partitions_came_shares_them_out(node: Node) -> None:
    """It is told to assign nothing, and finds out from DescribeGroups that there is something to assign."""

    async def scenario(node: Node) -> None:
        async with node.reader(group_instance_id="i") as first, reading(first):
            await until(lambda: len(first.assignment()) == 2)
        async with node.admin() as admin:
            await admin.create_partitions(node.topic, 3)
        await node.write(b"new", partition=2)
        async with node.reader(group_instance_id="i") as again:
            assert await take(again, 1) == [b"new"]

    play(scenario, node)


def test_of_two_members_with_one_instance_id_the_first_gives_up(node: Node) -> None:
    async def scenario(node: Node) -> None:
        await node.write(b"0")
        static = {"group_instance_id": "i"}
        async with node.reader(**static) as first, node.reader(**static) as second:
            await take(first, 1)
            await take(second, 1)
            with pytest.raises(FencedInstanceIdError):
                await first.commit()
            await second.commit()

    play(scenario, node)


def test_partitions_that_are_added_are_written_to_and_read(node: Node) -> None:
    before, after = ([partition_for_key(key, count) for key in KEYS] for count in (2, 5))

    async def scenario(node: Node) -> None:
        written: list[bytes] = []

        async def places(writer: Producer) -> list[int]:
            """Where a record of each key goes now."""
            values = [b"%d" % (len(written) + number) for number in range(len(KEYS))]
            written.extend(values)
            pairs = zip(KEYS, values, strict=True)
            return [(await (await writer.send(node.topic, value, key=key))).partition for key, value in pairs]

        async with (
            node.reader() as one,
            node.reader() as two,
            node.reader(group_id=None) as alone,
            node.writer() as writer,
            reading(one, two) as by_group,
            reading(alone) as by_itself,
        ):
            await until(lambda: len(one.assignment()) == len(two.assignment()) == 1)
            assert await places(writer) == before
            await until(lambda: sorted(set(by_group)) == sorted(by_itself) == sorted(written))
            async with node.admin() as admin:
                await admin.create_partitions(node.topic, 5)
            while (where := await places(writer)) != after:
                assert all(at in pair for at, pair in zip(where, zip(before, after, strict=True), strict=True))
                await asyncio.sleep(0.1)
            await until(lambda: len(one.assignment()) + len(two.assignment()) == len(alone.assignment()) == 5)
            # A rebalance has positions that are not committed read again.
            await until(lambda: set(by_group) == set(written) and len(by_itself) >= len(written))
            assert sorted(by_itself) == sorted(written)

    play(scenario, node)
