"""The subjects of each answer, from the request and the answer: it must wait for all that was written about them.

Apart from what the handlers say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from fencepost.broker.node import Node
from fencepost.protocol.batch import read_header
from fencepost.protocol.codec import decode_stored, stored_version
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.stored import GroupMetadataKey, TransactionLogKey
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE

Key = Hashable
_OF_MEMBERS: Final = 2
"""Version of the keys of records about the members of a group."""
_REMEMBERED: Final = 4096
"""Keys that were decoded: a coordinator writes the same few again and again."""
_OF_TOPICS: Final = {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_OF_COORDINATOR: Final = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""These say where an id is looked after, and nothing of the id."""


def _id(name: str | None) -> Key:
    return "transactional id", name


def _members(group: str) -> Key:
    return "members", group


@lru_cache(_REMEMBERED)
def _id_of_key(key: bytes) -> Key:
    """The subject of a record of the transaction state with this key."""
    return _id(decode_stored(TransactionLogKey, key).transactional_id)


@lru_cache(_REMEMBERED)
def _members_of_key(key: bytes) -> Key | None:
    """The subject of a record of the groups' topic with this key; None if it is not about members."""
    return _members(decode_stored(GroupMetadataKey, key).group) if stored_version(key) == _OF_MEMBERS else None


STORED_SUBJECTS: Final[Mapping[str, Callable[[bytes], Key | None]]] = {
    TRANSACTION_STATE: _id_of_key,
    CONSUMER_OFFSETS: _members_of_key,
}


# What each answer tells

Subjects = Callable[[Any, Any, Node], Iterator[Key]]


def _one_id(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    if response.error_code not in _OF_COORDINATOR:
        yield _id(request.transactional_id)


def _added_offsets(request: Any, response: Any, node: Node) -> Iterator[Key]:
    """The transactional id; nothing where the topic of committed offsets could not be made: no id is told of then."""
    if CONSUMER_OFFSETS in node.topics.by_name:
        yield from _one_id(request, response, node)


def _ids(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for state in response.transaction_states:
        if state.error_code not in _OF_COORDINATOR:
            yield _id(state.transactional_id)


def _listed_ids(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    yield from (_id(state.transactional_id) for state in response.transaction_states)


def _added_ids(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    """The transactional ids of an answer, one before version 4; without those of which some topic was not known."""
    if _tells_of_id(response.results_by_topic):
        yield _id(request.transactional_id)
    for each in response.results_by_transaction:
        if _tells_of_id(each.topic_results):
            yield _id(each.transactional_id)


def _tells_of_id(topics: Any) -> bool:
    errors = {ErrorCode(each.partition_error_code) for topic in topics for each in topic.results_by_partition}
    return bool(errors) and not errors & (_OF_TOPICS | _OF_COORDINATOR)


def _group(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    yield CONSUMER_OFFSETS, node.groups.partition_for(request.group_id)


def _generation(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    """The members of a group, not its offsets: these may be committed between its decision and its answer."""
    yield _members(request.group_id)


def _committed(request: Any, response: Any, node: Node) -> Iterator[Key]:
    """The group; nothing where no topic was known: the answer then tells of no group."""
    errors = {ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions}
    if errors - _OF_TOPICS:
        yield from _group(request, response, node)


def _fetched_groups(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for name in [request.group_id, *(group.group_id for group in request.groups)]:
        yield CONSUMER_OFFSETS, node.groups.partition_for(name)


def _named_groups(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    names = request.groups if hasattr(request, "groups") else request.groups_names
    for name in names:
        yield CONSUMER_OFFSETS, node.groups.partition_for(name)


def _listed_groups(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for group in response.groups:
        yield CONSUMER_OFFSETS, node.groups.partition_for(group.group_id)


def _written(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    """The producers of the batches, refused ones included; the partition where there is no producer."""
    for topic in request.topic_data:
        name = topic.name
        if not name and topic.topic_id in node.topics.by_id:
            name = node.topics.by_id[topic.topic_id].name
        for data in topic.partition_data:
            try:
                header = read_header(data.records or b"")
            except ProtocolError:
                continue
            yield name, data.index, header.producer_id


def _marked(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for marker in request.markers:
        for topic in marker.topics:
            yield from ((topic.name, index) for index in topic.partition_indexes)


def _deleted(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in request.topics:
        yield from ((topic.name, partition.partition_index) for partition in topic.partitions)


def _described_producers(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in request.topics:
        yield from ((topic.name, index) for index in topic.partition_indexes)


def _ended(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in response.topics:
        yield from ((topic.topic, partition.partition) for partition in topic.partitions if not partition.error_code)


def _measured(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in response.results[0].topics:
        yield from ((topic.name, partition.partition_index) for partition in topic.partitions)


#: api -> what its answers are about
SUBJECTS: Final[Mapping[int, Subjects]] = {
    0: _written,
    8: _committed,
    9: _fetched_groups,
    11: _generation,
    12: _group,
    13: _group,
    14: _generation,
    15: _named_groups,
    16: _listed_groups,
    21: _deleted,
    22: _one_id,
    23: _ended,
    24: _added_ids,
    25: _added_offsets,
    26: _one_id,
    27: _marked,
    28: _committed,
    35: _measured,
    42: _named_groups,
    47: _group,
    61: _described_producers,
    65: _ids,
    66: _listed_ids,
}
