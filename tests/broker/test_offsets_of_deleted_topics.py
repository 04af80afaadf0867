"""What groups have committed of a topic that is deleted goes with it, whatever state their journal is in."""

from __future__ import annotations

from pathlib import Path

from tests.broker.directories import node
from tests.broker.group_talk import commit, committed_offset, find_group
from tests.broker.wire import Client, new_topic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState


def delete(client: Client, topic: str) -> int:
    gone = DeleteTopicState(name=topic)
    error: int = client.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=1000)).responses[0].error_code
    return error


def create(client: Client, topic: str) -> int:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    error: int = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000)).topics[0].error_code
    return error


def test_offsets_in_an_offline_partition_are_forgotten_before_a_topic_of_that_name_comes(tmp_path: Path) -> None:
    """They would be taken for those of the next topic, and its first records never be read."""
    with node(tmp_path) as client:
        topic = new_topic(client)
        find_group(client)
        assert commit(client, topic, 7) == [ErrorCode.NONE]
        journal = client.broker.node.groups.partition_for("g")
    file = tmp_path / f"__consumer_offsets-{journal}" / "partition.metadata"
    right = file.read_text()
    file.write_text("junk")
    with node(tmp_path) as client:
        assert delete(client, topic) == ErrorCode.NONE
        assert create(client, topic) == ErrorCode.KAFKA_STORAGE_ERROR
    with node(tmp_path) as client:
        assert create(client, topic) == ErrorCode.KAFKA_STORAGE_ERROR, "a start does not forget it"
        assert create(client, f"{topic}-other") == ErrorCode.NONE
    file.write_text(right)
    with node(tmp_path) as client:
        assert create(client, topic) == ErrorCode.NONE
        assert committed_offset(client, topic)[0] == -1
        assert commit(client, topic, 1) == [ErrorCode.NONE]
    with node(tmp_path) as client:
        assert committed_offset(client, topic)[0] == 1
