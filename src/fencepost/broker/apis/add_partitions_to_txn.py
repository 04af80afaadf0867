"""AddPartitionsToTxn (24): register partitions with a transaction.

v0-3  from producers, one transaction
v2    PRODUCER_FENCED may be answered
v3    flexible
v4    from brokers, several transactions, verify_only (KIP-890 part 1)
v5    TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.older_clients import Call, error_for
from fencepost.broker.network.pacing import in_steps
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
from fencepost.protocol.steps import ITEM, Pace, Steps, cost_of_id, each
from fencepost.protocol.types import NO_LSN, Epoch, Lsn, ProducerId, TopicPartition

Results = Mapping[TopicPartition, ErrorCode]


@serves(AddPartitionsToTxnRequest, in_turn=True)
@in_steps
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace()
    if context.version < 4:
        return (yield from _from_producer(request, context, node, pace))
    if not context.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return independent(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    lsn, results = NO_LSN, []
    for transaction in request.transactions:
        yield from pace.spend(ITEM + cost_of_id(transaction.transactional_id))
        errors, needed = yield from _of_broker(transaction, node, pace)
        lsn = max(lsn, needed)
        topics = (yield from _once(errors, pace)) if transaction.verify_only else transaction.topics
        topic_results = yield from _by_topic(topics, errors, pace)
        results.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topic_results)
        )
    return Reply(AddPartitionsToTxnResponse(results_by_transaction=results), lsn)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic], pace: Pace) -> Steps[list[TopicPartition]]:
    partitions = []
    for topic in topics:
        for index in topic.partitions:
            yield from pace.spend(4)
            partitions.append(TopicPartition(topic.name, index))
    return partitions


def _from_producer(request: AddPartitionsToTxnRequest, context: RequestContext, node: Node, pace: Pace) -> Steps[Reply]:
    """Add what a producer names to its transaction, in one step: as if all deletions meanwhile came before it."""
    partitions = yield from _partitions(request.topics, pace)
    if not context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        refused: Results = dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        topic_results = yield from _by_topic(request.topics, refused, pace)
        return independent(AddPartitionsToTxnResponse(results_by_topic=topic_results))
    looked_up = yield from each(partitions, partial(_unfit, context, node), pace)
    unfit = {at: error for at, error in zip(partitions, looked_up, strict=True) if error}
    if unfit:
        attempted = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | unfit
        topic_results = yield from _by_topic(request.topics, attempted, pace)
        return independent(AddPartitionsToTxnResponse(results_by_topic=topic_results))
    added = node.transactions.add_partitions(
        request.transactional_id, ProducerId(request.producer_id), Epoch(request.producer_epoch), partitions, 0
    )
    error = error_for(added.error, Call.ADD, added.timed_out, context)
    results = yield from _by_topic(request.topics, dict.fromkeys(partitions, error), pace)
    response = AddPartitionsToTxnResponse(results_by_topic=results, transaction_timed_out=added.timed_out)
    return Reply(response, added.lsn)


def _unfit(context: RequestContext, node: Node, at: TopicPartition) -> ErrorCode | None:
    """Why a producer may not have this partition in its transaction (facts §3.2)."""
    if at.topic in INTERNAL or not context.may(Operation.WRITE, Resource.TOPIC, at.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if node.storage.partition(*at) is None:  # offline ones too: a transaction with one could not end
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _of_broker(transaction: AddPartitionsToTxnTransaction, node: Node, pace: Pace) -> Steps[tuple[Results, Lsn]]:
    partitions = yield from _partitions(transaction.topics, pace)
    found = yield from each(partitions, lambda at: node.storage.partition(*at), pace)
    unknown = [at for at, partition in zip(partitions, found, strict=True) if partition is None]
    if unknown:
        attempted = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return attempted | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), NO_LSN
    name = transaction.transactional_id
    pid, epoch = ProducerId(transaction.producer_id), Epoch(transaction.producer_epoch)
    if transaction.verify_only:
        return node.transactions.verify_partitions(name, pid, epoch, partitions), node.storage.lsn
    added = node.transactions.add_partitions(name, pid, epoch, partitions, 2)
    return dict.fromkeys(partitions, added.error), added.lsn


def _once(errors: Results, pace: Pace) -> Steps[list[AddPartitionsToTxnTopic]]:
    """The partitions of a transaction by topic, each of both once, however often they were named."""
    topics: dict[str, dict[int, None]] = {}
    for at in errors:
        yield from pace.spend(4)
        topics.setdefault(at.topic, {})[at.partition] = None
    return [AddPartitionsToTxnTopic(name=name, partitions=list(at)) for name, at in topics.items()]


def _by_topic(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Results, pace: Pace
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        yield from pace.spend(ITEM)
        parts = yield from each(topic.partitions, partial(_result, topic.name, errors), pace)
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=parts))
    return results


def _result(topic: str, errors: Results, index: int) -> AddPartitionsToTxnPartitionResult:
    error = errors[TopicPartition(topic, index)]
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
