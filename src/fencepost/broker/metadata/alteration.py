"""Changes of a topic's settings, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.configuration import TOPIC_RESOURCE
from fencepost.broker.metadata.topic_rules import TopicRefused, check_internal, checked, topic_name_error
from fencepost.broker.network.request_context import RequestContext
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.node import Node

Change = Callable[[Mapping[str, str]], dict[str, str]]
"""From the settings that a topic has to those that it shall have.  May raise TopicRefused."""

Outcome = tuple[ErrorCode, str | None]
"""Error and message for the client."""
_TWICE: Final[Outcome] = (ErrorCode.INVALID_REQUEST, "a resource is named once")


def alter_each(
    changes: Sequence[tuple[int, str, Change]], validate_only: bool, context: RequestContext, node: Node
) -> list[Outcome]:
    """Change the settings of resources (type, name), each of them named once, durably."""
    times = Counter((kind, name) for kind, name, _ in changes)
    return [
        _alter(kind, name, change, validate_only, context, node) if times[kind, name] == 1 else _TWICE
        for kind, name, change in changes
    ]


def _alter(
    resource_type: int, name: str, change: Change, validate_only: bool, context: RequestContext, node: Node
) -> Outcome:
    """Change the settings of a topic."""
    if resource_type != TOPIC_RESOURCE:
        message = "only the settings of topics can be changed while the broker runs; a broker gets its own by --set"
        return ErrorCode.INVALID_REQUEST, message
    if not context.may(Operation.ALTER_CONFIGS, Resource.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    topic = node.topics.by_name.get(name)
    if topic is None:
        illegal = topic_name_error(name) if name else ErrorCode.INVALID_REQUEST
        return illegal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
    try:
        settings = checked(change(topic.settings))
        check_internal(name, settings)
        if not validate_only:
            node.topics.change_settings(topic, settings)
    except TopicRefused as refused:
        return refused.error, str(refused)
    return ErrorCode.NONE, None
