"""The broker's own topics: made when needed, with their own number of partitions, and never by a client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.group_talk import commit, committed_offset, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    batch,
    clients,
    end,
    fetch,
    find_coordinator,
    init,
    new_topic,
    produce,
    values,
)

from fencepost.broker import running_broker
from fencepost.broker.metadata.topic_rules import INTERNAL, TopicRefused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from fencepost.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from fencepost.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE, ProducerIdAndEpoch
from fencepost.runtime import at_once

client = clients()


def described(client: Client, name: str, *, create: bool) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    topic: MetadataResponseTopic = client.ask(request).topics[0]
    return topic


def made(client: Client, name: str) -> CreatableTopicResult:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    result: CreatableTopicResult = client.ask(CreateTopicsRequest(topics=[wanted])).topics[0]
    return result


@pytest.mark.parametrize(("name", "key_type"), [(CONSUMER_OFFSETS, 0), (TRANSACTION_STATE, 1)])
def test_the_first_question_for_a_coordinator_makes_them(client: Client, name: str, key_type: int) -> None:
    assert described(client, name, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    find_coordinator(client, "anybody", key_type)
    topic = described(client, name, create=False)
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (ErrorCode.NONE, True, 5)


def test_each_has_as_many_partitions_as_its_own_setting_says(tmp_path: Path) -> None:
    counts = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 3}
    with running_broker(data=tmp_path, settings={**SETTINGS, **counts}) as broker:
        client = Client(broker)
        for name, key_type, count in ((CONSUMER_OFFSETS, 0, 2), (TRANSACTION_STATE, 1, 3)):
            find_coordinator(client, "anybody", key_type)
            assert len(described(client, name, create=False).partitions) == count
        client.close()


def test_asking_for_one_by_name_makes_it_as_the_coordinator_needs_it(client: Client) -> None:
    """With num.partitions of them most groups and transactional ids would live nowhere."""
    for name in INTERNAL:
        made_now = described(client, name, create=True)
        assert (made_now.error_code, made_now.is_internal, len(made_now.partitions)) == (ErrorCode.NONE, True, 5)
    topic = new_topic(client)
    for number in range(20):
        transactional_id = f"id{number}"
        pair = init(client, transactional_id)
        data = batch("x", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, transactional_id).error_code == ErrorCode.NONE
        assert end(client, transactional_id, pair).error_code == ErrorCode.NONE
        assert commit(client, topic, number, group=f"g{number}") == [ErrorCode.NONE]


@pytest.mark.parametrize("name", INTERNAL)
def test_clients_neither_make_nor_change_nor_delete_them(client: Client, name: str) -> None:
    assert made(client, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert described(client, name, create=True).error_code == ErrorCode.NONE
    assert made(client, name).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=50)], timeout_ms=1000, validate_only=False
    )
    assert client.ask(more).results[0].error_code == ErrorCode.INVALID_REQUEST
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    assert client.ask(gone).responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(described(client, name, create=False).partitions) == 5


def test_a_restart_with_other_settings_finds_every_group_and_transactional_id(tmp_path: Path) -> None:
    """Where they live is a hash modulo the partitions that are there, whatever the settings say by now."""
    pairs: dict[str, ProducerIdAndEpoch] = {}
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client)
        for number in range(10):
            pair = pairs[f"id{number}"] = init(client, f"id{number}")
            data = batch(f"{number}", pair=pair, sequence=0, transactional=True)
            assert produce(client, topic, data, f"id{number}").error_code == ErrorCode.NONE
            find_group(client)
            assert commit(client, topic, number, group=f"g{number}") == [ErrorCode.NONE]
        client.close()
    other = {**SETTINGS, "offsets.topic.num.partitions": 7, "transaction.state.log.num.partitions": 3}
    with running_broker(data=tmp_path, settings=other) as broker:
        client = Client(broker)
        for number in range(10):
            transactional_id = f"id{number}"
            assert end(client, transactional_id, pairs[transactional_id]).error_code == ErrorCode.NONE
            assert init(client, transactional_id).producer_id == pairs[transactional_id].producer_id
            assert committed_offset(client, topic, group=f"g{number}") == (number, ErrorCode.NONE)
        assert values(fetch(client, topic)) == [f"{number}" for number in range(10)]
        client.close()


ALTERED = [
    {"cleanup.policy": "delete", "retention.ms": "1"},
    {"cleanup.policy": "compact,delete", "retention.ms": "1"},
    {"cleanup.policy": "delete"},
    {"retention.ms": "1"},
    {},
]


@pytest.mark.parametrize(("name", "key_type"), [(CONSUMER_OFFSETS, 0), (TRANSACTION_STATE, 1)])
def test_nothing_that_is_needed_can_be_made_to_go_by_settings(client: Client, name: str, key_type: int) -> None:
    """AlterConfigs replaces all of them, so whoever does not name the policy would set the broker's default."""
    find_coordinator(client, "anybody", key_type)
    before = dict(client.broker.node.topics.by_name[name].settings)
    for settings in ALTERED:
        assert altered(client, name, settings) == ErrorCode.POLICY_VIOLATION
    for operation in (SET, DELETE, APPEND):
        value = None if operation == DELETE else "delete"
        assert incrementally(client, name, "cleanup.policy", value, operation) == ErrorCode.POLICY_VIOLATION
    assert client.broker.node.topics.by_name[name].settings == before
    assert incrementally(client, name, "retention.ms", "1", SET) == ErrorCode.NONE, "it deletes nothing here"
    assert altered(client, name, {"cleanup.policy": "compact", "segment.ms": "5000"}) == ErrorCode.NONE
    other = new_topic(client)
    assert altered(client, other, {"cleanup.policy": "delete"}) == ErrorCode.NONE


def test_settings_that_an_older_version_took_are_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        find_coordinator(client, "id")
        topic = broker.node.topics.by_name[TRANSACTION_STATE]
        settings = {"cleanup.policy": "delete", "retention.ms": "1"}
        assert at_once(broker.node.topics.change_together({topic: settings})) == {}
        client.close()
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        topic = broker.node.topics.by_name[TRANSACTION_STATE]
        assert {each.settings.cleanup_policy for each in topic.partitions} == {"compact"}
    (said,) = [line for line in caplog.messages if "cleanup.policy" in line]
    assert "__transaction_state is compact and stays so" in said


SET, DELETE, APPEND = 0, 1, 2
TOPIC = 2


def altered(client: Client, name: str, settings: dict[str, str]) -> int:
    configs = [AlterableConfig(name=key, value=value) for key, value in settings.items()]
    wanted = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[wanted], validate_only=False)
    return int(client.ask(request).responses[0].error_code)


def incrementally(client: Client, name: str, key: str, value: str | None, operation: int) -> int:
    change = IncrementalConfig(name=key, config_operation=operation, value=value)
    wanted = IncrementalResource(resource_type=TOPIC, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False)
    return int(client.ask(request).responses[0].error_code)


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "zstd"])
def test_no_setting_of_theirs_stops_what_coordinators_write(client: Client, codec: str) -> None:
    topic = new_topic(client)
    find_group(client)
    init(client, "before")
    for name in INTERNAL:
        assert incrementally(client, name, "max.message.bytes", "1", SET) == ErrorCode.NONE
        assert incrementally(client, name, "compression.type", codec, SET) == ErrorCode.NONE
    for transactional_id in ("before", "new"):
        pair = init(client, transactional_id)
        data = batch("x", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, transactional_id).error_code == ErrorCode.NONE
        assert txn_commit(client, transactional_id, pair, topic, 7) == [ErrorCode.NONE]
        assert end(client, transactional_id, pair).error_code == ErrorCode.NONE
    assert committed_offset(client, topic) == (7, ErrorCode.NONE)
    assert commit(client, topic, 8) == [ErrorCode.NONE]
    assert committed_offset(client, topic) == (8, ErrorCode.NONE)


def test_no_segment_of_theirs_is_too_small_for_what_coordinators_write(client: Client) -> None:
    """One commit may have 4 MiB, whatever a segment of other topics has."""
    topic = new_topic(client, 400)
    find_group(client)
    assert incrementally(client, CONSUMER_OFFSETS, "segment.bytes", str(1024 * 1024), SET) == ErrorCode.NONE
    assert set(commit(client, topic, *range(400), metadata="m" * 4000)) == {ErrorCode.NONE}


def test_a_topic_with_nearly_the_same_name_does_not_keep_them_from_being_made(client: Client) -> None:
    """Metrics would have one name for both; that nobody could have a group or a transaction would be worse."""
    for name in INTERNAL:
        assert made(client, name.replace("_", ".")).error_code == ErrorCode.NONE
        assert made(client, name.replace("__", "_.")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    find_group(client)
    find_coordinator(client, "anybody")
    assert init(client, "anybody").producer_id >= 0


def test_who_asks_for_one_that_somebody_else_has_just_begun_to_make_waits_for_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two do who waited for a third one, who could not make it."""
    topics, name = client.broker.node.topics, CONSUMER_OFFSETS

    def make() -> None:
        topics._coming.pop(name).set_result(None)
        topics.create_at_once(name, 5, {"cleanup.policy": "compact"})

    async def refused(*_: object) -> None:
        loop = asyncio.get_running_loop()
        topics._coming[name] = loop.create_future()
        loop.call_later(0.05, make)
        raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, name)

    monkeypatch.setattr(type(client.broker.node), "ensure_coordinator", refused)
    assert described(client, name, create=True).error_code == ErrorCode.NONE
