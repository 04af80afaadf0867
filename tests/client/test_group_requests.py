"""Asking the coordinator of a group, however often it moves; and what a member of a classic group says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_deadline import deadline

from fencepost.client.cluster import Cluster, Use
from fencepost.client.errors import ConnectionLostError, TimedOutError, UnreachableError
from fencepost.client.group import Group
from fencepost.client.group_protocol import assignment, member_of
from fencepost.client.group_requests import GroupRequests
from fencepost.client.transactional_id import ConsumerGroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from fencepost.protocol.messages.find_coordinator import GROUP
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run

E = ErrorCode
AT = TopicPartition("t", 0)
#: What is followed by another try, wherever the coordinator is by then.
ELSEWHERE = (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS)


class Patience:
    left = 0.0

    def at_most(self, _: float) -> Patience:
        return self

    def put_off(self, seconds: float) -> None:
        """It does not pass here."""

    async def pause(self, because: object) -> None:
        """Nobody waits here."""

    async def within(self, work: Awaitable[Any]) -> Any:
        return await work


class Coordinators:
    """A cluster whose coordinator gives these answers, or raises them, one after the other."""

    request_timeout_ms = patience_ms = 1000

    def __init__(self, *answers: Any) -> None:
        self.left = list(answers)
        self.asked: list[Any] = []
        self.timeouts: list[int | None] = []
        self.uses: list[Use] = []
        self.forgotten: list[tuple[int, str]] = []
        self.is_ready = False
        self._connection = SimpleNamespace(version_of=lambda *_: 9, request=lambda *given: self.call(*given))

    def deadline(self, *_: object) -> Patience:
        return Patience()

    def ready_coordinator(self, _kind: int, _key: str, use: Use) -> SimpleNamespace | None:
        self.uses.append(use)
        return self._connection if self.is_ready else None

    async def coordinator(self, *_: object) -> int:
        return 1

    async def connection(self, _: int, use: Use) -> SimpleNamespace:
        self.uses.append(use)
        return self._connection

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.forgotten.append((kind, key))

    async def call(self, request: Any, _version: int, timeout_ms: int | None) -> Any:
        self.asked.append(request)
        self.timeouts.append(timeout_ms)
        answer = self.left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


FAILURES = st.lists(st.sampled_from([*ELSEWHERE, ConnectionLostError("x"), UnreachableError("x")]), max_size=5)


@given(FAILURES, st.sampled_from([error for error in E if error not in ELSEWHERE]), st.booleans())
def test_it_is_asked_until_the_one_who_coordinates_answers(failures: list[Any], last: ErrorCode, differs: bool) -> None:
    """What it says is for the caller, whatever it is; from the second time on it may be asked something else."""
    answers = [HeartbeatResponse(error_code=each) if isinstance(each, E) else each for each in [*failures, last]]
    cluster = Coordinators(*answers)
    first, again = SimpleNamespace(name="first"), SimpleNamespace(name="again")

    async def main() -> Any:
        requests = GroupRequests(cast(Cluster, cluster), "g")
        return await requests.ask(first, cast(Any, Patience()), again=again if differs else None)

    assert asyncio.run(main()).error_code is last
    assert cluster.forgotten == [(GROUP, "g")] * len(failures)
    assert cluster.asked == [first] + [again if differs else first] * len(failures)


def test_a_connection_is_waited_for_no_longer_than_max_block_ms_and_an_answer_until_the_deadline() -> None:
    cluster = Coordinators()

    async def silence(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    async def main(loop: VirtualLoop) -> list[float]:
        requests, ended = GroupRequests(cast(Cluster, cluster), "g"), list[float]()
        for call in ("connection", "call"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cluster, call, silence)
                begun = loop.time()
                with pytest.raises(TimedOutError):
                    await requests.ask(object(), deadline(loop, 30_000))
            ended.append(loop.time() - begun)
        return ended

    assert run(main) == [cluster.patience_ms / 1000, 30]


@pytest.mark.parametrize("instance", [None, "instance"])
def test_a_member_says_who_it_is_whatever_it_asks(instance: str | None) -> None:
    joined = JoinGroupResponse(
        error_code=0, generation_id=7, protocol_name="range", leader="another", member_id="member", members=[]
    )
    cluster = Coordinators(joined, SyncGroupResponse(error_code=0, assignment=b""), HeartbeatResponse(error_code=0))
    cluster.left.append(LeaveGroupResponse(error_code=0))

    async def main(_: VirtualLoop) -> None:
        group = Group(
            *(cast(Cluster, cluster), "g", instance),
            session_timeout_ms=11_000,
            rebalance_timeout_ms=12_000,
            heartbeat_interval_ms=1000,
        )
        assert await group.join(["u", "t"]) == []
        await asyncio.sleep(1.5)
        await group.leave()

    run(main)
    join, *others = cluster.asked
    assert isinstance(join, JoinGroupRequest)
    (protocol,) = join.protocols
    assert (protocol.name, join.protocol_type) == ("range", "consumer")
    assert (join.group_id, join.member_id, join.group_instance_id) == ("g", "", instance)
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (11_000, 12_000)
    # Others may be at work so long; whoever has no id is given one at once.
    assert cluster.timeouts[:2] == [13_000 if instance else None, 13_000]
    assert cluster.uses[:2] == [Use.JOIN, Use.JOIN]
    who: dict[str, Any] = {"group_id": "g", "member_id": "member"}
    member: dict[str, Any] = {**who, "generation_id": 7, "group_instance_id": instance}
    expected: list[Any] = [
        SyncGroupRequest(**member, protocol_type="consumer", protocol_name="range", assignments=[]),
        HeartbeatRequest(**member),
    ]
    if instance is None:  # one with an id of its own keeps its place
        expected.append(LeaveGroupRequest(**who, members=[MemberIdentity(member_id="member")]))
    assert others == expected


def joined_as(member_id: str, generation: int) -> list[Any]:
    answer = JoinGroupResponse(
        error_code=0, generation_id=generation, protocol_name="sticky", leader="x", member_id=member_id, members=[]
    )
    return [answer, SyncGroupResponse(error_code=0, assignment=assignment([AT]))]


def group_of(cluster: Coordinators, instance: str | None = None) -> Group:
    return Group(
        *(cast(Cluster, cluster), "g", instance),
        strategies=["sticky"],
        session_timeout_ms=11_000,
        rebalance_timeout_ms=12_000,
        heartbeat_interval_ms=1000,
    )


@pytest.mark.parametrize("error", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
def test_only_a_member_that_is_not_known_any_more_joins_under_another_id(error: ErrorCode) -> None:
    """The group would wait for the one before, who does not come; and it had what it says it had."""
    cluster = Coordinators(*joined_as("member", 7), HeartbeatResponse(error_code=error), *joined_as("member", 9))
    cluster.left.append(LeaveGroupResponse(error_code=0))

    async def main(_: VirtualLoop) -> None:
        group = group_of(cluster)
        assert await group.join(["t"]) == [AT]
        await asyncio.sleep(1.5)
        assert group.has_lost_place and group.must_join
        assert await group.join(["t"], [AT]) is None, "it is to be given up first"
        assert await group.join(["t"]) == [AT]
        await group.leave()

    run(main)
    again = cluster.asked[3]
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == ("member" if error is E.ILLEGAL_GENERATION else "")
    said = member_of("sticky", again.protocols[0].metadata, None)
    assert (said.owned, said.generation) == ([AT], 7)


@pytest.mark.parametrize("instance", [None, "instance"])
def test_what_it_is_called_is_in_the_name_that_commits_are_made_in(instance: str | None) -> None:
    cluster = Coordinators(*joined_as("member", 7), LeaveGroupResponse(error_code=0))

    async def main(_: VirtualLoop) -> None:
        group = group_of(cluster, instance)
        await group.join(["t"])
        group.follow()
        assert group.metadata() == ConsumerGroupMetadata("g", 7, "member", instance)
        group.commit_was_refused(ConsumerGroupMetadata("g", 6, "member", instance))
        assert not group.must_join, "that was of an earlier generation"
        group.commit_was_refused(group.metadata())
        assert group.must_join
        await group.leave()

    run(main)


@pytest.mark.parametrize("use", [Use.GROUP, Use.JOIN])
@pytest.mark.parametrize("is_ready", [True, False])
def test_the_coordinator_is_asked_on_a_connection_without_fetches(use: Use, is_ready: bool) -> None:
    """A fetch waits for records, and whatever comes behind it on its connection waits with it."""
    cluster = Coordinators(HeartbeatResponse(error_code=0))
    cluster.is_ready = is_ready

    async def main() -> None:
        await GroupRequests(cast(Cluster, cluster), "g").ask(object(), cast(Any, Patience()), use=use)

    asyncio.run(main())
    assert set(cluster.uses) == {use}
