"""The admin client: topics, groups, and a look at transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, Unpack

from fencepost.client.cluster import TRANSACTION, Cluster, Deadline
from fencepost.client.errors import BrokerError, ConnectionLostError, UnreachableError
from fencepost.client.security import Security, SecurityOptions
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.update_features import FeatureUpdateKey
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition
from fencepost.runtime import Runtime

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2


class TransactionDescription(NamedTuple):
    """State of one transactional id (KIP-664), with Apache Kafka's names for states.

    `timeout_ms`: the transaction's time-out in milliseconds.  `start_time_ms`: when the transaction that is
    open, or else was the last, began, in milliseconds since 1970; -1 before the first.
    """

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: Epoch
    timeout_ms: int
    start_time_ms: int
    partitions: list[TopicPartition]


class Admin:
    """Looks after a cluster.

        async with Admin("127.0.0.1:9092") as admin:
            await admin.create_topic("payments", partitions=6)

    Times are in milliseconds.  What cannot be done within `max_block_ms` raises TimedOutError, what the broker refuses
    BrokerError.
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
            security=Security(**security),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, timeout_ms: float | None = None) -> None:  # noqa: ARG002 - as the other clients have it
        """End the connections; that waits for nobody, whatever `timeout_ms` is."""
        await self._cluster.close()

    # Topics

    async def topics(self) -> list[str]:
        """Names of all topics, the broker's own included."""
        answer = await self._refresh(None)
        return sorted(topic.name for topic in answer.topics if topic.name is not None)

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has.  Raises BrokerError if it is not there."""
        deadline = self._cluster.deadline(f"looking up topic {topic!r}")
        self._cluster.forget_topic(topic)  # it may have grown
        return (await self._cluster.topic(topic, deadline, create=False)).partition_count

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
        await create_topic(
            self._cluster,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            config=config or {},
            exist_ok=exist_ok,
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.  Raises BrokerError."""
        deadline = self._cluster.deadline(f"deleting topic {name!r}")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=60_000)
        answer = await self._cluster.call_controller(request, deadline=deadline)
        _check(answer.responses[0].error_code, f"topic {name!r} was not deleted")
        self._cluster.forget_topic(name)

    async def create_partitions(self, topic: str, count: int) -> None:
        """Grow a topic to `count` partitions.  Raises BrokerError."""
        deadline = self._cluster.deadline(f"adding partitions to {topic!r}")
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count)], timeout_ms=60_000, validate_only=False
        )
        answer = await self._cluster.call_controller(request, deadline=deadline)
        found = answer.results[0]
        _check(found.error_code, f"no partitions were added to {topic!r}: {found.error_message}")
        self._cluster.forget_topic(topic)

    async def _refresh(self, topics: Sequence[str] | None) -> Any:
        deadline = self._cluster.deadline("asking for metadata")
        while True:
            try:
                return await deadline.within(self._cluster.refresh(topics))
            except (ConnectionLostError, UnreachableError) as error:
                await deadline.pause(error)

    # Features

    async def update_feature(self, feature: str, level: int) -> None:
        """Finalize a level of a feature, as `transaction.version` 0, 1 or 2.  Raises BrokerError."""
        await self._refresh([])
        now = self._cluster.features.levels.get(feature, 0)
        update = FeatureUpdateKey(
            feature=feature,
            max_version_level=level,
            allow_downgrade=level < now,
            upgrade_type=_SAFE_DOWNGRADE if level < now else _UPGRADE,
        )
        deadline = self._cluster.deadline(f"updating feature {feature!r}")
        request = UpdateFeaturesRequest(feature_updates=[update])
        answer = await self._cluster.call_controller(request, deadline=deadline)
        _check(answer.error_code, f"feature {feature!r} was not changed: {answer.error_message}")
        for result in answer.results:
            _check(result.error_code, f"feature {feature!r} was not changed: {result.error_message}")
        self._cluster.ask_features_again()

    # Transactions

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        """State of a transactional id, None if the cluster has none of that name.  Raises BrokerError."""
        found = await describe_transactions(self._cluster, [transactional_id])
        return found[transactional_id]

    async def list_transactions(self, states: Sequence[str] = ()) -> dict[str, str]:
        """Transactional id -> state, by Apache Kafka's names, over all nodes.

        `states`: only those in one of these; all if there are none.  Raises BrokerError.
        """
        await self._refresh([])
        deadline = self._cluster.deadline("listing transactions")
        found: dict[str, str] = {}
        for node in sorted(self._cluster.nodes):
            request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=[])
            answer = await deadline.within(self._cluster.call(node, request))
            _check(answer.error_code, "transactions cannot be listed")
            found |= {state.transactional_id: state.transaction_state for state in answer.transaction_states}
        return dict(sorted(found.items()))


async def create_topic(
    cluster: Cluster, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str], exist_ok: bool
) -> None:
    """As `Admin.create_topic`, for who has a cluster already."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
    )
    deadline = cluster.deadline(f"creating topic {name!r}")
    answer = await cluster.call_controller(CreateTopicsRequest(topics=[topic]), deadline=deadline)
    found = answer.topics[0]
    if not (exist_ok and found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS):
        _check(found.error_code, f"topic {name!r} was not created: {found.error_message}")
    for number in (await cluster.topic(name, deadline)).leaders:
        await cluster.leader(TopicPartition(name, number), deadline)


async def describe_transactions(
    cluster: Cluster, names: Sequence[str], deadline: Deadline | None = None
) -> dict[str, TransactionDescription | None]:
    """State of several transactional ids, one request to each coordinator.  Raises BrokerError."""
    deadline = deadline or cluster.deadline("describing transactions")
    found: dict[str, TransactionDescription | None] = {}
    while True:
        by_node: dict[int, list[str]] = {}
        for name in names:
            if name not in found:
                by_node.setdefault(await cluster.coordinator(TRANSACTION, name, deadline), []).append(name)
        if not by_node:
            return found
        because: object = ""
        for node, asked in by_node.items():
            try:
                request = DescribeTransactionsRequest(transactional_ids=asked)
                answer = await deadline.within(cluster.call(node, request))
            except (ConnectionLostError, UnreachableError) as lost:
                because = lost
                for name in asked:
                    cluster.forget_coordinator(TRANSACTION, name)
                continue
            for state in answer.transaction_states:
                error = ErrorCode(state.error_code)
                if error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    found[state.transactional_id] = None
                elif error.retriable:
                    because = error.name
                    cluster.forget_coordinator(TRANSACTION, state.transactional_id)
                else:
                    _check(error, f"transactional id {state.transactional_id!r} cannot be described")
                    found[state.transactional_id] = _description(state)
        if because:
            await deadline.pause(because)


def _description(state: Any) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        ProducerId(state.producer_id),
        Epoch(state.producer_epoch),
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        [TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions],
    )


def _check(error: int, what: str) -> None:
    if error:
        raise BrokerError(error, what)
