"""Topics over the wire: made, grown, shown, emptied, deleted, and found again by the next start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import (
    Client,
    add,
    batch,
    clients,
    ended,
    fetch,
    init,
    list_offset,
    new_topic,
    produce,
    serving,
    values,
)

from fencepost.broker import Broker, running_broker
from fencepost.broker.metadata.store import SqliteMetadataStore
from fencepost.broker.metadata.topic_rules import LARGEST_COUNT
from fencepost.log.space import Space
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.describe_topic_partitions import Cursor, TopicRequest
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.types import ZERO_UUID, ProducerIdAndEpoch

client = clients()


def create(client: Client, *wanted: CreatableTopic, dry: bool = False, version: int = 7) -> list[Any]:
    found: list[Any] = client.ask(CreateTopicsRequest(topics=list(wanted), validate_only=dry), version).topics
    return found


def topic(name: str, partitions: int = 1, replication_factor: int = 1, **configs: str | None) -> CreatableTopic:
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=given
    )


def shown(client: Client, *names: str, make: bool = False, version: int = 13) -> list[Any]:
    asked = [MetadataRequestTopic(name=name) for name in names] or None
    found: list[Any] = client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=make), version).topics
    return found


def delete(client: Client, name: str, version: int = 6) -> int:
    request = DeleteTopicsRequest(topic_names=[name], topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    return int(client.ask(request, version).responses[0].error_code)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made(client: Client, version: int) -> None:
    (made,) = create(client, topic("t", 3, retention_ms="5"), version=version)
    assert made.error_code == ErrorCode.NONE
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert {each.name: each.value for each in made.configs}["retention.ms"] == "5"
    (found,) = shown(client, "t")
    assert (found.error_code, len(found.partitions), found.is_internal) == (ErrorCode.NONE, 3, False)
    assert made.topic_id == (found.topic_id if version >= 7 else ZERO_UUID)
    (again,) = create(client, topic("t"), version=version)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def assigned(name: str, *brokers: list[int]) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(brokers)]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/../b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", LARGEST_COUNT + 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", retention="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (assigned("t", [0, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [0], [0]), ErrorCode.NONE),
        (topic("x" * 249, -1, -1), ErrorCode.NONE),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else value.name[:8],
)
def test_what_is_no_topic(client: Client, wanted: CreatableTopic, error: ErrorCode, dry: bool) -> None:
    (made,) = create(client, wanted, dry=dry)
    assert made.error_code == error
    assert bool(made.error_message) == bool(error)
    assert len(shown(client)) == (0 if dry or error else 1)


def test_a_topic_named_twice_is_not_made(client: Client) -> None:
    made = create(client, topic("t"), topic("u"), topic("t"))
    assert [each.error_code for each in made] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def grow(client: Client, name: str, count: int, *, dry: bool = False, version: int = 3) -> int:
    wanted = CreatePartitionsTopic(name=name, count=count)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=dry)
    return int(client.ask(request, version).results[0].error_code)


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_never_shrinks(client: Client, version: int) -> None:
    name = new_topic(client, 2)
    init(client, "t")
    assert grow(client, name, 5, dry=True, version=version) == ErrorCode.NONE
    assert len(shown(client, name)[0].partitions) == 2
    for count, error in [(2, ErrorCode.INVALID_PARTITIONS), (1, ErrorCode.INVALID_PARTITIONS), (5, ErrorCode.NONE)]:
        assert grow(client, name, count, version=version) == error
    assert len(shown(client, name)[0].partitions) == 5
    assert grow(client, "unknown", 5, version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(client, "__transaction_state", 60, version=version) == ErrorCode.INVALID_REQUEST


def test_a_topic_grows_to_the_largest_number_of_partitions_and_no_further(client: Client) -> None:
    name = new_topic(client, 2)
    assert grow(client, name, LARGEST_COUNT, dry=True) == ErrorCode.NONE
    assert grow(client, name, LARGEST_COUNT + 1, dry=True) == ErrorCode.INVALID_PARTITIONS


def test_what_the_disk_has_no_room_for_is_refused_before_anything_is_written(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new topic, and the partitions that one gets more."""
    name = new_topic(client, 2)
    monkeypatch.setattr(Space, "has_room_for", lambda _, partitions: partitions <= 3)
    (refused,) = create(client, topic("large", 4))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (
        refused.error_message
        == "no space is left on the disk for topic 'large', or it can have no more files (inodes): free some"
    )
    assert grow(client, name, 6) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(each.name, len(each.partitions)) for each in shown(client)] == [(name, 2)]
    assert grow(client, name, 5) == create(client, topic("large", 3))[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_and_may_be_made_again(client: Client, version: int) -> None:
    name = new_topic(client)
    produce(client, name, batch("old"))
    before = shown(client, name)[0].topic_id
    init(client, "t")
    assert delete(client, name, version) == ErrorCode.NONE
    assert delete(client, name, version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(client, "__transaction_state", version) == ErrorCode.INVALID_TOPIC_EXCEPTION
    create(client, topic(name))
    assert shown(client, name)[0].topic_id != before
    assert fetch(client, name).high_watermark == 0


def test_a_topic_is_deleted_by_its_id(client: Client) -> None:
    name = new_topic(client)
    topic_id = shown(client, name)[0].topic_id
    for error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1000)
        assert client.ask(request).responses[0].error_code == error


def test_deleting_may_be_forbidden() -> None:
    with serving(delete_topic_enable=False) as broker:
        client = Client(broker)
        assert delete(client, new_topic(client)) == ErrorCode.TOPIC_DELETION_DISABLED
        client.close()


def test_a_transaction_may_end_after_its_topic_was_deleted(client: Client) -> None:
    name, other = new_topic(client), new_topic(client)
    pair = init(client, "t")
    for each in (name, other):
        assert add(client, "t", pair, each) == ErrorCode.NONE
        data = batch("v", pair=pair, sequence=0, transactional=True)
        assert produce(client, each, data, "t").error_code == ErrorCode.NONE
    assert delete(client, name) == ErrorCode.NONE
    following = ended(client, "t", pair)
    assert values(fetch(client, other)) == ["v"]
    assert isinstance(ended(client, "t", following, commit=False), ProducerIdAndEpoch), "the id is not stuck"


@pytest.mark.parametrize("version", range(14))
def test_metadata(client: Client, version: int) -> None:
    name = new_topic(client, 2)
    answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
        (0, client.broker.host, client.broker.port)
    ]
    (found,) = answer.topics
    told = [(each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes) for each in found.partitions]
    assert told == [(0, 0, [0], [0]), (1, 0, [0], [0])]
    everything = client.ask(MetadataRequest(topics=[] if version == 0 else None), version)
    assert [each.name for each in everything.topics] == [name]
    if version:
        assert client.ask(MetadataRequest(topics=[]), version).topics == []


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_a_topic_may_be_made_by_asking_for_it(enabled: bool, asked: bool) -> None:
    with serving(auto_create_topics_enable=enabled, num_partitions=3) as broker:
        client = Client(broker)
        (found,) = shown(client, "fresh", make=asked)
        made = enabled and asked
        assert found.error_code == (ErrorCode.NONE if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert len(found.partitions) == (3 if made else 0)
        assert shown(client, "a b", make=asked)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        client.close()


def test_partitions_are_described(client: Client) -> None:
    name = new_topic(client, 3)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name), TopicRequest(name="unknown")])
    found = {each.name: each for each in client.ask(request).topics}
    assert found["unknown"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.partition_index for each in found[name].partitions] == [0, 1, 2]


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(client: Client, version: int) -> None:
    name = new_topic(client)
    for value in "abc":
        produce(client, name, batch(value))

    def cut(offset: int, partition: int = 0) -> tuple[int, int]:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        of_topic = DeleteRecordsTopic(name=name, partitions=[wanted])
        answer = client.ask(DeleteRecordsRequest(topics=[of_topic], timeout_ms=1000), version)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert cut(2) == (ErrorCode.NONE, 2)
    assert cut(1) == (ErrorCode.NONE, 2), "what is gone is gone"
    assert cut(9)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cut(0, 5)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(client, name, -2).offset == 2
    assert fetch(client, name, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(fetch(client, name, 2)) == ["c"]
    assert cut(-1) == (ErrorCode.NONE, 3)


def test_the_next_start_finds_everything_again(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}

    def started(what: Callable[[Client], Any]) -> Any:
        with running_broker(data=tmp_path, settings=settings) as broker:
            client = Client(broker)
            answer = what(client)
            client.close()
            return answer, identity(broker)

    def begin(client: Client) -> Any:
        create(client, topic("kept", 3, segment_bytes="2097152"), topic("gone"))
        pair = init(client, "t")
        data = batch("open", pair=pair, sequence=0, transactional=True)
        assert produce(client, "kept", batch("plain")).error_code == ErrorCode.NONE
        assert produce(client, "kept", data, "t").error_code == ErrorCode.NONE
        delete(client, "gone")
        return pair, {each.name: (each.topic_id, len(each.partitions)) for each in shown(client)}

    def go_on(client: Client) -> Any:
        assert fetch(client, "kept").last_stable_offset == 1
        following = ended(client, "t", pair)
        assert values(fetch(client, "kept")) == ["plain", "open"]
        return following, {each.name: (each.topic_id, len(each.partitions)) for each in shown(client)}

    (pair, before), first = started(begin)
    (following, after), second = started(go_on)
    assert (before, first) == (after, second)
    assert following == ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1)


def identity(broker: Broker) -> tuple[str, dict[str, int]]:
    return broker.node.cluster_id, dict(broker.node.features.levels)


def test_topics_that_differ_in_dots_and_underscores_only_are_not_both_made(client: Client) -> None:
    create(client, topic("a.b_c"))
    for name in ("a_b_c", "a.b.c", "a_b.c"):
        (made,) = create(client, topic(name))
        assert made.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [made.error_code for made in create(client, topic("a-b_c"), topic("ab_c"))] == [0, 0]


def test_a_topic_is_deleted_by_one_name(client: Client) -> None:
    """Named twice, by whatever name, it stays."""
    create(client, topic("t"), topic("u"))
    ids = {each.name: each.topic_id for each in shown(client)}
    for asked in (
        [DeleteTopicState(name="t"), DeleteTopicState(name="t")],
        [DeleteTopicState(name="t"), DeleteTopicState(topic_id=ids["t"])],
        [DeleteTopicState(name="t", topic_id=ids["t"])],
        [DeleteTopicState()],
    ):
        (answer,) = client.ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    twice = client.ask(DeleteTopicsRequest(topic_names=["t", "u", "t"], timeout_ms=1000), 5).responses
    assert [(each.name, each.error_code) for each in twice] == [("t", ErrorCode.INVALID_REQUEST), ("u", 0)]
    assert [each.name for each in shown(client)] == ["t"]


PAGED = [("a", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("names", "cursor", "expected"),
    [
        (["a", "b"], None, [("a", [0]), ("b", [0, 1])]),
        ([], ("", 0), [("a", [0]), ("b", [0, 1])]),
        (["b", "a", "b"], ("b", 1), [("b", [1, 2])]),
        (["a", "b"], ("b", 3), [("b", [])]),
        (["a", "b"], ("b", -1), ErrorCode.INVALID_REQUEST),
        (["a", "b"], ("aa", 0), ErrorCode.INVALID_REQUEST),
        (["b"], ("a", 0), ErrorCode.INVALID_REQUEST),
        (["a", "b"], ("", 0), ErrorCode.INVALID_REQUEST),
        ([], ("aa", 1), [("b", [0, 1, 2])]),
        ([], ("b", -1), []),
        ([], ("c", 0), []),
    ],
)
def test_a_cursor_names_the_topic_that_the_page_begins_with(
    client: Client, names: list[str], cursor: tuple[str, int] | None, expected: list[tuple[str, list[int]]] | ErrorCode
) -> None:
    create(client, *(topic(name, count) for name, count in PAGED))
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    asked = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=3, cursor=at)
    answer = client.ask(request)
    if isinstance(expected, ErrorCode):
        assert [(each.name, each.error_code) for each in answer.topics] == [(name, expected) for name in names]
        return
    found = [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics]
    assert found == expected


@pytest.mark.parametrize(
    ("most", "asked", "sizes"), [(1, 2000, [1] * 4), (3, 2000, [3, 1]), (3, 2, [2, 2]), (3, 0, [1] * 4), (5, 4, [4])]
)
@pytest.mark.parametrize("named", [{"a": 1, "b": 3}, {"a": 3, "b": 1}, {"a": 2, "b": 2}])
def test_a_page_has_no_more_partitions_than_the_setting_says_nor_than_were_asked_for(
    named: dict[str, int], most: int, asked: int, sizes: list[int]
) -> None:
    with serving(max_request_partition_size_limit=most) as broker:
        client = Client(broker)
        create(client, *(topic(name, count) for name, count in named.items()))
        pages, cursor = list[list[tuple[str, int]]](), None
        while not pages or (cursor is not None and len(pages) < 9):
            answer = client.ask(
                DescribeTopicPartitionsRequest(topics=[], response_partition_limit=asked, cursor=cursor)
            )
            pages.append([(found.name, each.partition_index) for found in answer.topics for each in found.partitions])
            cursor = answer.next_cursor
        client.close()
    assert [len(page) for page in pages] == sizes
    assert [one for page in pages for one in page] == [(name, n) for name, count in named.items() for n in range(count)]


def test_a_stored_setting_that_is_not_taken_any_more_does_not_stop_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An older version took smaller segments: the topic is there with the default, and the log says so."""
    with running_broker(data=tmp_path) as broker:
        client = Client(broker)
        create(client, topic("t", retention_ms="5"))
        client.close()
    store = SqliteMetadataStore(next(tmp_path.glob("**/*.sqlite")))
    stored = store.get("topic/t")
    assert stored is not None
    described = json.loads(stored.value)
    described["settings"]["segment.bytes"] = "2048"
    assert store.write({"topic/t": (json.dumps(described).encode(), stored.version)})
    store.close()
    with running_broker(data=tmp_path) as broker:
        held = broker.node.topics.by_name["t"]
        assert (held.settings, held.partitions[0].settings.segment_bytes) == ({"retention.ms": "5"}, 1024**3)
    assert "topic t: segment.bytes=2048: it must be between" in caplog.text
