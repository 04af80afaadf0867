"""Who is told that groups are deleted is told so when the last of their tombstones is durable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.coordinator.group.group_doubles import World

from fencepost.broker.apis.delete_groups import delete_groups
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteGroupsRequest
from fencepost.protocol.types import TopicPartition

DELETE_GROUPS = 42
LSNS = {"a": 17, "b": 5, "c": 0}


@pytest.mark.parametrize("names", [["a"], ["b"], ["b", "a"], ["a", "b"], ["c"], [], ["b", "a", "b"]])
def test_the_answer_depends_on_all_of_them(names: list[str]) -> None:
    groups = SimpleNamespace(delete_group=lambda name, _: (ErrorCode.NONE, LSNS[name]))
    context: Any = SimpleNamespace(may=lambda *_: True, version=2)
    node: Any = SimpleNamespace(groups=groups, slices=None, answer_memory=None)
    reply: Any = SERVED[DELETE_GROUPS].handler(DeleteGroupsRequest(groups_names=names), context, node)
    assert [each.group_id for each in reply.response.results] == list(dict.fromkeys(names)), (
        "one that is named twice is told of once"
    )
    assert reply.lsn == max((LSNS[name] for name in names), default=0)


def test_others_are_served_between_groups_that_have_many_offsets() -> None:
    world, each = World(), 1000
    names = [f"g{number}" for number in range(8)]
    for name in names:
        world.commit({TopicPartition("t", index): 1 for index in range(each)}, name)
    context: Any = SimpleNamespace(may=lambda *_: True, version=2)
    node: Any = SimpleNamespace(groups=world.coordinator)
    request = DeleteGroupsRequest(groups_names=names)
    before = len(world.journal.batches)
    for _ in delete_groups.__wrapped__(request, context, node):  # type: ignore[attr-defined]
        assert len(world.journal.batches) <= before + 2, "batches of tombstones"
        before = len(world.journal.batches)
    assert not list(world.coordinator._shards[0].offsets.groups())
