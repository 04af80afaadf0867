"""Our consumers in groups of the new protocol (KIP-848), whose coordinator is an Apache Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest
from benchmarks.apache_kafka import restartable_apache_kafka
from tests.client.test_rebalances import Notes
from tests.compare.client.playing import Node, play, reading, take, until
from tests.compare.client.versions import noted_versions
from tests.compare.nodes.two_nodes import skipped_without_kafka
from tests.compare.stock_clients.java_member import java_member

from fencepost.client import (
    BrokerError,
    CommitFailedError,
    Consumer,
    ErrorCode,
    ExactlyOnce,
    SubscriptionPattern,
    TopicPartition,
)

pytestmark = pytest.mark.compare

QUICK: Mapping[str, str] = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.max.size": "5",
}
PARTITIONS = 4


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with skipped_without_kafka(), restartable_apache_kafka(QUICK, {"transaction.version": 2}) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def node(address: str) -> Node:
    return Node(address, f"t-{uuid.uuid4().hex[:8]}")


def member(node: Node, **options: Any) -> Consumer:
    quick: dict[str, Any] = {"fetch_max_wait_ms": 100, "metadata_max_age_ms": 500, "group_protocol": "consumer"}
    how = quick | {"group_id": node.group, "auto_commit": False} | options
    return Consumer(node.topic, bootstrap_servers=node.address, **how)


def shares(*readers: Consumer) -> list[int]:
    """How many partitions each has, if nobody has one twice."""
    everything = [at for reader in readers for at in reader.assignment()]
    assert len(everything) == len(set(everything))
    return sorted(len(reader.assignment()) for reader in readers)


async def write_everywhere(node: Node, count: int = 20) -> set[bytes]:
    values = [b"%d" % number for number in range(count)]
    async with node.writer() as writer:
        for number, value in enumerate(values):
            await (await writer.send(node.topic, value, partition=number % PARTITIONS))
    return set(values)


def test_members_come_and_go_and_everything_is_read_by_one_of_them(node: Node) -> None:
    async def scenario(node: Node) -> None:
        first, second, third = (member(node) for _ in range(3))
        notes = Notes()
        first.subscribe(node.topic, listener=notes)
        async with reading(first) as found:
            await until(lambda: shares(first) == [4])
            async with reading(second) as more:
                await until(lambda: shares(first, second) == [2, 2])
                written = await write_everywhere(node)
                await until(lambda: {*found, *more} == written)
                async with reading(third):
                    await until(lambda: shares(first, second, third) == [1, 1, 2])
                await third.close()
                await until(lambda: shares(first, second) == [2, 2])
            await second.close()
            await until(lambda: shares(first) == [4])
        await first.close()
        assert all(what != "lost" for what, _ in notes.told)
        given = [at for what, partitions in notes.told if what == "assigned" for at in partitions]
        taken = [at for what, partitions in notes.told if what == "revoked" for at in partitions]
        assert sorted(given) == sorted(taken), "each is taken as often as it is given"

    with noted_versions() as noted:
        play(scenario, node, PARTITIONS)
    assert noted["ConsumerGroupHeartbeat"] == {1}
    assert noted["OffsetFetch"] == {9}
    assert "JoinGroup" not in noted and "Heartbeat" not in noted


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
def test_the_group_is_described_as_it_is(node: Node, assignor: str | None) -> None:
    async def scenario(node: Node) -> None:
        async with (
            member(node, group_remote_assignor=assignor, group_instance_id="i") as one,
            member(node) as two,
            node.admin() as admin,
        ):
            async with reading(one, two):
                await until(lambda: shares(one, two) == [2, 2])
            group = (await admin.describe_groups([node.group]))[node.group]
            assert (group.state, group.assignor) == ("Stable", assignor or "uniform")
            assert {each.member_id: each.partitions for each in group.members} == {
                each.group_metadata().member_id: each.assignment() for each in (one, two)
            }
            assert sorted(each.group_instance_id or "" for each in group.members) == ["", "i"]
            listed = (await admin.list_groups(types=["consumer"]))[node.group]
            assert listed.type == "consumer"

    play(scenario, node, PARTITIONS)


def test_an_assignor_that_there_is_not_and_one_member_too_many_are_named(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with member(node, group_remote_assignor="sticky") as wrong:
            with pytest.raises(BrokerError, match="group_remote_assignor='sticky' is not one of its assignors") as told:
                await wrong.poll(5000)
            assert told.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR
        members = [member(node) for _ in range(5)]
        async with member(node) as one_too_many:
            for each in members:
                await each.poll(2000)
            with pytest.raises(BrokerError, match=r"group\.consumer\.max\.size") as told:
                await one_too_many.poll(5000)
            assert told.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED
            for each in members:
                await each.close()

    play(scenario, node, PARTITIONS)


def test_a_member_that_is_silent_loses_its_place_and_the_next_one_reads_from_what_was_committed(node: Node) -> None:
    """Its heart is stopped, as where a process is killed; then it is told, as where it was only asleep."""

    async def scenario(node: Node) -> None:
        written = await write_everywhere(node)
        killed, other = member(node), member(node)
        notes = Notes()
        killed.subscribe(node.topic, listener=notes)
        found = await take(killed, len(written))
        await killed.commit({TopicPartition(node.topic, n): 4 for n in range(PARTITIONS)})
        assert {*found} == written
        group: Any = killed._group
        group._stop_heart()
        async with reading(other) as again:
            await until(lambda: shares(other) == [4])
            await until(lambda: len(again) == PARTITIONS)
            with pytest.raises(CommitFailedError):
                await killed.commit({TopicPartition(node.topic, 0): 1})
            group._heart = asyncio.ensure_future(group._beat())
            async with reading(killed):
                await until(lambda: len(killed.assignment()) == len(other.assignment()) == 2)
                shares(killed, other)
        assert notes.told[1] == ("lost", [0, 1, 2, 3])
        assert sorted(again)[:PARTITIONS] == sorted(again)
        await killed.close()
        await other.close()

    play(scenario, node, PARTITIONS)


def test_a_static_member_has_its_partitions_again_and_one_that_was_killed_is_waited_for(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with member(node, group_instance_id="other") as other:
            first = member(node, group_instance_id="i")
            async with reading(first, other):
                await until(lambda: shares(first, other) == [2, 2])
            before = first.assignment()
            await first.close()
            again = member(node, group_instance_id="i")
            async with reading(again, other):
                await until(lambda: again.assignment() == before)
            group: Any = again._group
            group._stop_heart()
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async with member(node, group_instance_id="i") as successor, reading(successor, other):
                await until(lambda: shares(successor, other) == [2, 2])
                assert loop.time() - begun > 1, "its predecessor has a session"
            await again._cluster.close()

    play(scenario, node, PARTITIONS)


def test_a_pattern_is_looked_after_by_the_broker(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with member(node) as reader, node.admin() as admin:
            reader.subscribe(pattern=SubscriptionPattern("["))
            with pytest.raises(BrokerError, match="RE2/J") as told:
                await reader.poll(5000)
            assert told.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
            reader.subscribe(pattern=SubscriptionPattern(f"{node.topic}.*"))
            async with reading(reader) as found:
                await until(lambda: shares(reader) == [4])
                await admin.create_topic(f"{node.topic}-more", partitions=1)
                await node.write(b"0")
                await until(lambda: found == [b"0"])
            reader.subscribe(node.topic)
            async with reading(reader):
                await until(lambda: shares(reader) == [4])

    play(scenario, node, PARTITIONS)


def test_topics_that_come_later_and_partitions_that_are_added_are_read(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with member(node) as reader, node.admin() as admin:
            late = f"{node.topic}-late"
            reader.subscribe(pattern=f"{node.topic}.*")
            async with reading(reader) as found:
                await until(lambda: shares(reader) == [4])
                await admin.create_topic(late, partitions=1)
                await admin.create_partitions(node.topic, PARTITIONS + 1)
                await until(lambda: shares(reader) == [6])
                await node.write(b"new", partition=PARTITIONS)
                await until(lambda: found == [b"new"])
                await admin.delete_topic(late)
                await until(lambda: shares(reader) == [5])

    play(scenario, node, PARTITIONS)


def test_members_of_java_and_librdkafka_share_with_ours(node: Node) -> None:
    async def scenario(node: Node) -> None:
        settings = {"bootstrap.servers": node.address, "group.id": node.group, "group.protocol": "consumer"}
        librdkafka = confluent_kafka.Consumer(settings)
        librdkafka.subscribe([node.topic])
        async with member(node) as ours, java_member(node.address, node.group, node.topic, "consumer") as theirs:

            def owned() -> list[set[int]]:
                librdkafka.poll(0)
                mine, third = ({at.partition for at in each.assignment()} for each in (ours, librdkafka))
                return [mine, third, theirs.owned]

            def are_shared() -> bool:
                found = owned()
                return all(found) and sorted(n for each in found for n in each) == list(range(PARTITIONS))

            async with reading(ours):
                await until(are_shared)
                await asyncio.to_thread(librdkafka.close)
                await until(lambda: len(ours.assignment()) == len(theirs.owned) == 2)
                assert not {at.partition for at in ours.assignment()} & theirs.owned

    play(scenario, node, PARTITIONS)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_classic_group_goes_over_while_it_runs_and_back(node: Node, strategy: str) -> None:
    """Member by member; nothing is read twice of what was committed, and nothing is left out."""

    async def scenario(node: Node) -> None:
        classic = [node.reader(partition_assignment_strategy=strategy, auto_commit=True) for _ in range(2)]
        new = [member(node, auto_commit=True) for _ in range(2)]
        everybody: set[bytes] = set()

        async def go_on(*readers: Consumer) -> None:
            async with reading(*readers) as found:
                await until(lambda: sum(shares(*readers)) == PARTITIONS and min(shares(*readers)) > 0)
                values = {b"%d" % (len(everybody) + number) for number in range(8)}
                async with node.writer() as writer:
                    for number, value in enumerate(values):
                        await (await writer.send(node.topic, value, partition=number % PARTITIONS))
                await until(lambda: values <= {*found})
            everybody.update(values)

        async with node.admin() as admin:

            async def kind() -> str:
                return (await admin.list_groups())[node.group].type

            await go_on(*classic)
            assert await kind() == "classic"
            await go_on(*classic, new[0])
            assert await kind() == "consumer"
            await classic[0].close()
            await go_on(classic[1], *new)
            await classic[1].close()
            await go_on(*new)
            back = node.reader(partition_assignment_strategy=strategy, auto_commit=True)
            await go_on(back, *new)
            for each in new:
                await each.close()
            await go_on(back)
            assert await kind() == "classic"
            await back.close()
        async with node.reader() as last:
            positions = await last.committed([TopicPartition(node.topic, n) for n in range(PARTITIONS)])
            assert sum(found.offset for found in positions.values() if found) == len(everybody)

    play(scenario, node, PARTITIONS)


def test_a_transactional_loop_loses_and_doubles_nothing_while_members_come_and_go(node: Node) -> None:
    count = 400

    async def scenario(node: Node) -> None:
        out = f"{node.topic}-out"
        async with node.admin() as admin:
            await admin.create_topic(out, partitions=1)
        loops: list[ExactlyOnce] = []

        async def work(number: int, seconds: float, *, is_lost: bool = False) -> None:
            reader = member(node)
            async with node.writer(transactional_id=f"{node.topic}-{number}") as writer:
                loop = ExactlyOnce(reader, writer, max_records=7, linger_ms=20)
                loops.append(loop)
                asyncio.get_running_loop().call_later(seconds, loop.stop)
                async for transaction in loop:
                    async with transaction:
                        for record in transaction.records:
                            await transaction.send(out, record.value, partition=0)
                        await asyncio.sleep(0.02)
                if is_lost:  # no goodbye: the others wait until its session ends
                    group: Any = reader._group
                    group._stop_heart()
                    await reader._cluster.close()
            await reader.close()

        async def feed() -> None:
            async with node.writer() as writer:
                for number in range(count):
                    await (await writer.send(node.topic, b"%d" % number, partition=number % PARTITIONS))
                    await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            group.create_task(work(0, 22))
            for number, (begins, lasts) in enumerate([(1, 2), (2, 3), (4, 4), (6, 2), (7, 3)], 1):
                await asyncio.sleep(0)
                group.create_task(_later(begins, work(number, lasts, is_lost=number % 2 == 0)))
        output = node.reader(group_id=None)
        output.subscribe(out)
        async with output:
            found = await take(output, count)
            assert await output.poll(500) == []
        assert sorted(map(int, found)) == list(range(count))

    play(scenario, node, PARTITIONS)


async def _later(seconds: float, work: Any) -> None:
    await asyncio.sleep(seconds)
    await work
