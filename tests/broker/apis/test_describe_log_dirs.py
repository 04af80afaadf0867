"""DescribeLogDirs: the data directory, its volume, and the bytes of each partition's segments."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import Client, batch, clients, new_topic, produce_request, serving

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.log.disk import Room
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest, DescribeLogDirsRequest
from fencepost.protocol.messages.describe_log_dirs import DescribableLogDirTopic

client = clients()
VERSIONS = range(1, 6)


def describe(client: Client, version: int = 5, topics: Mapping[str, list[int]] | None = None) -> Any:
    """The only directory; None: of all topics."""
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    answer = client.ask(DescribeLogDirsRequest(topics=asked), version)
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results
    return result


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.partition_index): one.partition_size for topic in result.topics for one in topic.partitions
    }


def on_disk(client: Client) -> dict[tuple[str, int], int]:
    """Bytes of all segments, as a person would count them."""
    found: dict[tuple[str, int], int] = {}
    for segment in Path(client.broker.node.storage.path).glob("*-*/*.log"):
        topic, _, index = segment.parent.name.rpartition("-")
        if index.isdigit():
            key = topic, int(index)
            found[key] = found.get(key, 0) + segment.stat().st_size
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_has_the_size_of_its_segments(client: Client, version: int) -> None:
    topic = new_topic(client, partitions=3, segment_bytes="1048576")
    for data in ([batch("x" * 600_000)], [batch("x" * 600_000)], [batch("x" * 600_000), batch("x")]):
        written = client.ask(produce_request(client, topic, data)).responses[0].partition_responses
        assert all(one.error_code == ErrorCode.NONE for one in written)
    result = describe(client, version)
    assert sizes(result) == on_disk(client)
    assert sizes(result)[topic, 2] == 0 < sizes(result)[topic, 1] < 1_800_000 < sizes(result)[topic, 0]
    (listed,) = [one for one in result.topics if one.name == topic]
    assert [(one.offset_lag, one.is_future_key) for one in listed.partitions] == [(0, False)] * 3


def test_the_directory_is_told_by_its_absolute_path_and_with_what_its_volume_holds(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = client.broker.node.storage
    room = storage.space.room()
    assert room is not None and 0 < room.free < room.total
    monkeypatch.setattr(storage.space, "room", lambda: Room(free=1 << 40, total=1 << 41, free_files=None))
    for version in VERSIONS:
        result = describe(client, version)
        assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(storage.path.absolute()))
        told = (result.total_bytes, result.usable_bytes)
        assert told == ((1 << 41, 1 << 40) if version >= 4 else (-1, -1))
        assert result.is_cordoned is False


def test_only_what_is_asked_for_and_there_is_told_once(client: Client) -> None:
    topic, other = new_topic(client, partitions=2), new_topic(client)
    asked = {topic: [1, 7, 1, -1], other: [3], "never": [0]}
    assert sizes(describe(client, topics=asked)) == {(topic, 1): 0}
    assert sizes(describe(client, topics={})) == {}
    client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    assert sizes(describe(client, topics=asked)) == {}


class Denying:
    """Whoever describes the cluster is refused."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return (operation, resource, name) != (Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_not_describe_the_cluster_is_told_of_no_directory(version: int) -> None:
    with serving(authorizer=Denying()) as broker:
        client = Client(broker)
        new_topic(client)
        answer = client.ask(DescribeLogDirsRequest(topics=None), version)
        client.close()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else ErrorCode.NONE
    assert (answer.error_code, answer.results) == (refused, [])


def test_a_volume_that_cannot_be_asked_is_an_error_of_the_directory(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(client)

    def fails() -> Room | None:
        raise OSError(errno.EIO, "it is said to be broken")

    monkeypatch.setattr(client.broker.node.storage.space, "room", fails)
    result = describe(client)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
