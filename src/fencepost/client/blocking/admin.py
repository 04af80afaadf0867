"""The admin client without asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.client import admin
from fencepost.client.admin import TransactionDescription
from fencepost.client.blocking.face import Blocking, as_in, takes


class Admin(Blocking):
    """`fencepost.client.Admin`; takes the same arguments.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topic("payments", partitions=6)
    """

    @takes(admin.Admin)
    def __init__(self, *given: Any, **options: Any) -> None:
        self._admin = admin.Admin(*given, **options)
        super().__init__(self._admin.close)

    @as_in(admin.Admin.topics)
    def topics(self) -> list[str]:
        return self._portal.call(self._admin.topics())

    @as_in(admin.Admin.partitions)
    def partitions(self, topic: str) -> int:
        return self._portal.call(self._admin.partitions(topic))

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
        creating = self._admin.create_topic(
            name, partitions=partitions, replication_factor=replication_factor, config=config, exist_ok=exist_ok
        )
        self._portal.call(creating)

    @as_in(admin.Admin.delete_topic)
    def delete_topic(self, name: str) -> None:
        self._portal.call(self._admin.delete_topic(name))

    @as_in(admin.Admin.create_partitions)
    def create_partitions(self, topic: str, count: int) -> None:
        self._portal.call(self._admin.create_partitions(topic, count))

    @as_in(admin.Admin.update_feature)
    def update_feature(self, feature: str, level: int) -> None:
        self._portal.call(self._admin.update_feature(feature, level))

    @as_in(admin.Admin.describe_transaction)
    def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        return self._portal.call(self._admin.describe_transaction(transactional_id))

    @as_in(admin.Admin.list_transactions)
    def list_transactions(self, states: Sequence[str] = ()) -> dict[str, str]:
        return self._portal.call(self._admin.list_transactions(states))
