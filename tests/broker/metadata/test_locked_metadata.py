"""The metadata while somebody else has it locked: a copy that is being made of it, or a shell."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import SETTINGS, Client, batch, fetch, init_answer, new_topic, produce, values

from fencepost.broker import running_broker
from fencepost.broker.metadata import store
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.update_features import FeatureUpdateKey

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
Answer = tuple[int, str | None]


def create(client: Client, _: str) -> Answer:
    wanted = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    (done,) = client.ask(CreateTopicsRequest(topics=[wanted])).topics
    return done.error_code, done.error_message


def grow(client: Client, name: str) -> Answer:
    wanted = CreatePartitionsTopic(name=name, count=2, assignments=None)
    (done,) = client.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)).results
    return done.error_code, done.error_message


def alter(client: Client, name: str) -> Answer:
    config = AlterableConfig(name="retention.ms", config_operation=0, value="700000000")
    wanted = AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
    (done,) = client.ask(IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False)).responses
    return done.error_code, done.error_message


def lower(client: Client, _: str) -> Answer:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2, allow_downgrade=True)
    done = client.ask(UpdateFeaturesRequest(feature_updates=[update]))
    return done.error_code, done.error_message


def give_an_id(client: Client, _: str) -> Answer:
    return init_answer(client, None).error_code, "another process: only the log says it"


def retention(client: Client, name: str) -> str | None:
    asked = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=["retention.ms"])
    (found,) = client.ask(DescribeConfigsRequest(resources=[asked])).results
    return str(found.configs[0].value)


def delete(client: Client, name: str) -> Answer:
    (done,) = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)).responses
    return done.error_code, done.error_message


CHANGES: list[tuple[Callable[[Client, str], Answer], ErrorCode]] = [
    (create, STORAGE),
    (grow, STORAGE),
    (alter, STORAGE),
    (lower, ErrorCode.FEATURE_UPDATE_FAILED),
    (give_an_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (delete, STORAGE),
]


def locked(data: Path, how: str) -> Any:
    other = sqlite3.connect(data / "metadata.sqlite", isolation_level=None)
    other.execute(how)
    other.execute("SELECT * FROM metadata").fetchall()
    return closing(other)


@pytest.mark.parametrize("how", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE", "BEGIN"])
def test_changes_are_refused_meanwhile_and_records_go_on(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "fencepost")
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        name = new_topic(client)
        with locked(tmp_path, how):
            for change, error in CHANGES:
                found, message = change(client, name)
                assert (found, "another process" in str(message)) == (error, True), change
            assert produce(client, name, batch("x")).error_code == ErrorCode.NONE
            assert retention(client, name) == "604800000"
        assert values(fetch(client, name)) == ["x"]
        for change, _ in CHANGES:
            assert change(client, name)[0] == ErrorCode.NONE, change
        client.close()
    assert "Traceback" not in caplog.text and not any(record.exc_info for record in caplog.records)


def test_at_the_start_it_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told to move the metadata away loses the settings of all topics."""
    monkeypatch.setattr(store, "_START_WAITS_SECONDS", 0.01)
    with running_broker(data=tmp_path):
        pass
    with (
        locked(tmp_path, "BEGIN EXCLUSIVE"),
        pytest.raises(DirectoryUnusable) as refused,
        running_broker(data=tmp_path),
    ):
        pass
    assert "another process has locked" in str(refused.value) and "--rebuild-metadata" not in str(refused.value)
    with running_broker(data=tmp_path):
        pass
