"""Asking the coordinator of a group, however often it moves; and what a member of a classic group says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.cluster import Cluster, Use
from fencepost.client.errors import ConnectionLostError, UnreachableError
from fencepost.client.group import Group
from fencepost.client.group_requests import GroupRequests
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
from fencepost.simulation.loop import VirtualLoop, run

E = ErrorCode
#: What is followed by another try, wherever the coordinator is by then.
ELSEWHERE = (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS)


class Patience:
    async def pause(self, because: object) -> None:
        """Nobody waits here."""

    async def within(self, work: Awaitable[Any]) -> Any:
        return await work


class Coordinators:
    """A cluster whose coordinator gives these answers, or raises them, one after the other."""

    request_timeout_ms = 1000

    def __init__(self, *answers: Any) -> None:
        self.left = list(answers)
        self.asked: list[Any] = []
        self.how: list[dict[str, Any]] = []
        self.forgotten: list[tuple[int, str]] = []

    def deadline(self, *_: object) -> Patience:
        return Patience()

    async def coordinator(self, *_: object) -> int:
        return 1

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.forgotten.append((kind, key))

    async def call(self, _: int, request: Any, **how: Any) -> Any:
        self.asked.append(request)
        self.how.append(how)
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
    assert (cluster.how[0]["timeout_ms"], cluster.how[0]["use"]) == (13_000, Use.JOIN), "others may be at work so long"
    who: dict[str, Any] = {"group_id": "g", "member_id": "member"}
    member: dict[str, Any] = {**who, "generation_id": 7, "group_instance_id": instance}
    expected: list[Any] = [
        SyncGroupRequest(**member, protocol_type="consumer", protocol_name="range", assignments=[]),
        HeartbeatRequest(**member),
    ]
    if instance is None:  # one with an id of its own keeps its place
        expected.append(LeaveGroupRequest(**who, members=[MemberIdentity(member_id="member")]))
    assert others == expected
