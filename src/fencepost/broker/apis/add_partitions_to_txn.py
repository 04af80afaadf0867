"""AddPartitionsToTxn (24): register partitions with a transaction.

v0-3  from producers, one transaction
v2    PRODUCER_FENCED may be answered
v3    flexible
v4    from brokers, several transactions, verify_only (KIP-890 part 1)
v5    TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.older_clients import Call, error_for
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition

Results = Mapping[TopicPartition, ErrorCode]


@serves(AddPartitionsToTxnRequest)
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext, node: Node) -> Reply:
    if context.version < 4:
        return _from_producer(request, context, node)
    if not context.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return independent(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    lsn, results = 0, []
    for transaction in request.transactions:
        errors, needed = _of_broker(transaction, node)
        lsn = max(lsn, needed)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_once(errors) if transaction.verify_only else _by_topic(transaction.topics, errors),
            )
        )
    return Reply(AddPartitionsToTxnResponse(results_by_transaction=results), lsn)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _from_producer(request: AddPartitionsToTxnRequest, context: RequestContext, node: Node) -> Reply:
    partitions = _partitions(request.topics)
    if not context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        refused: Results = dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return independent(AddPartitionsToTxnResponse(results_by_topic=_by_topic(request.topics, refused)))
    unfit = {at: error for at in partitions if (error := _unfit(at, context, node))}
    if unfit:
        attempted = {at: unfit.get(at, ErrorCode.OPERATION_NOT_ATTEMPTED) for at in partitions}
        return independent(AddPartitionsToTxnResponse(results_by_topic=_by_topic(request.topics, attempted)))
    added = node.transactions.add_partitions(
        request.transactional_id, ProducerId(request.producer_id), Epoch(request.producer_epoch), partitions, 0
    )
    error = error_for(added.error, Call.ADD, added.timed_out, context)
    results = _by_topic(request.topics, dict.fromkeys(partitions, error))
    response = AddPartitionsToTxnResponse(results_by_topic=results, transaction_timed_out=added.timed_out)
    return Reply(response, added.lsn)


def _unfit(at: TopicPartition, context: RequestContext, node: Node) -> ErrorCode | None:
    """Why a producer may not have this partition in its transaction (facts §3.2)."""
    if at.topic in INTERNAL or not context.may(Operation.WRITE, Resource.TOPIC, at.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if node.storage.partition(*at) is None:  # offline ones too: a transaction with one could not end
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _of_broker(transaction: AddPartitionsToTxnTransaction, node: Node) -> tuple[Results, int]:
    partitions = _partitions(transaction.topics)
    unknown = {at: node.storage.partition(*at) is None for at in partitions}
    if any(unknown.values()):
        missing, left = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return {at: missing if gone else left for at, gone in unknown.items()}, 0
    name = transaction.transactional_id
    pid, epoch = ProducerId(transaction.producer_id), Epoch(transaction.producer_epoch)
    if transaction.verify_only:
        return node.transactions.verify_partitions(name, pid, epoch, partitions), node.storage.lsn
    added = node.transactions.add_partitions(name, pid, epoch, partitions, 2)
    return dict.fromkeys(partitions, added.error), added.lsn


def _once(errors: Results) -> list[AddPartitionsToTxnTopicResult]:
    """Each topic and each partition once, however often they were named."""
    topics: dict[str, dict[int, None]] = {}
    for at in errors:
        topics.setdefault(at.topic, {})[at.partition] = None
    return _by_topic([AddPartitionsToTxnTopic(name=name, partitions=list(at)) for name, at in topics.items()], errors)


def _by_topic(topics: Sequence[AddPartitionsToTxnTopic], errors: Results) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
