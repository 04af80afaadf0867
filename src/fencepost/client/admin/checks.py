"""Checks of the arguments of an admin, before any broker is asked: pure functions that name what is wrong.

Each raises TypeError for what is of another kind, ValueError for what is out of range or cannot be sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.client.admin.configs import ConfigChange
from fencepost.client.admin.partitions import OffsetSpec
from fencepost.client.admin.topics import NewTopic
from fencepost.client.arguments import INT32, one, pairs, place, several, text, whole_number
from fencepost.client.settings import check_switches
from fencepost.protocol.types import TopicPartition

_INT16: Final = 2**15 - 1
#: What Apache Kafka calls the states and types of groups, whatever case it is asked in.
_GROUP_STATES: Final = (
    *("Unknown", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling", "NotReady"),
)
_GROUP_TYPES: Final = ("Unknown", "Classic", "Consumer", "Share", "Streams")


def many(what: str, names: object) -> list[str]:
    """Names as a list, each once."""
    return list(dict.fromkeys(one(what, name) for name in several(what, names)))


def of_these(what: str, names: object, known: Iterable[str]) -> list[str]:
    """Names that are among the `known` ones, in whatever case of their letters."""
    there = {name.casefold() for name in known}
    found = many(what, names)
    for name in found:
        if name.casefold() not in there:
            raise ValueError(f"{what}={found!r}: there is no {name!r}; there are {', '.join(known)}")
    return found


def group_states(names: object) -> list[str]:
    """States that a group can be in, by Apache Kafka's names."""
    return of_these("states", names, _GROUP_STATES)


def group_types(names: object) -> list[str]:
    """Types of a group's protocol, by Apache Kafka's names."""
    return of_these("types", names, _GROUP_TYPES)


def texts(what: str, given: object) -> dict[str, str]:
    """Settings and their values, which are strings also where they are numbers."""
    found = pairs(what, given)
    for name, value in found.items():
        if not isinstance(value, str):
            raise TypeError(f"{what}[{one(what, name)!r}]={value!r}: it must be a str, as in {str(value)!r}")
        text(f"{what}[{one(what, name)!r}]", value)
    return found


def count(what: str, number: object, most: int = INT32) -> int:
    """A number of partitions or replicas; -1 leaves it to the broker, who says why it makes no other below 1."""
    return whole_number(what, number, -1, most)


def brokers(what: str, given: object) -> list[int]:
    """Ids of brokers, 0 or more, as a list."""
    return [whole_number(what, each, 0, INT32) for each in several(what, given)]


def switches(**given: bool) -> None:
    """Arguments that are True or False."""
    check_switches(**given)


def new_topic(topic: object) -> NewTopic:
    """A NewTopic, and all that is in it."""
    if not isinstance(topic, NewTopic):
        raise TypeError(f"{topic!r} is no topic to make: give a NewTopic, as in NewTopic('orders', partitions=6)")
    replicas = {
        whole_number("replicas", number, 0, INT32): brokers(f"replicas[{number}]", ids)
        for number, ids in pairs("replicas", topic.replicas).items()
    }
    return NewTopic(
        one("name", topic.name),
        count("partitions", topic.partitions),
        count("replication_factor", topic.replication_factor, _INT16),
        texts("config", topic.config),
        replicas,
    )


def new_topics(given: object) -> list[NewTopic]:
    """Several of `new_topic`, as a list."""
    if isinstance(given, NewTopic):
        raise TypeError(f"new={given!r}: give several, as in [{given!r}]")
    return [new_topic(each) for each in several("new", given)]


def config_change(change: object) -> ConfigChange:
    """A ConfigChange, and all that is in it."""
    if not isinstance(change, ConfigChange):
        raise TypeError(f"change={change!r}: give a ConfigChange, as in ConfigChange(set={{'retention.ms': '1000'}})")
    return ConfigChange(
        texts("set", change.set),
        many("delete", change.delete),
        texts("append", change.append),
        texts("subtract", change.subtract),
    )


def spec(at: object, given: object) -> int:
    """A time in milliseconds since 1970, or an OffsetSpec, for the partition `at`."""
    if whole_number(f"specs[{at}]", given, -(2**63)) < min(OffsetSpec):
        raise ValueError(f"specs[{at}]={given}: it must be an OffsetSpec, or 0 or more milliseconds since 1970")
    return int(given)  # type: ignore[call-overload, no-any-return]


def specs(given: object) -> dict[TopicPartition, int]:
    """Partition -> a time in milliseconds since 1970, or an OffsetSpec."""
    return {place(at): spec(at, each) for at, each in pairs("specs", given).items()}


def ends(given: object) -> dict[TopicPartition, int]:
    """Partition -> the offset before which its records are deleted; -1: the high watermark."""
    return {place(at): whole_number(f"before[{at}]", offset, -1) for at, offset in pairs("before", given).items()}


def level(given: object) -> int:
    """A level of a feature, 0 to 32,767."""
    return whole_number("level", given, 0, _INT16)
