"""The admin client: every call in one place, each carried out by the module of its subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Self, Unpack

from fencepost.client import arguments
from fencepost.client.admin import brokers, checks, configs, features, groups, hanging, offsets, partitions, topics
from fencepost.client.admin import transactions as transactional_id_states
from fencepost.client.admin.asking import metadata
from fencepost.client.admin.brokers import ClusterDescription, LogDirectory
from fencepost.client.admin.configs import ConfigChange, ConfigEntry
from fencepost.client.admin.features import FeatureDescription
from fencepost.client.admin.groups import GroupDescription, GroupListing
from fencepost.client.admin.hanging import HangingTransaction
from fencepost.client.admin.partitions import ProducerState
from fencepost.client.admin.topics import NewTopic, TopicDescription
from fencepost.client.admin.transactions import TransactionDescription, TransactionFilter
from fencepost.client.cluster import Cluster
from fencepost.client.forgotten import left_by_an_admin, tell_if_forgotten
from fencepost.client.positions import ListedOffset
from fencepost.client.security import Security, SecurityOptions
from fencepost.client.transactional_id import OffsetAndMetadata, checked_positions
from fencepost.protocol.messages.describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime


class Admin:
    """A client that describes and changes a cluster: topics, settings, groups, offsets, brokers, transactions.

        async with Admin("127.0.0.1:9092") as admin:
            await admin.create_topic("payments", partitions=6)

    Each call finds the brokers that it concerns, asks them at once and puts their answers together; what has moved is
    asked for again.  Times are in milliseconds.  Every call raises TimedOutError for what cannot be done within
    `max_block_ms`, BrokerError for what the broker refuses, PartlyRefusedError (a BrokerError that says which) if that
    is some of several things, UnsupportedByBrokerError if the broker is too old, TypeError or ValueError for an
    argument of a wrong type or out of range, and ClosedError after `close`.  Any number of calls may be under way at
    once.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "fencepost-admin",
        request_timeout_ms: int = 30_000,
        max_block_ms: int = 60_000,
        runtime: Runtime | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            runtime=runtime,
            request_timeout_ms=request_timeout_ms,
            patience_ms=max_block_ms,
            security=Security.of_client(Admin, security),
        )
        self._deadline = self._cluster.deadline
        self._forgotten = tell_if_forgotten(self, partial(left_by_an_admin, f"admin client {client_id!r}"), runtime)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, timeout_ms: float | None = None) -> None:  # noqa: ARG002 - as the other clients have it
        """End the connections, at once, whatever `timeout_ms` is."""
        self._forgotten.detach()
        await self._cluster.close()

    # Topics

    async def topics(self) -> list[str]:
        """Names of all topics, the broker's own included."""
        answer = await metadata(self._cluster, None, self._deadline("asking for metadata"))
        return sorted(topic.name for topic in answer.topics if topic.name is not None)

    async def partitions(self, topic: str) -> int:
        """The number of partitions of a topic.  Raises BrokerError if it is not there."""
        arguments.one("topic", topic)
        deadline = self._deadline(f"looking up topic {topic!r}")
        self._cluster.forget_topic(topic)  # it may have grown
        return (await self._cluster.topic(topic, deadline, create=False)).partition_count

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Ids, partitions, leaders and replicas of these topics, or of all."""
        asked = None if names is None else checks.many("names", names)
        return await topics.describe_topics(self._cluster, asked, self._deadline("describing topics"))

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic; -1 leaves a number to the broker.  Raises BrokerError, also if it is there (but `exist_ok`)."""
        checks.switches(exist_ok=exist_ok)
        given = {} if config is None else config
        new = checks.new_topic(NewTopic(name, partitions, replication_factor, given))
        await topics.create_topics(self._cluster, [new], self._deadline(f"creating topic {name!r}"), exist_ok=exist_ok)

    async def create_topics(
        self, new: Iterable[NewTopic], *, exist_ok: bool = False, validate_only: bool = False
    ) -> None:
        """Make several topics at once, or only find out whether that could be done.

        `exist_ok`: one that is there already is left as it is, whatever is asked for.
        """
        checks.switches(exist_ok=exist_ok, validate_only=validate_only)
        deadline = self._deadline("creating topics")
        await topics.create_topics(
            self._cluster, checks.new_topics(new), deadline, exist_ok=exist_ok, validate_only=validate_only
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        await self.delete_topics([arguments.one("name", name)])

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all their records."""
        await topics.delete_topics(self._cluster, checks.many("names", names), self._deadline("deleting topics"))

    async def create_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `count` partitions.  Records with keys go to other partitions than before from then on."""
        checks.switches(validate_only=validate_only)
        counts = {arguments.one("topic", topic): checks.count("count", count)}
        deadline = self._deadline(f"adding partitions to {topic!r}")
        await topics.create_partitions(self._cluster, counts, deadline, validate_only=validate_only)

    # Configurations

    async def describe_topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Topic -> setting -> its value, and where it has it from."""
        deadline = self._deadline("describing settings of topics")
        return await configs.describe_configs(self._cluster, TOPIC_RESOURCE, checks.many("names", names), deadline)

    async def describe_broker_configs(self, broker_ids: Iterable[int]) -> dict[int, dict[str, ConfigEntry]]:
        """Broker -> setting -> its value, and where it has it from; each broker is asked for its own."""
        asked = [str(each) for each in checks.brokers("broker_ids", broker_ids)]
        deadline = self._deadline("describing settings of brokers")
        found = await configs.describe_configs(self._cluster, BROKER_RESOURCE, asked, deadline)
        return {int(broker): entries for broker, entries in found.items()}

    async def alter_topic_config(self, name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Change single settings of a topic; the others stay.  All of the change is made, or nothing."""
        checks.switches(validate_only=validate_only)
        name, change = arguments.one("name", name), checks.config_change(change)
        deadline = self._deadline(f"changing settings of topic {name!r}")
        await configs.alter_config(self._cluster, TOPIC_RESOURCE, name, change, deadline, validate_only=validate_only)

    async def alter_broker_config(
        self, broker_id: int | None, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Change single settings of a broker while it runs; None: of all brokers.

        A Fencepost node refuses it: it has the settings that it was started with.
        """
        checks.switches(validate_only=validate_only)
        name = "" if broker_id is None else str(arguments.whole_number("broker_id", broker_id, 0, arguments.INT32))
        change, deadline = checks.config_change(change), self._deadline("changing settings of brokers")
        await configs.alter_config(self._cluster, BROKER_RESOURCE, name, change, deadline, validate_only=validate_only)

    # Groups

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> dict[str, GroupListing]:
        """Groups of all brokers, by id; only those in one of these states, of one of these types, if any are given.

        Raises ValueError for a state or a type that there is not.
        """
        deadline = self._deadline("listing groups")
        wanted, kinds = checks.group_states(states), checks.group_types(types)
        return await groups.list_groups(self._cluster, wanted, kinds, deadline)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """The state of groups, and the partitions assigned to each member.

        Groups of the classic protocol and of KIP-848; of the latter, the partitions that each member has now.
        """
        asked = checks.many("group_ids", group_ids)
        return await groups.describe_groups(self._cluster, asked, self._deadline("describing groups"))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups and their committed offsets.  One that has members is refused."""
        asked = checks.many("group_ids", group_ids)
        await groups.delete_groups(self._cluster, asked, self._deadline("deleting groups"))

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Committed offsets of a group: of these partitions (None: no offset), or of all that have one.

        `require_stable`: wait while a transaction that is open may change one (KIP-447).
        """
        checks.switches(require_stable=require_stable)
        asked = None if partitions is None else arguments.places("partitions", partitions)
        deadline = self._deadline(f"reading the offsets of group {group_id!r}")
        name = arguments.one("group_id", group_id)
        return await offsets.list_group_offsets(self._cluster, name, asked, deadline, stable=require_stable)

    async def alter_group_offsets(
        self, group_id: str, positions: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit these offsets for a group; it is made if there is none.  One that has members is refused.

        `list_offsets` tells offsets to go to, by time for instance.
        """
        wanted = checked_positions("positions", positions)
        deadline = self._deadline(f"changing the offsets of group {group_id!r}")
        await offsets.alter_group_offsets(self._cluster, arguments.one("group_id", group_id), wanted, deadline)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of a group in these partitions.  Topics that its members read are refused."""
        asked = arguments.places("partitions", partitions)
        deadline = self._deadline(f"deleting offsets of group {group_id!r}")
        await offsets.delete_group_offsets(self._cluster, arguments.one("group_id", group_id), asked, deadline)

    # Partitions

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The offset of each partition by its name (OffsetSpec), or by time: of the first record that is not older.

        A time is in milliseconds since 1970.  None: there is no such record.  `isolation_level`: with "read_committed"
        OffsetSpec.LATEST is where readers of committed records stop.
        """
        wanted = checks.specs(specs)
        arguments.text("isolation_level", isolation_level)
        return await partitions.list_offsets(
            self._cluster, wanted, isolation_level, self._deadline("looking up offsets")
        )

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all that are acknowledged); where each partition begins then."""
        wanted = checks.ends(before)
        return await partitions.delete_records(self._cluster, wanted, self._deadline("deleting records"))

    async def describe_producers(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        """The producers that each of these partitions knows, and the transaction that each of them has open there."""
        asked = arguments.places("at", at)
        return await partitions.describe_producers(self._cluster, asked, self._deadline("describing producers"))

    # The cluster

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its brokers and which of them is the controller."""
        return await brokers.describe_cluster(self._cluster, self._deadline("describing the cluster"))

    async def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> dict[int, list[LogDirectory]]:
        """Directories of these brokers, or of all, and how large the partitions in them are."""
        asked = None if broker_ids is None else checks.brokers("broker_ids", broker_ids)
        return await brokers.describe_log_dirs(self._cluster, asked, self._deadline("describing log directories"))

    async def describe_features(self) -> dict[str, FeatureDescription]:
        """Features that the broker knows, as `transaction.version`, and which level of each is finalized."""
        return await features.describe_features(self._cluster, self._deadline("describing features"))

    async def update_feature(self, feature: str, level: int) -> None:
        """Finalize a level of a feature, as `transaction.version` 0, 1 or 2."""
        wanted = arguments.one("feature", feature), checks.level(level)
        await features.update_feature(self._cluster, *wanted, self._deadline(f"updating feature {feature!r}"))

    # Transactions

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        """The state of a transactional id, None if the cluster has none of that name."""
        arguments.one("transactional_id", transactional_id)
        return (await self.describe_transactions([transactional_id]))[transactional_id]

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """The states of transactional ids, None for one that the cluster does not have."""
        asked = checks.many("transactional_ids", transactional_ids)
        return await transactional_id_states.describe_transactions(
            self._cluster, asked, self._deadline("describing transactions")
        )

    async def list_transactions(
        self,
        states: Sequence[str] = (),
        *,
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> dict[str, str]:
        """Transactional id -> state, by Apache Kafka's names, over all brokers.

        Only those in one of these states, with one of these producer ids, open for longer than that, and whose whole
        name fits the pattern (RE2), whichever is given.  Raises ValueError for a state that there is not.
        """
        ids = [arguments.whole_number("producer_ids", each) for each in arguments.several("producer_ids", producer_ids)]
        if running_longer_than_ms is not None:
            arguments.whole_number("running_longer_than_ms", running_longer_than_ms)
        if pattern is not None:
            arguments.text("pattern", pattern)
        given = TransactionFilter(checks.many("states", states), ids, running_longer_than_ms, pattern)
        found = await transactional_id_states.list_transactions(
            self._cluster, given, self._deadline("listing transactions")
        )
        return {name: listed.state for name, listed in found.items()}

    async def find_hanging_transactions(
        self, topic_names: Iterable[str] | None = None, *, max_transaction_timeout_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Transactions that are open in partitions of these topics, or of all, and that nobody will end (KIP-664).

        `max_transaction_timeout_ms`: transaction.max.timeout.ms of the brokers; a transaction that was written to less
        than that ago is left out.
        """
        timeout_ms = arguments.whole_number("max_transaction_timeout_ms", max_transaction_timeout_ms)
        deadline = self._deadline("looking for hanging transactions")
        asked = None if topic_names is None else checks.many("topic_names", topic_names)
        described = await topics.describe_topics(self._cluster, asked, deadline)
        places = hanging.to_look_at(described.values())
        return await hanging.find_hanging_transactions(self._cluster, places, timeout_ms, deadline)

    async def abort_transaction(
        self, at: TopicPartition, start_offset: int, *, max_transaction_timeout_ms: int = 900_000
    ) -> None:
        """End a hanging transaction in one partition, as `find_hanging_transactions` names it.

        Its records are not shown to readers of committed records; elsewhere it stays as it is.  Raises MisuseError if
        no transaction that begins at that offset is open there, it was written to later than
        `max_transaction_timeout_ms` ago, or its coordinator is there to end it; BrokerError if that cannot be told.
        """
        partition, offset = arguments.place(at), arguments.whole_number("start_offset", start_offset)
        timeout_ms = arguments.whole_number("max_transaction_timeout_ms", max_transaction_timeout_ms)
        deadline = self._deadline(f"aborting a transaction in {partition}")
        await hanging.abort_transaction(self._cluster, partition, offset, timeout_ms, deadline)
