"""A small world for the group coordinator: journals in memory that check producers as a real partition does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import Any, ParamSpec

from tests.log.log_doubles import StoppedClock, run

from fencepost.coordinator.group import (
    Answered,
    CommitFor,
    Committed,
    CommittedOffset,
    GroupCoordinator,
    GroupSettings,
    MemberIdentity,
)
from fencepost.coordinator.group.classic.group import ClassicGroup, Member
from fencepost.log.partition import Appended, Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.log.producers import Producers
from fencepost.protocol.batch import BatchHeader, read_header, stamp
from fencepost.protocol.control import ABORT, COMMIT, ControlRecord, control_batch, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.protocol.steps import Pace
from fencepost.protocol.types import (
    CONSUMER_OFFSETS,
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Lsn,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)
from fencepost.runtime import at_once

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
NOBODY = ("", None, -1)
P = ParamSpec("P")


def member(name: str, *protocols: str, instance: str | None = None, rebalance_ms: int = 20_000) -> Member:
    """A member of a classic group whose metadata for every protocol is its own name."""
    return Member(
        member_id=name,
        group_instance_id=instance,
        client_id="client",
        client_host="/host",
        session_timeout_ms=Milliseconds(10_000),
        rebalance_timeout_ms=Milliseconds(rebalance_ms),
        protocols=tuple((each, name.encode()) for each in protocols),
    )


class FakeJournal:
    """One partition of `__consumer_offsets`; `refuse` is what it answers instead of taking a batch."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.refuse: ErrorCode | None = None
        self._producers = Producers()

    def append(
        self,
        batch: bytes,
        origin: Origin,
        now: Milliseconds,  # noqa: ARG002
        /,
        *,
        guard: VerificationGuard | None = None,
        marker_transaction_version: int = 0,
        control: ControlRecord | None = None,
    ) -> Appended | Refused:
        assert origin is Origin.COORDINATOR
        if self.refuse is not None:
            return Refused(self.refuse)
        header, data = read_header(batch), bytearray(batch)
        producers, base = self._producers, self.end
        if header.is_control:
            marker = read_control_record(batch)
            assert marker is not None and marker.coordinator_epoch is not None
            assert control is None or control == marker, "what a marker is said to say, it says"
            wrong = producers.check_marker(header, marker.coordinator_epoch, marker_transaction_version)
            if wrong is None:
                committed = marker.type == COMMIT
                producers.marker_appended(header, Offset(base), marker.coordinator_epoch, committed, Milliseconds(0))
        else:
            wrong = None
            if header.producer_id >= 0:
                wrong = producers.check_data(header, guard, origin, verification_enabled=False)
                if wrong is None:
                    producers.data_appended(header, Offset(base), Milliseconds(0))
        if wrong is not None:
            return Refused(wrong)
        stamp(data, 0, Offset(base), LeaderEpoch(0))
        self.batches.append(bytes(data))
        self.end = base + header.last_offset_delta + 1
        return Appended(Offset(base), Offset(self.end - 1), -1, Offset(0), Lsn(self.end), False)

    def scan(self, offset: int, /) -> Iterator[tuple[BatchHeader, bytes]]:
        yield from ((read_header(batch), batch) for batch in self.batches if read_header(batch).last_offset >= offset)


class World:
    """A coordinator of one journal partition, and everything around it."""

    def __init__(self, **settings: Any) -> None:
        self.journal = FakeJournal()
        self.clock = StoppedClock()
        self.settings = GroupSettings(**({"partitions": 1, "initial_rebalance_delay_ms": 0} | settings))
        self.coordinator = self.restarted()

    @property
    def lsn(self) -> Lsn:
        return Lsn(self.journal.end)

    def partition(self, topic: str, index: int) -> FakeJournal | None:
        return self.journal if (topic, index) == (CONSUMER_OFFSETS, 0) else None

    def restarted(self) -> GroupCoordinator:
        """Another coordinator, which knows what the journal says."""
        coordinator = GroupCoordinator(self, self.clock, self.settings, random.Random(1))
        coordinator.load(0)
        return coordinator

    def restart(self) -> None:
        self.coordinator.close()
        self.coordinator = self.restarted()

    def put(self, group: ClassicGroup) -> None:
        """Have the coordinator hold this group, and let nobody listen to its members that wait."""
        shard = self.coordinator._shards[0]
        shard.groups[group.group_id] = group
        for member in group.members.values():
            if member.awaiting is not None:
                waiter = asyncio.get_running_loop().create_future()
                self.coordinator._membership._waiting[group.group_id, member.member_id] = waiter

    # Positions

    def tick(self, now: Milliseconds) -> None:
        """What time brings, all of it at once."""
        at_once(self.coordinator.tick(now))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        group: str = "g",
        who: tuple[str, str | None, int] = NOBODY,
        metadata: str = "",
    ) -> Committed:
        return self.coordinator.commit_offsets(CommitFor(group, *who), self._offsets(offsets, metadata))

    def commit_in_transaction(
        self,
        pair: tuple[int, int],
        offsets: Mapping[TopicPartition, int],
        group: str = "g",
        who: tuple[str, str | None, int] = NOBODY,
        metadata: str = "",
    ) -> Committed:
        committed = self._offsets(offsets, metadata)
        producer = ProducerIdAndEpoch.of(*pair)
        return self.coordinator.commit_transactional_offsets(CommitFor(group, *who), committed, producer, None)

    def _offsets(self, offsets: Mapping[TopicPartition, int], metadata: str) -> dict[TopicPartition, CommittedOffset]:
        now = self.clock.now()
        return {at: CommittedOffset(Offset(offset), NO_LEADER_EPOCH, metadata, now) for at, offset in offsets.items()}

    def end(self, pair: tuple[int, int], commit: bool, transaction_version: int = 2) -> ErrorCode:
        """A marker that carries this pair: from transaction.version 2 on an epoch above that of what it ends."""
        marker = control_batch(*ProducerIdAndEpoch.of(*pair), LeaderEpoch(0), commit, self.clock.now())
        control = ControlRecord(COMMIT if commit else ABORT, LeaderEpoch(0))
        return self.coordinator.complete_transaction(0, marker, ProducerId(pair[0]), control, transaction_version)

    def committed_offset(self, at: TopicPartition, group: str = "g", stable: bool = False) -> int | ErrorCode | None:
        found = self.coordinator.fetch_offsets(group, [at], stable)
        assert isinstance(found, dict), found
        committed = found[at]
        return committed.offset if isinstance(committed, CommittedOffset) else committed

    # Members

    async def ask_to_join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        group: str = "g",
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 20_000,
        version: int = 9,
    ) -> Answered[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols or {"range": b"topics"}).items()
            ],
        )
        return await self.coordinator.join_group(request, "client", "/host", version)

    async def join(self, member_id: str = "", **how: Any) -> JoinGroupResponse:
        """JoinGroup, whatever the answer depends on; see `ask_to_join`."""
        return (await self.ask_to_join(member_id, **how)).answer

    async def join_as_new(self, **how: Any) -> JoinGroupResponse:
        """Get an id first (KIP-394), then join with it."""
        given = await self.join(**how)
        assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return await self.join(given.member_id, **how)

    async def ask_to_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        group: str = "g",
        protocol: str | None = None,
    ) -> Answered[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ],
        )
        return await self.coordinator.sync_group(request)

    async def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **how: Any
    ) -> SyncGroupResponse:
        """SyncGroup, whatever the answer depends on; see `ask_to_sync`."""
        return (await self.ask_to_sync(member_id, generation, assignments, **how)).answer

    async def stable(self, count: int = 1, **how: Any) -> tuple[int, list[str]]:
        """A group with so many members, each with its number as assignment: generation and ids, the leader first."""
        promised = [(await self.join(**how)).member_id for _ in range(count)]
        joined = await asyncio.gather(*(self.join(member, **how) for member in promised))
        assert {answer.error_code for answer in joined} == {ErrorCode.NONE}
        generation, leader = joined[0].generation_id, joined[0].leader
        ids = [leader, *(answer.member_id for answer in joined if answer.member_id != leader)]
        given = {member: b"%d" % number for number, member in enumerate(ids)}
        answers = await asyncio.gather(
            *(self.sync(member, generation, given if member == leader else None) for member in ids)
        )
        assert [bytes(answer.assignment) for answer in answers] == list(given.values())
        return generation, ids

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat("g", member_id, instance, generation).answer

    def leave(self, *leaving: tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
        return self.coordinator.leave_group(group, [MemberIdentity(*who) for who in leaving]).answer

    def delete_offsets(
        self, *partitions: TopicPartition, group: str = "g"
    ) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
        return self.coordinator.delete_offsets(group, partitions).answer

    def delete_group(self, group: str = "g") -> ErrorCode:
        return self.coordinator.delete_group(group, Pace()).answer

    def state(self, group: str = "g") -> str:
        found = self.coordinator.known(group)
        return found.name if isinstance(found, ErrorCode) else found.state.value


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on virtual time."""

    @wraps(test)
    def on_virtual_time(*given: P.args, **named: P.kwargs) -> None:
        run(test(*given, **named))

    return on_virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def settled() -> None:
    """Let everybody do what can be done at once."""
    for _ in range(10):
        await asyncio.sleep(0)


def group_of(world: World) -> ClassicGroup:
    found = world.coordinator.known("g")
    assert isinstance(found, ClassicGroup)
    return found
