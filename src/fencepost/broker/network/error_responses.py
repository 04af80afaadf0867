"""The answer to a request whose handler failed: its error in the shape of the API (Kafka's getErrorResponse).

Where a response has one error for all of it, that is all it has.  Else each topic, partition, group or resource that
the request names comes back with the error.  How a response repeats what the request names is the same everywhere but
for the names of fields, so that one table of these does for all APIs.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fencepost.broker.network.registry import CLOSE, Reply, independent
from fencepost.log.commit_log import StorageFailed
from fencepost.node_log import get_logger, shown
from fencepost.protocol.codec import API_VERSIONS, RequestHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.layout import Field, default_of, fields_of
from fencepost.protocol.message import Message
from fencepost.protocol.messages import RESPONSES, ApiVersionsResponse
from fencepost.protocol.messages.api_versions import ApiVersion

logger = get_logger(__name__)

_ERRORS: Final = ("error_code", "partition_error_code")

#: list of the response -> lists of requests that it answers item by item
_ANSWERS: Final = {
    "responses": ("topic_data", "topics", "resources", "topic_names"),
    "partition_responses": ("partition_data",),
    "topics": ("topics",),
    "partitions": ("partitions", "partition_indexes"),
    "coordinators": ("coordinator_keys",),
    "groups": ("groups",),
    "results": ("resources", "topics", "groups_names", "creations"),
    "filter_results": ("filters",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "results_by_topic": ("topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "markers": ("markers",),
    "transaction_states": ("transactional_ids",),
}

#: Names of the same thing in requests.
_ALSO: Final = {"partition_index": ("partition", "index")}

#: What an item of a request is that is no structure: the name or the number of the thing itself.
_ITSELF: Final = ("key", "group_id", "name", "transactional_id", "partition_index", "partition_id")

#: What a field has that tells nothing, where that is not its default.
_NOTHING: Final[dict[str, Any]] = {
    "base_offset": -1,
    "committed_offset": -1,
    "end_offset": -1,
    "high_watermark": -1,
    "last_stable_offset": -1,
    "leader_epoch": -1,
    "log_append_time_ms": -1,
    "log_start_offset": -1,
    "low_watermark": -1,
    "node_id": -1,
    "offset": -1,
    "port": -1,
    "producer_epoch": -1,
    "producer_id": -1,
    "protocol_name": "",
    "records": b"",
    "timestamp": -1,
}


def reply_to_failed(request: Any, header: RequestHeader, host: str, stops: StorageFailed | None) -> Reply:
    """The reply where a handler raised: UNKNOWN_SERVER_ERROR, or the end of this connection.

    `stops`: the node's disk has failed, and it ends.  Then nothing is answered: clients give up for an unknown error,
    but ask again where a connection is lost.
    """
    if stops is not None:
        return CLOSE
    logger.exception(
        "a request failed and is answered UNKNOWN_SERVER_ERROR api=%d version=%d client=%s host=%s",
        header.api_key,
        header.api_version,
        shown(header.client_id),
        host,
        extra={"kind": header.api_key},
    )
    response = error_response(request, header.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    return CLOSE if response is None else independent(response)


def error_response(request: Any, version: int, error: ErrorCode) -> Any | None:
    """The response to `request` that says `error`; None where no field of it could."""
    cls = RESPONSES[request.__schema__.api]
    if getattr(request, "acks", None) == 0:
        return None  # a Produce that is not answered
    response, said = _filled(cls, request, version, error)
    return response if said else None


@cache
def _declared(cls: Any) -> tuple[Field, ...]:
    return tuple(fields_of(cls))


@cache
def _fields(cls: Any, version: int) -> tuple[Field, ...]:
    return tuple(field for field in _declared(cls) if field.wire.in_version(version) and field.wire.tag is None)


def _filled(cls: Any, asked: Any, version: int, error: ErrorCode) -> tuple[Any, bool]:
    """A message of this class for `asked`, with the error in its error fields; and whether it has any."""
    fields = _fields(cls, version)
    values: dict[str, Any] = {field.name: error for field in fields if field.name in _ERRORS}
    whole = bool(values)
    said = whole
    for field in fields:
        if field.name in values:
            continue
        if field.kind == "array" and field.of.kind == "struct":
            wanted = [] if whole else _listed(field.name, asked)
            items = [_filled(field.of.of, each, version, error) for each in wanted]
            values[field.name] = [item for item, _ in items]
            said = said or any(item_said for _, item_said in items)
        else:
            values[field.name] = _repeated(field, asked)
    return _made(cls, values), said


def _made(cls: Any, values: dict[str, Any]) -> Any:
    made = cls.__new__(cls)
    for field in _declared(cls):
        default = default_of(field)
        setattr(made, field.name, values.get(field.name, [] if isinstance(default, list) else default))
    return made


def _listed(name: str, asked: Any) -> list[Any]:
    """The list of the request that this list of the response answers."""
    if not isinstance(asked, Message):
        return []
    for candidate in _ANSWERS.get(name, ()):
        found = getattr(asked, candidate, None)
        if found:
            return list(found)
    return []


def _repeated(field: Field, asked: Any) -> Any:
    """The value of a field in the request; else one that says nothing, or the field's default."""
    if isinstance(asked, Message):
        for name in (field.name, *_ALSO.get(field.name, ())):
            if name in asked.__schema__.fields and field.kind != "array":
                return getattr(asked, name)
    elif field.name in _ITSELF:
        return asked
    if field.name in _NOTHING:
        return _NOTHING[field.name]
    default = default_of(field)
    return [] if isinstance(default, list) else default


def unsupported_version(first: int, last: int) -> ApiVersionsResponse:
    """The answer to an ApiVersions request of the future: the versions of ApiVersions that are served."""
    versions = [ApiVersion(api_key=API_VERSIONS, min_version=first, max_version=last)]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=versions)
