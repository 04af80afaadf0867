"""Settings: names, ranges, what a topic gets of them, and how clients see and change them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import Client, batch, clients, new_topic, produce, serving
from tests.source_trees import MODULES, room_of, tree_of

from fencepost.broker.metadata.setting_docs import MEANING
from fencepost.broker.metadata.settings import (
    BROKER,
    INERT_TOPIC,
    LARGEST_COUNT,
    TOPIC,
    BadSetting,
    Settings,
    check_topic_settings,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages.alter_configs import AlterableConfig as Whole
from fencepost.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

client = clients()
OF_TOPIC, OF_BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.mark.parametrize("name", sorted(BROKER))
def test_every_default_is_a_value_of_its_setting(name: str) -> None:
    setting = BROKER[name]
    assert setting.parse(name, str(setting.default)) == setting.default


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("num.partition", 3, "num.partition is not a broker setting; did you mean num.partitions?"),
        ("nonsense", 3, "nonsense is not a broker setting$"),
        ("num.partitions", 0, "num.partitions=0: it must be between 1 and"),
        ("num.partitions", "many", "num.partitions=many: it must be a whole number"),
        ("num.partitions", 2**31, "it must be between"),
        ("auto.create.topics.enable", "maybe", "it must be true or false"),
        ("log.cleanup.policy", "keep", "it must be one of delete, compact"),
        ("log.cleaner.min.cleanable.ratio", 1.5, "it must be between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "it must be between 0 and 1"),
        ("log.segment.bytes", 16384, "it must be between 1048576 and 2147483647"),
        ("max.request.partition.size.limit", 0, "it must be between 1 and"),
        ("max.request.partition.size.limit", 2**31, "it must be between 1 and"),
        ("default.replication.factor", 3, "it must be between 1 and 1"),
        ("max.connections.per.ip", 0, "nobody could connect; say in max.connections.per.ip.overrides who may"),
    ],
)
def test_a_bad_setting_says_what_is_wrong(name: str, value: object, why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        Settings({name: value})


def read_in(module: Path) -> Iterator[str]:
    """Patterns of what functions name, as `compression.*.level` where a name is put together."""
    functions = [node for node in ast.walk(tree_of(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "*" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_setting_that_no_code_reads_is_said_to_change_nothing() -> None:
    """By its own name, or that of the topic setting that it is the default of."""
    read = [name for module in MODULES if room_of(module) == "broker" for name in read_in(module) if "." in name]
    idle = {
        name
        for name, setting in BROKER.items()
        if not any(fnmatchcase(known, pattern) for known in (name, setting.topic or name) for pattern in read)
    }
    assert idle == {name for name, meaning in MEANING.items() if "changes nothing" in meaning}


def test_given_settings_stand_over_the_defaults() -> None:
    settings = Settings({"num.partitions": "3", "auto.create.topics.enable": "False", "log.retention.ms": 5})
    assert (settings["num.partitions"], settings["auto.create.topics.enable"]) == (3, False)
    assert settings.number("offsets.topic.num.partitions") == 50
    assert settings.log_settings().retention_ms == 5
    assert settings.log_settings({"retention.ms": "7"}).retention_ms == 7
    assert len(settings) == len(list(settings)) == len(BROKER)


def test_topic_settings_are_checked() -> None:
    check_topic_settings({"retention.ms": " -1 ", "cleanup.policy": " compact,delete", "segment.bytes": "+1048576"})
    check_topic_settings({"cleanup.policy": "", "preallocate": "TRUE", "min.cleanable.dirty.ratio": "0.25"})
    check_topic_settings({name: str(setting.default) for name, (setting, _) in INERT_TOPIC.items()})
    for name, value in [
        ("retention", "1"),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "1_048_576"),
        ("cleanup.policy", "none"),
        ("retention.ms", "x"),
        ("retention.ms", "1.5"),
        ("retention.ms", None),
        ("preallocate", "maybe"),
        ("compression.gzip.level", "0"),
        ("leader.replication.throttled.replicas", "x"),
    ]:
        with pytest.raises(BadSetting, match=name):
            check_topic_settings({name: value})
    check_topic_settings({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": " 5 "})
    with pytest.raises(BadSetting, match=r"min.compaction.lag.ms=6: it must not be more than max.compaction.lag.ms=5"):
        check_topic_settings({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_nobody_may_connect_but_who_is_named() -> None:
    given = {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:5"}
    assert Settings(given).number("max.connections.per.ip") == 0


# Over the wire


def described(client: Client, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), version).results
    return result


def told(client: Client, topic: str, key: str) -> str | None:
    (config,) = described(client, OF_TOPIC, topic, [key]).configs
    value: str | None = config.value
    return value


@pytest.mark.parametrize("version", range(1, 5))
def test_the_settings_of_a_topic_say_where_they_come_from(version: int) -> None:
    with serving(log_retention_ms=99) as broker:
        client = Client(broker)
        topic = new_topic(client, segment_bytes="2097152")
        found = {each.name: (each.value, each.config_source) for each in described(client, OF_TOPIC, topic).configs}
        assert set(found) == {*TOPIC, *INERT_TOPIC}
        assert found["segment.bytes"] == ("2097152", 1)
        assert found["retention.ms"] == ("99", 4)
        assert found["cleanup.policy"] == ("delete", 5)
        one = described(client, OF_TOPIC, topic, ["retention.ms", "unknown"], version)
        assert [each.name for each in one.configs] == ["retention.ms"]
        client.close()


def test_the_settings_of_the_broker(client: Client) -> None:
    found = {each.name: each for each in described(client, OF_BROKER, str(client.broker.node.node_id)).configs}
    assert set(found) == set(BROKER)
    assert all(each.read_only for each in found.values())
    assert found["offsets.topic.num.partitions"].value == str(client.broker.settings["offsets.topic.num.partitions"])
    assert described(client, OF_TOPIC, "unknown").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def change(client: Client, topic: str, *changes: tuple[str, int, str | None], dry: bool = False) -> ErrorCode:
    configs = [AlterableConfig(name=name, config_operation=kind, value=value) for name, kind, value in changes]
    resource = AlterConfigsResource(resource_type=OF_TOPIC, resource_name=topic, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
    return ErrorCode(client.ask(request).responses[0].error_code)


def test_settings_change_one_by_one(client: Client) -> None:
    topic = new_topic(client, segment_bytes="2097152")
    assert change(client, topic, ("retention.ms", SET, "5"), ("cleanup.policy", SET, "compact")) == ErrorCode.NONE
    assert change(client, topic, ("cleanup.policy", APPEND, "delete")) == ErrorCode.NONE
    assert told(client, topic, "cleanup.policy") == "compact,delete"
    assert change(client, topic, ("cleanup.policy", SUBTRACT, "compact")) == ErrorCode.NONE
    assert change(client, topic, ("segment.bytes", DELETE, None)) == ErrorCode.NONE
    found = [told(client, topic, key) for key in ("cleanup.policy", "retention.ms", "segment.bytes")]
    assert found == ["delete", "5", "1073741824"]


def test_to_what_a_list_has_by_default_is_added_and_from_it_is_taken(client: Client) -> None:
    topic = new_topic(client)
    assert change(client, topic, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert told(client, topic, "cleanup.policy") == "delete,compact"
    other = new_topic(client)
    assert change(client, other, ("cleanup.policy", SUBTRACT, "compact")) == ErrorCode.NONE
    assert told(client, other, "cleanup.policy") == "delete"


def test_a_change_that_is_refused_changes_nothing(client: Client) -> None:
    topic = new_topic(client)
    assert change(client, topic, ("retention.ms", SET, "5"), ("unknown", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert change(client, topic, ("retention.ms", SET, "x")) == ErrorCode.INVALID_CONFIG
    assert change(client, topic, ("retention.ms", SET, "5"), dry=True) == ErrorCode.NONE
    assert change(client, "unknown", ("retention.ms", SET, "5")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told(client, topic, "retention.ms") == "604800000"


def test_a_changed_setting_counts_at_once(client: Client) -> None:
    topic = new_topic(client)
    assert produce(client, topic, batch("a" * 1000)).error_code == ErrorCode.NONE
    assert change(client, topic, ("max.message.bytes", SET, "500")) == ErrorCode.NONE
    assert produce(client, topic, batch("a" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", range(3))
def test_the_whole_of_a_topics_settings_is_replaced(client: Client, version: int) -> None:
    topic = new_topic(client, segment_bytes="2097152")
    wanted = [Whole(name="retention.ms", value="5")]
    resource = WholeResource(resource_type=OF_TOPIC, resource_name=topic, configs=wanted)
    answer = client.ask(AlterConfigsRequest(resources=[resource], validate_only=False), version)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert (told(client, topic, "retention.ms"), told(client, topic, "segment.bytes")) == ("5", "1073741824")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("unknown", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 4, "1")], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([("cleanup.policy", APPEND, "delete"), ("retention.ms", DELETE, None)], ErrorCode.NONE),
        ([("leader.replication.throttled.replicas", APPEND, "0:1,1:1")], ErrorCode.NONE),
    ],
)
def test_an_operation_has_what_it_needs(
    client: Client, changes: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    assert change(client, new_topic(client), *changes) == error


@pytest.mark.parametrize("settings", [[("retention.ms", None)], [("retention.ms", "1"), ("retention.ms", "2")]])
def test_a_whole_names_each_setting_once_with_a_value(client: Client, settings: list[tuple[str, str | None]]) -> None:
    wanted = [Whole(name=name, value=value) for name, value in settings]
    resource = WholeResource(resource_type=OF_TOPIC, resource_name=new_topic(client), configs=wanted)
    (answer,) = client.ask(AlterConfigsRequest(resources=[resource], validate_only=False)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_resource_that_is_named_twice_is_answered_and_not_changed(client: Client) -> None:
    topic = new_topic(client)
    whole = WholeResource(resource_type=OF_TOPIC, resource_name=topic, configs=[Whole(name="retention.ms", value="1")])
    answer = client.ask(AlterConfigsRequest(resources=[whole, whole], validate_only=False))
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    one = AlterableConfig(name="retention.ms", config_operation=SET, value="1")
    part = AlterConfigsResource(resource_type=OF_TOPIC, resource_name=topic, configs=[one])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[part, part], validate_only=False))
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert told(client, topic, "retention.ms") == "604800000"


def test_a_value_is_told_as_it_is_understood(client: Client) -> None:
    topic = new_topic(client, retention_ms=" +5 ", cleanup_policy="delete, delete", min_cleanable_dirty_ratio="1")
    found = [told(client, topic, key) for key in ("retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio")]
    assert found == ["5", "delete", "1.0"]


@pytest.mark.parametrize("other", [1, 8, 16, 32])
def test_what_has_no_configuration_is_told_what_has(other: int) -> None:
    with serving() as broker:
        client = Client(broker)
        result = described(client, other, "g")
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message == (
            f"topics (2) and brokers (4) have a configuration here, resources of type {other} have none"
        )
        client.close()


def test_synonyms_say_where_else_a_value_could_come_from() -> None:
    with serving(message_max_bytes=5000) as broker:
        client = Client(broker)
        resource = DescribeConfigsResource(
            resource_type=OF_TOPIC,
            resource_name=new_topic(client, max_message_bytes="7000"),
            configuration_keys=["max.message.bytes", "retention.ms"],
        )
        (result,) = client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True)).results
        told = {each.name: [(one.name, one.value, one.source) for one in each.synonyms] for each in result.configs}
        assert told == {
            "max.message.bytes": [
                ("max.message.bytes", "7000", 1),
                ("message.max.bytes", "5000", 4),
                ("message.max.bytes", "1048588", 5),
            ],
            "retention.ms": [],
        }
        client.close()


def test_times_may_be_given_in_other_units_and_the_finest_counts() -> None:
    assert Settings({"log.retention.hours": "2"})["log.retention.ms"] == 7_200_000
    assert Settings({"log.retention.hours": -1})["log.retention.ms"] == -1
    assert Settings({"log.retention.hours": 2, "log.retention.minutes": "3"})["log.retention.ms"] == 180_000
    every = {"log.retention.hours": 2, "log.retention.minutes": "3", "log.retention.ms": 4}
    assert Settings(every)["log.retention.ms"] == 4
    assert Settings({"log.roll.hours": 1}).log_settings().segment_ms == 3_600_000
    with pytest.raises(BadSetting, match=r"log\.retention\.hours=x"):
        Settings({"log.retention.hours": "x"})


def test_files_wait_for_their_removal_as_long_as_topic_or_node_say() -> None:
    node = Settings({"log.segment.delete.delay.ms": 5})
    assert Settings().log_settings().file_delete_delay_ms == 60_000
    assert node.log_settings().file_delete_delay_ms == 5
    assert node.log_settings({"file.delete.delay.ms": "7"}).file_delete_delay_ms == 7


@pytest.mark.parametrize(
    "name", ["num.partitions", "offsets.topic.num.partitions", "transaction.state.log.num.partitions"]
)
def test_no_topic_is_to_have_more_partitions_than_one_may_have(name: str) -> None:
    """Else it could never be made, and whoever needs a coordinator would ask for ever."""
    assert Settings({name: LARGEST_COUNT})[name] == LARGEST_COUNT
    for count in (0, LARGEST_COUNT + 1):
        with pytest.raises(BadSetting, match=f"{name}={count}: it must be between 1 and {LARGEST_COUNT}"):
            Settings({name: count})


@pytest.mark.parametrize(("codec", "level"), [("gzip", 3), ("lz4", 11), ("zstd", -5), ("snappy", None)])
def test_each_codec_has_a_level_of_its_own_and_snappy_none(codec: str, level: int | None) -> None:
    given = {"compression.gzip.level": "3", "compression.lz4.level": "11", "compression.zstd.level": "-5"}
    assert Settings(given).log_settings({"compression.type": codec}).compression_level == level
    found = Settings({"compression.type": codec}).log_settings(given)
    assert found.compression_level == level, "also where the topic says it"
