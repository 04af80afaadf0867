"""Changes of a topic's settings, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.topic_rules import TopicRefused, check_internal, checked, topic_name_error
from fencepost.broker.network.request_context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.describe_configs import TOPIC_RESOURCE
from fencepost.protocol.steps import ITEM, STEP, Pace, Steps

if TYPE_CHECKING:
    from fencepost.broker.node import Node

Change = Callable[[Mapping[str, str]], dict[str, str]]
"""From the settings that a topic has to those that it shall have.  May raise TopicRefused."""


class Named(Protocol):
    """A resource whose settings are to change."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Named)

Outcome = tuple[ErrorCode, str | None]
"""Error and message for the client."""
_TWICE: Final[Outcome] = (ErrorCode.INVALID_REQUEST, "a resource is named once")


def alter_each(
    resources: Sequence[R],
    change: Callable[[R, Mapping[str, str]], dict[str, str]],
    validate_only: bool,
    context: RequestContext,
    node: Node,
    pace: Pace,
) -> Steps[list[tuple[R, Outcome]]]:
    """Change the settings of resources, each of them named once, durably.

    `change`: from the settings that a topic has to those that it shall have.  May raise TopicRefused.
    """
    done = []
    times = Counter([(resource.resource_type, resource.resource_name) for resource in resources])
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        twice = times[kind, name] > 1
        outcome = _TWICE if twice else _alter(kind, name, partial(change, resource), validate_only, context, node)
        done.append((resource, outcome))
        # What is changed is synced at once.
        yield from pace.spend(2 * ITEM if validate_only or outcome[0] else STEP)
    return done


def _alter(
    resource_type: int, name: str, change: Change, validate_only: bool, context: RequestContext, node: Node
) -> Outcome:
    """Change the settings of a topic."""
    if resource_type != TOPIC_RESOURCE:
        message = "only the settings of topics can be changed while the broker runs; it was started with its own"
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
