"""A group of very many members, and connections that come and go: works for `benchmarks.stalls`."""

from __future__ import annotations

import resource
import struct
import time
from socket import SO_LINGER, SOL_SOCKET, create_connection
from typing import Any, Final

from benchmarks.prober import Wire
from benchmarks.stall_table import Table, served
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment

MEMBERS: Final = 1000
CONNECTIONS: Final = 10_000
HELLO: Final = ApiVersionsRequest(client_software_name="stalls", client_software_version="1")
REBALANCE_IN_PROGRESS: Final = 27


class Member:
    """One connection and its place in the group."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.id = ""
        self.generation = -1

    def join(self) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 200)]
        about: Any = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
        request = JoinGroupRequest(group_id="crowd", member_id=self.id, protocols=protocols, **about)
        self.wire.send(self.wire.frame(request, 3))

    def joined(self) -> list[str]:
        """The ids of all members, where this one leads."""
        answer = self.wire.receive(JoinGroupRequest, 3)
        assert not answer.error_code, answer
        self.id, self.generation = answer.member_id, answer.generation_id
        return [each.member_id for each in answer.members]

    def sync(self, members: list[str]) -> None:
        assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"a" * 200) for each in members]
        about: Any = {"generation_id": self.generation, "member_id": self.id, "assignments": assignments}
        self.wire.send(self.wire.frame(SyncGroupRequest(group_id="crowd", **about), 2))

    def synced(self) -> None:
        answer = self.wire.receive(SyncGroupRequest, 2)
        assert not answer.error_code, answer


def rebalance(members: list[Member]) -> None:
    for each in members:
        each.join()
    everybody = [each.joined() for each in members]
    for each, led in zip(members, everybody, strict=True):
        each.sync(led)
    for each in members:
        each.synced()


def members(table: Table) -> None:
    with served("group.initial.rebalance.delay.ms=1000") as (node, wire, prober):
        wire.ask(FindCoordinatorRequest(key="crowd", key_type=0), 1)
        time.sleep(1)
        crowd = [Member(node.wire()) for _ in range(MEMBERS)]
        with table.measuring(f"{MEMBERS} members make a group", prober):
            rebalance(crowd)
        for what in ("again", "and a third time"):
            with table.measuring(f"they rebalance {what}", prober):
                rebalance(crowd)
        with table.measuring("each says that it is there, at once", prober):
            for each in crowd:
                about: Any = {"generation_id": each.generation, "member_id": each.id}
                each.wire.send(each.wire.frame(HeartbeatRequest(group_id="crowd", **about), 2))
            for each in crowd:
                assert not each.wire.receive(HeartbeatRequest, 2).error_code
        with table.measuring("the group is described", prober):
            wire.ask(DescribeGroupsRequest(groups=["crowd"]), 4)
        with table.measuring("all leave", prober):
            for each in crowd:
                each.wire.send(each.wire.frame(LeaveGroupRequest(group_id="crowd", member_id=each.id), 2))
            for each in crowd:
                each.wire.skip()
        print(f"    the most memory that the node has had: {node.most_memory >> 20} MiB", flush=True)


def connections(table: Table) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with served() as (node, _, prober):
        with table.measuring(f"{CONNECTIONS} connections come, ask and go", prober):
            for _ in range(CONNECTIONS):
                wire = node.wire()
                wire.ask(HELLO)
                wire.close()
        held = min(CONNECTIONS, hard // 2 - 200)
        wires: list[Wire] = []
        with table.measuring(f"{held} come", prober):
            for _ in range(held):
                wires.append(node.wire())
                wires[-1].send(wires[-1].frame(HELLO))
            for each in wires:
                each.receive(ApiVersionsRequest)
        with table.measuring("they go at once, and 2 s more", prober):
            for each in wires:
                each.close()
            time.sleep(2)
        host, _, port = node.address.rpartition(":")
        with table.measuring(f"{held} come and are reset, and 2 s more", prober):
            sockets = [create_connection((host, int(port))) for _ in range(held)]
            for socket in sockets:
                socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                socket.close()
            time.sleep(2)
        print(f"    the most memory that the node has had: {node.most_memory >> 20} MiB", flush=True)
