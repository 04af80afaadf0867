"""What an admin is given, checked before anybody is asked: pure functions that name what makes no sense.

Each raises TypeError for what is of another kind, ValueError for what is out of range or cannot be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fencepost.client.admin.configs import ConfigChange
from fencepost.client.admin.partitions import OffsetSpec
from fencepost.client.admin.topics import NewTopic
from fencepost.client.settings import check_switches
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.types import TopicPartition

_INT16: Final = 2**15 - 1
INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
#: Bytes of a text that every version of a request can hold.
_LONGEST: Final = _INT16
#: What Apache Kafka calls the states and types of groups, whatever case it is asked in.
_GROUP_STATES: Final = (
    *("Unknown", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling", "NotReady"),
)
_GROUP_TYPES: Final = ("Unknown", "Classic", "Consumer", "Share", "Streams")


def text(what: str, given: object) -> str:
    """A text that can be sent."""
    if not isinstance(given, str):
        raise TypeError(f"{what}={given!r}: it must be a str")
    try:
        size = len(given) if given.isascii() else len(given.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what}={given!r}: it has halves of characters, which cannot be sent") from None
    if size > _LONGEST:
        raise ValueError(f"{what}={given[:20]!r}...: it has {size} bytes, and may have {_LONGEST}")
    return given


def one(what: str, name: object) -> str:
    """A name."""
    if not text(what, name):
        raise ValueError(f"{what} is empty: give a name")
    return str(name)


def several(what: str, given: object) -> list[Any]:
    """Whatever it is several of; a str is one name and not its letters."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{what}={given!r}: give several names, as in [{given!r}]")
    if not isinstance(given, Iterable):
        raise TypeError(f"{what}={given!r}: give several, as in [{given!r}]")
    return list(given)


def pairs(what: str, given: object) -> dict[Any, Any]:
    """A mapping."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}={given!r}: give a dict")
    return dict(given)


def many(what: str, names: object) -> list[str]:
    """Names, none of them twice."""
    return list(dict.fromkeys(one(what, name) for name in several(what, names)))


def of_these(what: str, names: object, known: Iterable[str]) -> list[str]:
    """Names that there are, in whatever case."""
    there = {name.casefold() for name in known}
    found = many(what, names)
    for name in found:
        if name.casefold() not in there:
            raise ValueError(f"{what}={found!r}: there is no {name!r}; there are {', '.join(known)}")
    return found


def group_states(names: object) -> list[str]:
    """States that a group can be in."""
    return of_these("states", names, _GROUP_STATES)


def group_types(names: object) -> list[str]:
    """Types of a group's protocol."""
    return of_these("types", names, _GROUP_TYPES)


def texts(what: str, given: object) -> dict[str, str]:
    """Settings and their values, which are texts also where they are numbers."""
    found = pairs(what, given)
    for name, value in found.items():
        if not isinstance(value, str):
            raise TypeError(f"{what}[{one(what, name)!r}]={value!r}: it must be a str, as in {str(value)!r}")
        text(f"{what}[{one(what, name)!r}]", value)
    return found


def whole_number(what: str, number: object, least: int = 0, most: int = INT64) -> int:
    """From `least` to `most`, both included."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what}={number!r}: it must be a whole number")
    if not least <= number <= most:
        raise ValueError(f"{what}={number}: it must be from {least} to {most}")
    return number


def count(what: str, number: object, most: int = INT32) -> int:
    """Of partitions or replicas; -1 leaves it to the broker, who says why it makes no other that is not positive."""
    return whole_number(what, number, -1, most)


def brokers(what: str, given: object) -> list[int]:
    """Ids of brokers."""
    return [whole_number(what, each, 0, INT32) for each in several(what, given)]


def switches(**given: bool) -> None:
    """On or off."""
    check_switches(**given)


def new_topic(topic: object) -> NewTopic:
    """A topic to make."""
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
    """Topics to make."""
    if isinstance(given, NewTopic):
        raise TypeError(f"new={given!r}: give several, as in [{given!r}]")
    return [new_topic(each) for each in several("new", given)]


def config_change(change: object) -> ConfigChange:
    """Of settings."""
    if not isinstance(change, ConfigChange):
        raise TypeError(f"change={change!r}: give a ConfigChange, as in ConfigChange(set={{'retention.ms': '1000'}})")
    return ConfigChange(
        texts("set", change.set),
        many("delete", change.delete),
        texts("append", change.append),
        texts("subtract", change.subtract),
    )


def place(at: object) -> TopicPartition:
    """A partition of a topic."""
    if not (isinstance(at, tuple) and len(at) == 2):
        raise TypeError(f"{at!r} is no partition: give a TopicPartition, as in TopicPartition('orders', 0)")
    return TopicPartition(one("topic", at[0]), whole_number("partition", at[1], 0, INT32))


def places(what: str, given: object) -> list[TopicPartition]:
    """Partitions of topics."""
    if isinstance(given, TopicPartition):
        raise TypeError(f"{what}={given!r}: give several, as in [{given!r}]")
    return [place(at) for at in several(what, given)]


def spec(at: object, given: object) -> int:
    """A time or the name of an offset."""
    if whole_number(f"specs[{at}]", given, -(2**63)) < min(OffsetSpec):
        raise ValueError(f"specs[{at}]={given}: it must be an OffsetSpec, or 0 or more milliseconds since 1970")
    return int(given)  # type: ignore[call-overload, no-any-return]


def specs(given: object) -> dict[TopicPartition, int]:
    """Times or the names of offsets."""
    return {place(at): spec(at, each) for at, each in pairs("specs", given).items()}


def ends(given: object) -> dict[TopicPartition, int]:
    """Offsets before which records are deleted, -1 being the high watermark."""
    return {place(at): whole_number(f"before[{at}]", offset, -1) for at, offset in pairs("before", given).items()}


def position(at: object, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """An offset to commit."""
    found = with_metadata(given)
    if whole_number(f"positions[{at}]", found.offset, -(2**63)) < 0:
        raise ValueError(f"positions[{at}]={found.offset}: an offset is 0 or more")
    text(f"metadata of positions[{at}]", found.metadata)
    whole_number(f"leader_epoch of positions[{at}]", found.leader_epoch, -1, INT32)
    return found


def positions(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit."""
    return {place(at): position(at, each) for at, each in pairs("positions", given).items()}


def level(given: object) -> int:
    """Of a feature."""
    return whole_number("level", given, 0, _INT16)
