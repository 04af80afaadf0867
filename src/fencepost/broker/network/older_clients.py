"""The errors for clients of the protocol before KIP-890, so that they go on where they can.

A timed-out transaction (KIP-588) is answered PRODUCER_FENCED, which every client takes for its end.  Some would go on
if they were told UNKNOWN_PRODUCER_ID: they abort, and ask for a new epoch with the pair that they have.  Others would
only abort and fail again (kafka-python), or fail as before and miss the error that their users know (aiokafka, kafkajs;
Kafka Streams on the Java client), or repeat a Produce until its time is over (Java).  Nothing in a request tells them
apart but the software's name.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from fencepost.broker.network.request_context import RequestContext
from fencepost.protocol.errors import ErrorCode


class Call(Enum):
    """The kinds of requests of a producer whose errors depend on the client."""

    PRODUCE = auto()
    ADD = auto()
    """AddPartitionsToTxn, AddOffsetsToTxn."""
    COMMIT = auto()
    ABORT = auto()


LIBRDKAFKA: Final = "librdkafka"

#: software -> the calls on which UNKNOWN_PRODUCER_ID brings it to a new epoch; each was tried (`stock_clients`)
_NEW_EPOCH_AFTER: Final = {
    LIBRDKAFKA: frozenset(Call),
    # It does so of itself after INVALID_PRODUCER_EPOCH from Produce, and takes an abort that fails for the end.
    "kgo": frozenset({Call.ADD, Call.COMMIT}),
}

#: What a coordinator says of an old producer id or epoch.
_OLD: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_FENCED_SINCE: Final = 2


def software_name(name: str, version: str) -> str:
    """The software behind a connection; what is built on librdkafka names it in its version."""
    return LIBRDKAFKA if "rdkafka" in name or "rdkafka" in version else name


def asks_for_new_epoch(context: RequestContext, call: Call) -> bool:
    """Whether this client goes on by itself when it is told UNKNOWN_PRODUCER_ID."""
    return call in _NEW_EPOCH_AFTER.get(context.peer.software, ())


def error_for(error: ErrorCode, call: Call, timed_out: bool, context: RequestContext) -> ErrorCode:
    """The error for AddPartitionsToTxn v0-v3, AddOffsetsToTxn and EndTxn v0-v4.

    `timed_out`: the caller's pair is the one that the server timed out, and nobody else took over since.
    """
    old = error in _OLD or (call is Call.ABORT and error is ErrorCode.NONE)
    if timed_out and old and asks_for_new_epoch(context, call):
        return ErrorCode.UNKNOWN_PRODUCER_ID
    if error is ErrorCode.PRODUCER_FENCED and context.version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
