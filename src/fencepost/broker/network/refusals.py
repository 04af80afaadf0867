"""Transactional requests that make no sense, or come from somebody who may not: said in the log, but not too often.

The client is told by an error code; whoever runs the node learns here who it was, and what can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.node_log import get_logger, shown
from fencepost.protocol.batch import read_header
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.types import NO_PRODUCER, Epoch, ProducerId, ProducerIdAndEpoch

if TYPE_CHECKING:
    from fencepost.broker.network.request_context import RequestContext

logger = get_logger(__name__)

MOST_ERRORS: Final = 100
"""Errors of one answer that are looked at: to read all of 45,000 would keep others waiting."""

#: What is worth a line, and what to do about it.  Everything else is everyday life.
ADVICE: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "a transactional id has at least one character, a producer id comes with its epoch",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "set the producer's transaction.timeout.ms between 1 and the broker's "
    "transaction.max.timeout.ms",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id is not, or no longer, the one of the transactional id: "
    "the producer must be made anew",
    ErrorCode.PRODUCER_FENCED: "another producer has the transactional id, or had it and is gone: nothing, unless two "
    "share it by mistake",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer epoch is known, or this was never one: nothing, unless two producers "
    "share the transactional id by mistake",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow WRITE on the transactional id, if that is meant to be",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "allow it on the cluster, if this is a broker or an administrator",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has written here: nothing, it goes on",
    ErrorCode.INVALID_RECORD: "look at the client, its batches break the protocol, or a rule of the topic: a compacted "
    "one needs a key in each record",
    ErrorCode.UNKNOWN_SERVER_ERROR: "look at the client, it sends a producer id, epoch, transaction version or "
    "codec that does not exist",
}

#: Happens whenever a producer is replaced; of interest only to who looks for it.
EVERYDAY: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class Refusal(NamedTuple):
    """An error of a transactional request, with the transactional id (None: it has none), producer id and epoch."""

    error: int
    transactional_id: str | None
    producer_id: ProducerId
    producer_epoch: Epoch


def log_refusal(what: str, refusal: Refusal, context: RequestContext) -> None:
    """Say that `what` was refused; not without end, as every line of the node (`node_log`)."""
    everyday = refusal.error in EVERYDAY and refusal.producer_epoch >= 0
    logger.log(
        logging.INFO if everyday else logging.WARNING,
        "refused %s with %s transactional_id=%s producer_id=%d epoch=%d client=%s host=%s: %s",
        what,
        ErrorCode(refusal.error).name,
        shown(refusal.transactional_id),
        refusal.producer_id,
        refusal.producer_epoch,
        shown(context.client_id),
        context.host,
        ADVICE[ErrorCode(refusal.error)],
        # Everyday news does not use up what may be said of the same error where it is none.
        extra={"kind": (what, refusal.error, everyday)},
    )


# Where the errors are in an answer: nearly always there are none, so nothing is made before one is found


def _of_one(request: Any, response: Any) -> Sequence[Refusal]:
    return (_refusal(response.error_code, request),) if response.error_code else ()


def _refusal(error: int, asked: Any) -> Refusal:
    return Refusal(error, asked.transactional_id, *ProducerIdAndEpoch.of(asked.producer_id, asked.producer_epoch))


def _of_partitions(request: AddPartitionsToTxnRequest, response: Any) -> Iterator[Refusal]:
    if response.error_code:
        yield Refusal(response.error_code, None, *NO_PRODUCER)
    transactions = {each.transactional_id: each for each in request.transactions}
    for result in response.results_by_transaction:
        for error in _partition_errors(result.topic_results):
            yield _refusal(error, transactions[result.transactional_id])
    for error in _partition_errors(response.results_by_topic):
        yield _refusal(error, request)


def _partition_errors(topics: Any) -> Iterator[int]:
    for topic in topics:
        for each in topic.results_by_partition:
            if each.partition_error_code:
                yield each.partition_error_code


def _of_offsets(request: TxnOffsetCommitRequest, response: Any) -> Iterator[Refusal]:
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                yield _refusal(each.error_code, request)


def _of_markers(request: WriteTxnMarkersRequest, response: Any) -> Iterator[Refusal]:
    epochs = {marker.producer_id: marker.producer_epoch for marker in request.markers}
    for marker in response.markers:
        for topic in marker.topics:
            for each in topic.partitions:
                if each.error_code:
                    producer = ProducerIdAndEpoch.of(marker.producer_id, epochs[marker.producer_id])
                    yield Refusal(each.error_code, None, *producer)


def _of_produce(request: ProduceRequest, response: Any) -> Iterator[Refusal]:
    for topic, data in zip(response.responses, request.topic_data, strict=False):
        for each, written in zip(topic.partition_responses, data.partition_data, strict=False):
            if each.error_code:
                yield Refusal(each.error_code, request.transactional_id, *_producer_of(written.records))


def _producer_of(records: Any) -> ProducerIdAndEpoch:
    try:
        header = read_header(records or b"")
    except ProtocolError:
        return NO_PRODUCER
    return ProducerIdAndEpoch(header.producer_id, header.producer_epoch)


Reader = Callable[[Any, Any], Iterable[Refusal]]
READERS: Final[Mapping[type, Reader]] = {
    InitProducerIdRequest: _of_one,
    AddPartitionsToTxnRequest: _of_partitions,
    AddOffsetsToTxnRequest: _of_one,
    EndTxnRequest: _of_one,
    TxnOffsetCommitRequest: _of_offsets,
    WriteTxnMarkersRequest: _of_markers,
    ProduceRequest: _of_produce,
}


def report(request: Any, response: Any, context: RequestContext) -> None:
    """Say in the log what a response refuses, if its request is one of the transactional ones."""
    reader = READERS.get(type(request))
    if reader is not None:
        refusals = list(islice(reader(request, response), MOST_ERRORS))
        for refusal in dict.fromkeys(refusals) if refusals else ():
            if refusal.error in ADVICE:
                log_refusal(type(request).__name__.removesuffix("Request"), refusal, context)
