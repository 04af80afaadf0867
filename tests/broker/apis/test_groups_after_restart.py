"""A node that starts again goes on with its groups and their offsets, open transactions included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.group_talk import Who, alone, commit, committed_offset, find_group, heartbeat, txn_commit
from tests.broker.wire import SETTINGS, Client, ended, init, new_topic

from fencepost.broker import running_broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteGroupsRequest, DescribeGroupsRequest


@contextmanager
def started(data: Path) -> Iterator[Client]:
    with running_broker(data=data, settings=SETTINGS) as broker:
        client = Client(broker)
        yield client
        client.close()


def test_a_member_stays_a_member(tmp_path: Path) -> None:
    with started(tmp_path) as client:
        member = alone(client, instance="i")
    with started(tmp_path) as client:
        assert heartbeat(client, member) == ErrorCode.NONE
        (found,) = client.ask(DescribeGroupsRequest(groups=["g"])).groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        (shown,) = found.members
        assert (shown.member_id, shown.group_instance_id) == (member.member_id, "i")
        assert (bytes(shown.member_metadata), bytes(shown.member_assignment)) == (b"range!", b"all")
        topic = new_topic(client)
        assert commit(client, topic, 7, who=member) == [ErrorCode.NONE]
        stale = Who(member.member_id, member.generation - 1)
        assert commit(client, topic, 7, who=stale) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_stays_in_the_way(tmp_path: Path, committed: bool) -> None:
    with started(tmp_path) as client:
        topic = new_topic(client, 3)
        find_group(client)
        pair = init(client, "t")
        assert commit(client, topic, 1, 1, 1) == [0, 0, 0]
        assert txn_commit(client, "t", pair, topic, 5, 5) == [0, 0]
        assert commit(client, topic, 3) == [0]
    with started(tmp_path) as client:
        pending = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert [committed_offset(client, topic, n, stable=True) for n in range(3)] == [pending, pending, (1, 0)]
        assert [committed_offset(client, topic, n) for n in range(3)] == [(3, 0), (1, 0), (1, 0)]
        ended(client, "t", pair, commit=committed)
        after = [(3, 0), (5 if committed else 1, 0), (1, 0)]
        assert [committed_offset(client, topic, n, stable=True) for n in range(3)] == after
    with started(tmp_path) as client:
        assert [committed_offset(client, topic, n, stable=True) for n in range(3)] == after


def test_a_deleted_group_stays_deleted(tmp_path: Path) -> None:
    with started(tmp_path) as client:
        topic = new_topic(client)
        find_group(client)
        assert commit(client, topic, 7) == [0]
        assert client.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == ErrorCode.NONE
    with started(tmp_path) as client:
        assert client.ask(DescribeGroupsRequest(groups=["g"])).groups[0].group_state == "Dead"
        assert committed_offset(client, topic) == (-1, 0)
