"""The admin client without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.client import admin
from fencepost.client.admin.brokers import ClusterDescription, LogDirectory
from fencepost.client.admin.configs import ConfigChange, ConfigEntry
from fencepost.client.admin.features import FeatureDescription
from fencepost.client.admin.groups import GroupDescription, GroupListing
from fencepost.client.admin.hanging import HangingTransaction
from fencepost.client.admin.partitions import ProducerState
from fencepost.client.admin.topics import NewTopic, TopicDescription
from fencepost.client.admin.transactions import TransactionDescription
from fencepost.client.blocking.face import Blocking, as_in, takes
from fencepost.client.positions import ListedOffset
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import TopicPartition


class Admin(Blocking):
    """`fencepost.client.Admin`; takes the same arguments.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topic("payments", partitions=6)
    """

    @takes(admin.Admin)
    def __init__(self, *given: Any, **options: Any) -> None:
        self._admin = admin.Admin(*given, **options)
        super().__init__(self._admin)

    @as_in(admin.Admin.topics)
    def topics(self) -> list[str]:
        return self._portal.call(self._admin.topics())

    @as_in(admin.Admin.partitions)
    def partitions(self, topic: str) -> int:
        return self._portal.call(self._admin.partitions(topic))

    @as_in(admin.Admin.describe_topics)
    def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        return self._portal.call(self._admin.describe_topics(names))

    @as_in(admin.Admin.create_topic)
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        self._portal.call(
            self._admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, config=config, exist_ok=exist_ok
            )
        )

    @as_in(admin.Admin.create_topics)
    def create_topics(self, new: Iterable[NewTopic], *, exist_ok: bool = False, validate_only: bool = False) -> None:
        self._portal.call(self._admin.create_topics(new, exist_ok=exist_ok, validate_only=validate_only))

    @as_in(admin.Admin.delete_topic)
    def delete_topic(self, name: str) -> None:
        self._portal.call(self._admin.delete_topic(name))

    @as_in(admin.Admin.delete_topics)
    def delete_topics(self, names: Iterable[str]) -> None:
        self._portal.call(self._admin.delete_topics(names))

    @as_in(admin.Admin.create_partitions)
    def create_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        self._portal.call(self._admin.create_partitions(topic, count, validate_only=validate_only))

    @as_in(admin.Admin.describe_topic_configs)
    def describe_topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        return self._portal.call(self._admin.describe_topic_configs(names))

    @as_in(admin.Admin.describe_broker_configs)
    def describe_broker_configs(self, broker_ids: Iterable[int]) -> dict[int, dict[str, ConfigEntry]]:
        return self._portal.call(self._admin.describe_broker_configs(broker_ids))

    @as_in(admin.Admin.alter_topic_config)
    def alter_topic_config(self, name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        self._portal.call(self._admin.alter_topic_config(name, change, validate_only=validate_only))

    @as_in(admin.Admin.alter_broker_config)
    def alter_broker_config(self, broker_id: int | None, change: ConfigChange, *, validate_only: bool = False) -> None:
        self._portal.call(self._admin.alter_broker_config(broker_id, change, validate_only=validate_only))

    @as_in(admin.Admin.list_groups)
    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> dict[str, GroupListing]:
        return self._portal.call(self._admin.list_groups(states=states, types=types))

    @as_in(admin.Admin.describe_groups)
    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        return self._portal.call(self._admin.describe_groups(group_ids))

    @as_in(admin.Admin.delete_groups)
    def delete_groups(self, group_ids: Iterable[str]) -> None:
        self._portal.call(self._admin.delete_groups(group_ids))

    @as_in(admin.Admin.list_group_offsets)
    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._portal.call(self._admin.list_group_offsets(group_id, partitions, require_stable=require_stable))

    @as_in(admin.Admin.alter_group_offsets)
    def alter_group_offsets(self, group_id: str, positions: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        self._portal.call(self._admin.alter_group_offsets(group_id, positions))

    @as_in(admin.Admin.delete_group_offsets)
    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._portal.call(self._admin.delete_group_offsets(group_id, partitions))

    @as_in(admin.Admin.list_offsets)
    def list_offsets(
        self, specs: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset | None]:
        return self._portal.call(self._admin.list_offsets(specs, isolation_level=isolation_level))

    @as_in(admin.Admin.delete_records)
    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._portal.call(self._admin.delete_records(before))

    @as_in(admin.Admin.describe_producers)
    def describe_producers(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        return self._portal.call(self._admin.describe_producers(at))

    @as_in(admin.Admin.describe_cluster)
    def describe_cluster(self) -> ClusterDescription:
        return self._portal.call(self._admin.describe_cluster())

    @as_in(admin.Admin.describe_log_dirs)
    def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> dict[int, list[LogDirectory]]:
        return self._portal.call(self._admin.describe_log_dirs(broker_ids))

    @as_in(admin.Admin.describe_features)
    def describe_features(self) -> dict[str, FeatureDescription]:
        return self._portal.call(self._admin.describe_features())

    @as_in(admin.Admin.update_feature)
    def update_feature(self, feature: str, level: int) -> None:
        self._portal.call(self._admin.update_feature(feature, level))

    @as_in(admin.Admin.describe_transaction)
    def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        return self._portal.call(self._admin.describe_transaction(transactional_id))

    @as_in(admin.Admin.describe_transactions)
    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        return self._portal.call(self._admin.describe_transactions(transactional_ids))

    @as_in(admin.Admin.list_transactions)
    def list_transactions(
        self,
        states: Sequence[str] = (),
        *,
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> dict[str, str]:
        return self._portal.call(
            self._admin.list_transactions(
                states, producer_ids=producer_ids, running_longer_than_ms=running_longer_than_ms, pattern=pattern
            )
        )

    @as_in(admin.Admin.find_hanging_transactions)
    def find_hanging_transactions(
        self, topic_names: Iterable[str] | None = None, *, max_transaction_timeout_ms: int = 900_000
    ) -> list[HangingTransaction]:
        return self._portal.call(
            self._admin.find_hanging_transactions(topic_names, max_transaction_timeout_ms=max_transaction_timeout_ms)
        )

    @as_in(admin.Admin.abort_transaction)
    def abort_transaction(
        self, at: TopicPartition, start_offset: int, *, max_transaction_timeout_ms: int = 900_000
    ) -> None:
        self._portal.call(
            self._admin.abort_transaction(at, start_offset, max_transaction_timeout_ms=max_transaction_timeout_ms)
        )
