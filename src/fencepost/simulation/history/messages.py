"""The content of requests and answers that a history tells of.  Pure functions of their bytes.

Every API is read alike: names, partitions, errors, offsets and batches are found by what Kafka calls their fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.protocol.batch import BatchHeader, headers
from fencepost.protocol.codec import decode_request, decode_response, read_request_header
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.message import Message
from fencepost.protocol.messages import FLEXIBLE, REQUESTS, RESPONSES
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import NO_EPOCH, NO_PRODUCER_ID, Buffer, Epoch, ProducerId
from fencepost.simulation.history.events import Batch

_TOPICS: Final = ("name", "topic")
_INDEXES: Final = ("index", "partition_index", "partition")
_LISTS_OF_INDEXES: Final = ("partitions", "partition_indexes")
_OFFSETS: Final = (
    "base_offset",
    "committed_offset",
    "fetch_offset",
    "high_watermark",
    "last_stable_offset",
    "log_start_offset",
    "low_watermark",
    "offset",
)
_UNKNOWN: Final = 2**63 - 1
#: What else is said where it stands in the message itself.
_DETAILS: Final = (
    "acks",
    "committed",
    "generation_id",
    "generation_id_or_member_epoch",
    "isolation_level",
    "key",
    "key_type",
    "member_id",
    "transaction_timeout_ms",
    "transactional_ids",
    "coordinator_keys",
    "groups_names",
    "transaction_timed_out",
)
MOST_VALUES: Final = 4
"""Records of a batch that are shown."""
MOST_CHARACTERS: Final = 40


class Frame(NamedTuple):
    """The header of a request."""

    api: int
    version: int
    correlation_id: int
    client_id: str


Topics = dict[str, str]
"""Topic id -> name, as far as any message has told it."""


@dataclass
class Said:
    """Content of a request or an answer: names, partitions, errors, offsets and batches."""

    topics: Topics
    transactional_id: str = ""
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: Epoch = NO_EPOCH
    group: str = ""
    partitions: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    @property
    def detail(self) -> str:
        """All details in one line."""
        return " ".join(self.details)


def frames(data: bytes) -> Iterator[bytes]:
    """The whole frames that these bytes are, without their length prefixes."""
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : end]
        at = end


def name_of(api: int) -> str:
    """The name of an API in Apache Kafka, as EndTxn."""
    request = REQUESTS.get(api)
    return f"api {api}" if request is None else request.__name__.removesuffix("Request")


def read_request(frame: bytes, topics: Topics) -> tuple[Frame, Said]:
    """The header and the content of a request; only its header where the rest cannot be read."""
    header = read_request_header(frame, FLEXIBLE)
    said = Said(topics)
    try:
        request = decode_request(REQUESTS[header.api_key], frame, header.api_version, header.body_start)
    except (ProtocolError, KeyError):
        said.details.append("it cannot be read")
    else:
        _look_into(request, said, "")
    return Frame(header.api_key, header.api_version, header.correlation_id, header.client_id or ""), said


def read_answer(frame: bytes, api: int, version: int, topics: Topics) -> Said:
    """The content of an answer."""
    said = Said(topics)
    try:
        _, response = decode_response(RESPONSES[api], frame, version)
    except (ProtocolError, KeyError):
        said.details.append("it cannot be read")
    else:
        _look_into(response, said, "")
    return said


def _look_into(message: Any, said: Said, topic: str, *, depth: int = 0) -> None:
    """Add what is in a message, or a part of one, to `said`.  `topic`: the one that this part is about."""
    topic = _topic(message, said.topics) or topic if depth else topic
    if said.producer_id < 0 and hasattr(message, "producer_epoch"):
        said.producer_id, said.producer_epoch = ProducerId(message.producer_id), Epoch(message.producer_epoch)
    index = next((getattr(message, name) for name in _INDEXES if isinstance(getattr(message, name, None), int)), None)
    place = f"{topic}-{index}" if topic and index is not None else topic
    if topic and index is not None and place not in said.partitions:
        said.partitions.append(place)
    for name in message.__slots__:
        _note(name, getattr(message, name), said, topic, place, depth)


def _topic(message: Any, topics: Topics) -> str:
    """The topic that a message names, or whose id it has; empty if it has none."""
    name = next((found for field in _TOPICS if isinstance(found := getattr(message, field, None), str) and found), "")
    topic_id = getattr(message, "topic_id", None)
    if not isinstance(topic_id, UUID) or not topic_id.int:
        return name
    if name:
        topics[str(topic_id)] = name
    return topics.get(str(topic_id), str(topic_id))


def _note(name: str, value: Any, said: Said, topic: str, place: str, depth: int) -> None:
    where = f"{place}: " if place else ""
    if isinstance(value, Message):
        _look_into(value, said, topic, depth=depth + 1)
    elif isinstance(value, list):
        _note_each(name, value, said, topic, depth)
    elif name == "error_code":
        if value:
            said.errors.append(f"{where}{_error(value)}")
    elif name == "records":
        said.batches += batches_in(value or b"", place)
    elif name in _OFFSETS:
        if (name == "log_start_offset") <= value < _UNKNOWN:
            said.offsets.append(f"{where}{name} {value}")
    elif name in ("transactional_id", "group_id"):
        kind = "group" if name == "group_id" else name
        if value and not getattr(said, kind):
            setattr(said, kind, value)
    elif name in _DETAILS and not depth and value not in ("", None, -1):
        said.details.append(f"{name}={str(value)[:MOST_CHARACTERS]}")


def _note_each(name: str, values: list[Any], said: Said, topic: str, depth: int) -> None:
    if name in _DETAILS and not depth and values:
        said.details.append(f"{name}={','.join(map(str, values))[:MOST_CHARACTERS]}")
    for value in values:
        if isinstance(value, Message):
            _look_into(value, said, topic, depth=depth + 1)
        elif name in _LISTS_OF_INDEXES and isinstance(value, int) and topic:
            said.partitions.append(f"{topic}-{value}")


def _error(code: int) -> str:
    known = ErrorCode(code)
    return known.name if known == code else str(int(code))


def batches_in(data: Buffer, partition: str) -> list[Batch]:
    """The batches of a request, an answer or a log, as far as they are whole."""
    try:
        return [batch_of(bytes(data[at : at + header.size]), header, partition) for at, header in headers(data)]
    except ProtocolError:
        return []


def batch_of(data: Buffer, header: BatchHeader, partition: str) -> Batch:
    """One batch; of internal topics, whose records are no text, without their values."""
    values: tuple[str, ...] = ()
    if not header.is_control and not partition.startswith("__"):
        try:
            records = decode_batch(data, 0, header)
        except ProtocolError:
            records = []
        values = tuple(_text(record.value) for record in records[:MOST_VALUES])
    return Batch(
        partition,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
        header.is_transactional,
        values,
    )


def _text(value: bytes | None) -> str:
    """The first MOST_CHARACTERS bytes as ASCII, with escapes for all others; "null" for None."""
    return "null" if value is None else ascii(value[:MOST_CHARACTERS].decode("ascii", "backslashreplace"))[1:-1]
