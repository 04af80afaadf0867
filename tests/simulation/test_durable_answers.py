"""What was answered is so after a power loss that comes right after the answer, whatever was asked.

Handlers that forget what their answers depend on are made here, one by one, and seen to be found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker import asking

from fencepost.broker.apis import list_offsets
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.registry import SERVED, Handler, Later, Reply
from fencepost.client import Admin, ClientError
from fencepost.client.opening import open_connection
from fencepost.log.partition import Partition
from fencepost.log.storage import Storage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
)
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.protocol.types import CONSUMER_OFFSETS, NO_LSN, Isolation, TopicPartition
from fencepost.simulation.answer_subjects import SUBJECTS
from fencepost.simulation.any_request import PARTITIONS, TOPIC, Asker
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.shown_offsets import SHOWN
from fencepost.simulation.world import ADDRESS, PORT, Violation, World

SEEDS = range(12)


async def ask(world: World, request: Any, version: int) -> Any:
    """The answer, when it may leave the node."""
    assert world.broker is not None
    return await asking.ask(world.broker, request, version)


async def join(world: World, member_id: str = "", instance: str | None = "i") -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )
    return await ask(world, request, 9)


async def sync(world: World, member_id: str, generation: int) -> Any:
    given = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
    request = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )
    return await ask(world, request, 5)


async def heartbeat(world: World, member_id: str, generation: int) -> Any:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id, group_instance_id="i")
    return ErrorCode((await ask(world, request, 4)).error_code)


async def leave(world: World, member_id: str) -> Any:
    members = [MemberIdentity(member_id=member_id, group_instance_id="i")]
    return (await ask(world, LeaveGroupRequest(group_id="g", members=members), 5)).members[0]


async def begin(world: World) -> None:
    await world.start()
    assert world.broker is not None
    await world.broker.node.ensure_coordinator("__consumer_offsets")


async def lose_power(world: World) -> None:
    world.lose_power()
    await begin(world)


async def member_of_one(world: World) -> tuple[str, int]:
    """A group with one static member and its assignment: id and generation."""
    joined = await join(world)
    assert joined.error_code == ErrorCode.NONE
    assert (await sync(world, joined.member_id, joined.generation_id)).error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


async def comes_back(world: World) -> None:
    """A static member is back, in a new process: the id that it is given is its id from then on."""
    former, _ = await member_of_one(world)
    back = await join(world)
    assert (back.error_code, back.member_id != former) == (ErrorCode.NONE, True)
    await lose_power(world)
    assert await heartbeat(world, back.member_id, back.generation_id) == ErrorCode.NONE
    assert await heartbeat(world, former, back.generation_id) == ErrorCode.FENCED_INSTANCE_ID


async def first_comes(world: World) -> None:
    """A group is there once somebody has been given an id for it."""
    given = await join(world, instance=None)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    await lose_power(world)
    assert world.broker is not None
    assert not isinstance(world.broker.node.groups.known("g"), ErrorCode)


async def last_leaves(world: World) -> None:
    """Who has left is no member after a restart, and nobody waits for it."""
    member_id, generation = await member_of_one(world)
    assert (await leave(world, member_id)).error_code == ErrorCode.NONE
    await lose_power(world)
    assert await heartbeat(world, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", [comes_back, first_comes, last_leaves])
def test_power_is_lost_right_after_the_answer(story: Callable[[World], Coroutine[Any, Any, None]], seed: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, seed)
        await begin(world)
        await story(world)
        await world.stop()

    run(main)


async def ask_for_ends(world: World, stop: asyncio.Event) -> None:
    """Of every partition, as readers of both isolation levels do."""
    wanted = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in range(PARTITIONS)]
    topics = [ListOffsetsTopic(name=TOPIC, partitions=wanted)]
    while not stop.is_set():
        try:
            connection = await open_connection(world.runtime("ends").network, "127.0.0.1", PORT, "ends", 2000)
            while not stop.is_set():
                for level in Isolation:
                    request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
                    await connection.request(request, 7)
                await asyncio.sleep(0.01)
            connection.close()
        except (OSError, ClientError, TimeoutError):
            await asyncio.sleep(0.02)


def first_violation(seed: int, seconds: float, power_losses: int = 0) -> str | None:
    """What is seen first while anything is asked for so many seconds of virtual time, on a disk that syncs slowly."""

    async def main(loop: VirtualLoop) -> str | None:
        world = World(loop, seed)
        await begin(world)
        assert world.broker is not None
        await world.broker.node.ensure_coordinator("__transaction_state")
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        for number in range(PARTITIONS):
            world.removals.ask(TopicPartition(TOPIC, number))
        stop = asyncio.Event()
        askers = [Asker(world.runtime(f"asker-{n}"), "127.0.0.1", PORT) for n in range(3)]
        tasks = [loop.create_task(asker.ask(stop)) for asker in askers]
        tasks.append(loop.create_task(ask_for_ends(world, stop)))
        for number in range(1, 21):
            await asyncio.sleep(seconds / 20)
            if world.violations:
                break
            if power_losses and number % (20 // power_losses) == 0:
                await lose_power(world)
        stop.set()
        await asyncio.gather(*tasks)
        try:
            await world.stop()
        except Violation as violation:
            return str(violation)
        return None

    return run(main)


def is_seen(violation: str) -> bool:
    """Whether that is the first one with some seed: what is asked first varies."""
    return any(violation in (first_violation(seed, 10) or "") for seed in range(10))


@pytest.fixture
def slow_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.simulation.disk.SLOWEST_SYNC", 0.02)


def forgetful(handler: Handler) -> Handler:
    """A handler whose answers leave at once."""

    def at_once(request: Any, context: Any, node: Any) -> Reply | Later:
        reply = handler(request, context, node)
        if isinstance(reply, Reply):
            return reply if reply.response is None else reply._replace(lsn=NO_LSN)

        async def later() -> Reply:
            found = await reply
            return found if found.response is None else found._replace(lsn=NO_LSN)

        return later()

    return at_once


@pytest.mark.usefixtures("slow_sync")
@pytest.mark.parametrize("seed", range(4))
def test_no_answer_tells_of_what_a_power_loss_could_take_back(seed: int) -> None:
    assert first_violation(seed, 5, power_losses=5) is None


@pytest.mark.usefixtures("slow_sync")
@pytest.mark.parametrize("api", SUBJECTS, ids=lambda api: SERVED[api].request.__name__)
def test_a_handler_that_forgets_what_its_answer_depends_on_is_found(api: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVED, api, replace(SERVED[api], handler=forgetful(SERVED[api].handler)))
    found = first_violation(1, 10)
    assert found is not None
    assert SERVED[api].response.__name__ in found


@pytest.mark.usefixtures("slow_sync")
def test_a_connection_that_does_not_hold_its_answers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Connection._answer

    def let_go(connection: Connection, reply: Reply, *rest: Any) -> None:
        held(connection, reply if reply.response is None else reply._replace(lsn=NO_LSN), *rest)

    monkeypatch.setattr(Connection, "_answer", let_go)
    assert "it tells of" in (first_violation(1, 10) or "")


@pytest.mark.usefixtures("slow_sync")
def test_a_fetch_of_what_is_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.log_end_offset))
    assert is_seen("FetchResponse")


@pytest.mark.usefixtures("slow_sync")
@pytest.mark.parametrize(
    ("end", "violation"),
    [("log_end_offset", "ListOffsetsResponse"), ("high_watermark", "a transaction is open")],
    ids=["is not durable", "passes an open transaction"],
)
def test_a_wrong_end_of_a_partition_is_found(monkeypatch: pytest.MonkeyPatch, end: str, violation: str) -> None:
    def offset(wanted: Any, partition: Partition, _: int) -> ListOffsetsPartitionResponse:
        offset = getattr(partition, end)
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0, offset=offset)

    monkeypatch.setattr(list_offsets, "_offset", offset)
    assert is_seen(violation)


@pytest.mark.usefixtures("slow_sync")
def test_a_high_watermark_ahead_of_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Storage._take_dirty

    def advance_at_once(storage: Storage) -> None:
        for partition in list(storage._dirty):
            partition.advance(partition.log_end_offset)
        taken(storage)

    monkeypatch.setattr(Storage, "_take_dirty", advance_at_once)
    assert is_seen("high watermark")


#: Why the other answers are not looked at there.
_METADATA = "topics, settings and features, which SQLite has made durable before they are told"
_NONE = "nothing: there are none"
_INDEPENDENT = {
    "AlterConfigs": _METADATA,
    "ApiVersions": _METADATA,
    "CreateAcls": _NONE,
    "CreatePartitions": _METADATA,
    "CreateTopics": _METADATA,
    "DeleteAcls": _NONE,
    "DeleteTopics": _METADATA,
    "DescribeAcls": _NONE,
    "DescribeClientQuotas": _NONE,
    "DescribeCluster": "the node itself",
    "DescribeConfigs": _METADATA,
    "DescribeTopicPartitions": _METADATA,
    "ElectLeaders": _METADATA,
    "FindCoordinator": "the node itself",
    "IncrementalAlterConfigs": _METADATA,
    "ListPartitionReassignments": _NONE,
    "Metadata": _METADATA,
    "UpdateFeatures": _METADATA,
}


def test_of_every_api_it_is_known_what_its_answers_depend_on() -> None:
    others = {
        served.request.__name__.removesuffix("Request")
        for api, served in SERVED.items()
        if api not in SUBJECTS and api not in SHOWN
    }
    assert others == set(_INDEPENDENT), "it is in the table of what answers tell, or it is said why it is not"


UNKNOWN, LEFT = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("errors", "tells"),
    [
        ((ErrorCode.NONE,), True),
        ((ErrorCode.INVALID_PRODUCER_EPOCH,), True),
        ((UNKNOWN,), False),
        ((LEFT, UNKNOWN), False),
        ((ErrorCode.TOPIC_AUTHORIZATION_FAILED, LEFT), False),
    ],
)
def test_an_addition_of_partitions_tells_of_its_id_unless_a_topic_is_not_known(
    errors: tuple[ErrorCode, ...], tells: bool
) -> None:
    """Seed 1144054777266113834, after 34 s: a topic was deleted while something else of the id was not durable."""
    partitions = [
        AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=e) for n, e in enumerate(errors)
    ]
    topics = [AddPartitionsToTxnTopicResult(name="anything", results_by_partition=partitions)]
    told = [("transactional id", "t")] if tells else []
    old = AddPartitionsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, topics=[])
    response = AddPartitionsToTxnResponse(results_by_topic=topics)
    assert list(SUBJECTS[24](old, response, None)) == told  # type: ignore[arg-type]
    new = AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id="t", topic_results=topics)]
    )
    assert list(SUBJECTS[24](AddPartitionsToTxnRequest(transactions=[]), new, None)) == told  # type: ignore[arg-type]


@pytest.mark.parametrize("is_there", [False, True])
def test_where_no_positions_can_be_kept_nothing_is_told_of_an_id(is_there: bool) -> None:
    """Seed 1063: the disk was full when the topic of the positions was to be made."""
    request = AddOffsetsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, group_id="g")
    response = AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    node: Any = SimpleNamespace(topics=SimpleNamespace(by_name={CONSUMER_OFFSETS: None} if is_there else {}))
    assert list(SUBJECTS[25](request, response, node)) == [("transactional id", "t")] * is_there
