"""What an admin is given, checked before anybody is asked: pure functions that name what makes no sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.client.admin.configs import ConfigChange
from fencepost.client.admin.partitions import OffsetSpec
from fencepost.client.admin.topics import NewTopic
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.types import TopicPartition


def one(what: str, name: object) -> str:
    """A name.  Raises TypeError, ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"{what}={name!r}: it must be a str")
    if not name:
        raise ValueError(f"{what} is empty: give a name")
    return name


def many(what: str, names: Iterable[str]) -> list[str]:
    """Names, none of them twice.  Raises TypeError, ValueError; a str is one name and not its letters."""
    if isinstance(names, str):
        raise TypeError(f"{what}={names!r}: give several names, as in [{names!r}]")
    return list(dict.fromkeys(one(what, name) for name in names))


def texts(what: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings and their values, which are texts also where they are numbers.  Raises TypeError, ValueError."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{what}[{one(what, name)!r}]={value!r}: it must be a str, as in {str(value)!r}")
    return dict(given)


def new_topic(topic: NewTopic) -> NewTopic:
    """Raises TypeError, ValueError."""
    whole_number("partitions", topic.partitions)
    whole_number("replication_factor", topic.replication_factor)
    return topic._replace(name=one("name", topic.name), config=texts("config", topic.config))


def config_change(change: ConfigChange) -> ConfigChange:
    """Raises TypeError, ValueError."""
    return ConfigChange(
        texts("set", change.set),
        many("delete", change.delete),
        texts("append", change.append),
        texts("subtract", change.subtract),
    )


def whole_number(what: str, number: object) -> int:
    """Raises TypeError."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what}={number!r}: it must be a whole number")
    return number


def place(at: object) -> TopicPartition:
    """A partition of a topic.  Raises TypeError, ValueError."""
    if not (isinstance(at, tuple) and len(at) == 2):
        raise TypeError(f"{at!r} is no partition: give a TopicPartition, as in TopicPartition('orders', 0)")
    return TopicPartition(one("topic", at[0]), whole_number("partition", at[1]))


def times(at: object, spec: object) -> int:
    """A time or the name of an offset.  Raises TypeError, ValueError."""
    found = whole_number(f"specs[{at}]", spec)
    if found < min(OffsetSpec):
        raise ValueError(f"specs[{at}]={found}: it must be an OffsetSpec, or 0 or more milliseconds since 1970")
    return found


def position(at: object, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """An offset to commit.  Raises TypeError, ValueError."""
    found = with_metadata(given)
    if whole_number(f"positions[{at}]", found.offset) < 0:
        raise ValueError(f"positions[{at}]={found.offset}: an offset is 0 or more")
    return found
