"""What a rebalance takes and gives, who is told of it, and which topics fit a pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.broker import running_broker
from fencepost.client import Admin, Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition, blocking
from fencepost.client.assignors import ASSIGNORS, COOPERATIVE_STICKY, RANGE
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClosedError, MisuseError
from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.protocol.messages import LeaveGroupRequest
from fencepost.protocol.messages.find_coordinator import GROUP
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.simulation.world import ADDRESS, World

COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": COOPERATIVE_STICKY}
EAGER: dict[str, Any] = {"partition_assignment_strategy": RANGE}
Told = list[tuple[str, list[int]]]


class Notes(RebalanceListener):
    """Notes what it is told, and may do something about it."""

    def __init__(self, before: Callable[[str], Any] = lambda _: None) -> None:
        self.told: Told = []
        self._before = before

    async def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.told.append((what, [at.partition for at in partitions]))
        done = self._before(what)
        if done is not None:
            await done

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._note("revoked", partitions)

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._note("assigned", partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await self._note("lost", partitions)


async def settle(*readers: Consumer) -> None:
    """Let them poll until each has its share."""
    for _ in range(40):
        await asyncio.gather(*(reader.poll(100) for reader in readers))
        shares = [reader.assignment() for reader in readers]
        if sorted(at for share in shares for at in share) == PARTITIONS and all(shares):
            return
    raise AssertionError(shares)


async def throw_out(world: World, reader: Consumer) -> None:
    """Have a member removed from its group, as when its session ends."""
    identity = MemberIdentity(member_id=reader.group_metadata().member_id)
    cluster = Cluster(ADDRESS, runtime=world.runtime("bouncer"))
    node = await cluster.coordinator(GROUP, "g", cluster.deadline("looking"))
    await cluster.call(node, LeaveGroupRequest(group_id="g", members=[identity]))
    await cluster.close()


@pytest.mark.parametrize(
    ("how", "first_is_told", "second_is_told"),
    [
        (
            EAGER,
            [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", [0]), ("lost", [0])],
            [("assigned", [1]), ("revoked", [1]), ("assigned", [0, 1]), ("revoked", [0, 1])],
        ),
        (
            COOPERATIVE,
            [("assigned", [0, 1]), ("revoked", [1]), ("assigned", []), ("assigned", []), ("lost", [0])],
            [("assigned", []), ("assigned", [1]), ("assigned", [0]), ("revoked", [0, 1])],
        ),
    ],
    ids=["eager", "cooperative"],
)
def test_a_listener_is_told_of_each_partition_once(
    how: dict[str, Any], first_is_told: Told, second_is_told: Told
) -> None:
    async def scenario(world: World) -> None:
        first, second = member(world, "first", group_instance_id="1", **how), member(world, "second", **how)
        notes = Notes(), Notes()
        first.subscribe("t", listener=notes[0])
        second.subscribe("t", listener=notes[1])
        async with first, second:
            await take(first, 1, 1)
            await settle(first, second)
            await throw_out(world, first)  # static: else it would keep its place
            await asyncio.sleep(0.2)  # until its next heartbeat
            await first.close()
            await take(second, 1, 1)
        assert notes[1].told == second_is_told
        assert notes[0].told == first_is_told

    simulate(scenario, **SHORT_SESSIONS)


def test_what_stays_is_read_on_from_where_it_was() -> None:
    """Nothing was committed: a member that had to begin again would be handed its records twice."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d-%d" % (partition, n) for n in range(3)], partition=partition)
        async with member(world, "first", **COOPERATIVE) as first:
            assert len(await take(first, 6)) == 6
            async with member(world, "second", **COOPERATIVE) as second:
                found: list[Any] = []
                for _ in range(20):
                    for reader in (first, second):
                        found += [(reader, record.value) for record in await reader.poll(50)]
                assert [value for reader, value in found if reader is first] == []
                assert sorted(value for _, value in found) == [b"1-0", b"1-1", b"1-2"]
                assert (first.assignment(), second.assignment()) == ([PARTITIONS[0]], [PARTITIONS[1]])

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_what_is_committed_when_it_is_revoked_is_where_the_next_one_begins(how: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d-%d" % (partition, n) for n in range(3)], partition=partition)
        async with member(world, "first", **how) as first, member(world, "second", **how) as second:
            first.subscribe("t", listener=Notes(lambda what: first.commit() if what == "revoked" else None))
            assert len(await take(first, 6)) == 6
            await settle(first, second)
            assert await second.poll(1000) == []
            assert [second.position(at) for at in second.assignment()] == [3]

    simulate(scenario, **SHORT_SESSIONS)


def test_where_to_begin_can_be_said_when_it_is_assigned() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "first") as reader:
            notes = Notes(lambda what: reader.seek(PARTITIONS[0], 2) if what == "assigned" else None)
            reader.subscribe("t", listener=notes)
            assert [record.value for record in await take(reader, 3, 1)] == [b"2"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("hook", ["revoked", "assigned"])
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_what_a_listener_raises_is_raised_once_and_the_rebalance_goes_on(
    error: type[BaseException], hook: str, how: dict[str, Any]
) -> None:
    """Also where it asks for the result of something that was cancelled, by which nobody cancels the poll."""

    async def scenario(world: World) -> None:
        raised: list[str] = []

        def fail(what: str) -> None:
            if what == hook and (hook == "assigned" or not raised):
                raised.append(what)
                raise error

        async with member(world, "first", **how) as first:
            if hook == "assigned":
                first.subscribe("t", listener=Notes(fail))
                with pytest.raises(error):
                    await first.poll(5000)
                assert await first.poll(1000) == []
                assert (first.assignment(), raised) == (PARTITIONS, ["assigned"])
                return
            notes = Notes(fail)
            first.subscribe("t", listener=notes)
            await take(first, 1, 1)
            async with member(world, "second", **how) as second:
                joining = asyncio.ensure_future(second.poll(3000))
                await asyncio.sleep(0.3)
                with pytest.raises(error):
                    await first.poll(3000)
                await joining
                await settle(first, second)
                assert raised == ["revoked"]
                assert [what for what, _ in notes.told[:3]] == ["assigned", "revoked", "assigned"]
                given_up = [at for what, partitions in notes.told for at in partitions if what == "revoked"]
                assert len(given_up) == len(set(given_up))

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_what_a_listener_raises_at_the_end_is_raised_when_all_is_done(ends: str, how: dict[str, Any]) -> None:
    """What is to be committed is, the others have the partitions at once, and nothing is left open."""

    def fail(what: str) -> None:
        if what == "revoked":
            raise ZeroDivisionError

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        reader = member(world, "first", auto_commit=True, **how)
        notes = Notes(fail)
        reader.subscribe("t", listener=notes)
        assert len(await take(reader, 2)) == 2
        await reader.poll(0)
        with pytest.raises(ZeroDivisionError):
            await getattr(reader, ends)()
        assert world.broker is not None
        known = world.broker.node.groups.known("g")
        assert known is None or (isinstance(known, ClassicGroup) and not known.members)
        if ends == "close":
            assert (reader._cluster._connections, reader._fetcher.followed) == ({}, {})
            with pytest.raises(ClosedError):
                await reader.poll(0)
        else:
            assert reader.assignment() == []
            reader.assign(PARTITIONS)
            assert len(await take(reader, 1, 1)) == 0
        await reader.close()
        assert [what for what, _ in notes.told] == ["assigned", "revoked"]
        async with member(world, "second", **how) as second:
            committed = (await second.committed(PARTITIONS[:1]))[PARTITIONS[0]]
            assert committed is not None and committed.offset == 2

    simulate(scenario, **SHORT_SESSIONS)


def test_a_poll_that_ends_or_is_cancelled_ends_no_hook() -> None:
    async def scenario(world: World) -> None:
        ended: list[str] = []

        async def slowly(what: str) -> None:
            await asyncio.sleep(1)
            ended.append(what)

        async with member(world, "first") as reader:
            notes = Notes(slowly)
            reader.subscribe("t", listener=notes)
            assert await reader.poll(300) == []
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await reader.poll(5000)
            assert (notes.told, ended) == ([("assigned", [0, 1])], [])
            await reader.poll(2000)
            assert (len(notes.told), ended, reader.assignment()) == (1, ["assigned"], PARTITIONS)

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_who_has_lost_its_place_is_told_that_its_partitions_are_lost(how: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        notes = Notes()
        async with member(world, "first", **how) as reader:
            reader.subscribe("t", listener=notes)
            await take(reader, 1, 1)
            await throw_out(world, reader)
            await take(reader, 1, 2)
            assert notes.told == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("names", [*ASSIGNORS, (RANGE, COOPERATIVE_STICKY)])
def test_every_strategy_shares_out_everything_among_three(names: Any) -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("u", partitions=4)
        readers = [member(world, f"reader-{n}", "t", "u", partition_assignment_strategy=names) for n in range(3)]
        for _ in range(40):
            await asyncio.gather(*(reader.poll(100) for reader in readers))
        shares = [reader.assignment() for reader in readers]
        assert sorted(len(share) for share in shares) in ([2, 2, 2], [1, 2, 3])
        assert len({at for share in shares for at in share}) == 6
        for reader in readers:
            await reader.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_members_that_go_from_range_to_cooperative_sticky_share_a_group() -> None:
    async def scenario(world: World) -> None:
        both: dict[str, Any] = {"partition_assignment_strategy": (COOPERATIVE_STICKY, RANGE)}
        async with member(world, "old", **both) as old, member(world, "new", **COOPERATIVE) as new:
            await settle(old, new)

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("names", ["Range", (), ("range", "range"), "uniform", ["range", ""]])
def test_a_strategy_that_is_none_is_refused(names: Any) -> None:
    with pytest.raises(ValueError, match=r"partition_assignment_strategy=.*: it must be one or several of range"):
        Consumer("t", bootstrap_servers=ADDRESS, group_id="g", partition_assignment_strategy=names)


def test_who_asks_for_nothing_for_too_long_leaves_and_joins_again_when_it_asks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        notes = Notes()
        patient = {"max_poll_interval_ms": 2000, "session_timeout_ms": 30_000}
        async with member(world, "slow", **patient) as slow, member(world, "other") as other:
            slow.subscribe("t", listener=notes)
            assert len(await take(slow, 1)) == 1
            assert await slow.poll(5000) == [], "waiting in poll is asking"
            assert caplog.text == ""
            assert len(await take(other, 1, 3)) == 1
            assert other.assignment() == PARTITIONS
            assert caplog.text.count("poll() was not called for max_poll_interval_ms=2000: its partitions go to") == 1
            await settle(slow, other)
            assert [what for what, _ in notes.told] == ["assigned", "lost", "assigned"]
            await other.poll(4000)
            assert other.assignment() == PARTITIONS, "it is told that it goes, long before its session ends"

    simulate(scenario, **SHORT_SESSIONS)


# Without asyncio


class Commits(RebalanceListener):
    """Commits what it is to give up."""

    def __init__(self, consumer: blocking.Consumer) -> None:
        self._consumer = consumer
        self.told: Told = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._consumer.commit()
        self.told.append(("revoked", [at.partition for at in partitions]))

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", [at.partition for at in partitions]))


def test_a_blocking_listener_may_call_its_consumer() -> None:
    with running_broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        servers = broker.bootstrap_servers
        with blocking.Producer(servers) as writer:
            writer.send("t", b"1", partition=0).result()
        with blocking.Consumer(bootstrap_servers=servers, group_id="g", auto_commit=False) as reader:
            listener = Commits(reader)
            reader.subscribe(pattern="t", listener=listener)
            assert next(reader).value == b"1"
        assert listener.told == [("assigned", [0]), ("revoked", [0])]
        with blocking.Consumer(bootstrap_servers=servers, group_id="g") as look:
            position = look.committed([TopicPartition("t", 0)])[TopicPartition("t", 0)]
            assert position is not None and position.offset == 1


def test_what_stays_ours_is_read_on_while_others_are_waited_for() -> None:
    """KIP-429; what was read meanwhile is committed, and nobody reads it again."""

    async def scenario(world: World) -> None:
        async with (
            member(world, "first", **COOPERATIVE) as first,
            member(world, "silent", **COOPERATIVE) as silent,
            member(world, "third", **COOPERATIVE) as third,
        ):
            await asyncio.gather(take(first, 1, 2), take(silent, 1, 2))
            assert len(first.assignment()) == len(silent.assignment()) == 1
            joining = asyncio.create_task(take(third, 1, 3))
            await asyncio.sleep(1)
            (at,) = first.assignment()
            await write(world, [b"0", b"1", b"2"], partition=at.partition)
            began = world.loop.time()
            assert [record.offset for record in await take(first, 3, 2)] == [0, 1, 2]
            assert world.loop.time() - began < 1
            assert first._assignment.must_join()
            await first.commit()
            assert not await joining
            await asyncio.gather(take(first, 1, 4), take(silent, 1, 4), take(third, 1, 4))
            assert (await third.committed([at]))[at] == OffsetAndMetadata(3)
            assert {*first.assignment(), *silent.assignment(), *third.assignment()} == set(PARTITIONS)
            await write(world, [b"3"], partition=at.partition)
            found = await asyncio.gather(*(take(each, 1, 1) for each in (first, silent, third)))
            assert [record.offset for each in found for record in each] == [3]

    simulate(scenario, **SHORT_SESSIONS)


def test_topics_and_partitions_are_chosen_one_after_the_other() -> None:
    """Apache Kafka's clients refuse it too (IllegalStateException); who goes over leaves its group first."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first", auto_commit=True) as first, member(world, "second") as second:
            notes = Notes()
            first.subscribe("t", listener=notes)
            await settle(first, second)
            with pytest.raises(MisuseError, match="unsubscribe"):
                first.assign(PARTITIONS)
            await first.unsubscribe()
            assert notes.told[-1][0] == "revoked"
            assert first.assignment() == []
            with pytest.raises(MisuseError, match="nothing to read"):
                await first.poll(100)
            await take(second, 1, 1)
            assert second.assignment() == PARTITIONS, "the group is left at once"
            first.assign(PARTITIONS[:1])
            with pytest.raises(MisuseError, match="unsubscribe"):
                first.subscribe("t")
            first.seek(PARTITIONS[0], 0)
            assert [record.value for record in await take(first, 1)] == [b"0"]
            assert second.assignment() == PARTITIONS
            await first.unsubscribe()
            first.subscribe("t")
            await settle(first, second)

    simulate(scenario, **SHORT_SESSIONS)
