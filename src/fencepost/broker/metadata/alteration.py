"""Changes of a topic's settings, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.together import TOGETHER
from fencepost.broker.metadata.topic import Topic
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

    @property
    def configs(self) -> Sequence[object]: ...


R = TypeVar("R", bound=Named)

PARTITIONS: Final = 10
"""Partitions of a topic that cost one unit: each goes by its new settings."""


@dataclass(frozen=True, slots=True)
class _Altered:
    """A topic, and the settings that it shall have."""

    topic: Topic
    settings: Mapping[str, str]


Outcome = tuple[ErrorCode, str | None]
"""Error and message for the client."""
_CHANGED: Final[Outcome] = (ErrorCode.NONE, None)
_TWICE: Final[Outcome] = (ErrorCode.INVALID_REQUEST, "a resource is named once")


def alter_each(
    resources: Sequence[R],
    change: Callable[[R, Mapping[str, str]], dict[str, str]],
    validate_only: bool,
    context: RequestContext,
    node: Node,
    pace: Pace,
) -> Steps[list[tuple[R, Outcome]]]:
    """Change the settings of resources, each of them named once, durably, those of many topics with one write.

    `change`: from the settings that a topic has to those that it shall have.  May raise TopicRefused.
    """
    done: list[tuple[R, Outcome]] = []
    times = Counter([(resource.resource_type, resource.resource_name) for resource in resources])
    together: dict[Topic, Mapping[str, str]] = {}
    places: dict[str, int] = {}
    cost = 0
    for place, resource in enumerate(resources):
        kind, name = resource.resource_type, resource.resource_name
        twice = times[kind, name] > 1
        outcome = _TWICE if twice else _altered(kind, name, partial(change, resource), context, node)
        if isinstance(outcome, _Altered):
            cost += outcome.topic.count // PARTITIONS
            if not validate_only:
                together[outcome.topic], places[name] = outcome.settings, place
            outcome = _CHANGED
        done.append((resource, outcome))
        cost += ITEM * (2 + len(resource.configs))
        if len(together) == TOGETHER or cost >= STEP or place == len(resources) - 1:
            # Nobody else changes a topic between the look at its settings and the write.
            for name, refused in (yield from node.topics.change_together(together)).items():
                done[places[name]] = (resources[places[name]], (refused.error, str(refused)))
            yield from pace.spend(STEP if together else cost)
            together, places, cost = {}, {}, 0
    return done


def _altered(resource_type: int, name: str, change: Change, context: RequestContext, node: Node) -> _Altered | Outcome:
    """The settings that a topic shall have; or the error, and a message, where they cannot be changed so."""
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
    except TopicRefused as refused:
        return refused.error, str(refused)
    return _Altered(topic, settings)
