"""Checks of arguments, before any broker is asked: pure functions that name what is wrong.

Each raises TypeError for what is of another kind, ValueError for what is out of range or cannot be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from reprlib import repr as shortened
from typing import Any, Final, SupportsIndex

from fencepost.protocol.types import TopicPartition

_INT16: Final = 2**15 - 1
INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
#: Bytes of a text that every version of a request can hold.
_LONGEST: Final = _INT16


def text(what: str, given: object) -> str:
    """`given` itself.  Raises TypeError if it is no string, ValueError if it has more than 32,767 bytes or no UTF-8."""
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
    """`name` as a str.  Raises what `text` does, and ValueError if it is empty."""
    if not text(what, name):
        raise ValueError(f"{what} is empty: give a name")
    return str(name)


def several(what: str, given: object) -> list[Any]:
    """The items of `given` as a list.  Raises TypeError if it is not iterable, or a str or bytes: that is one name."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{what}={given!r}: give several names, as in [{given!r}]")
    return list(iterable(what, given))


def iterable(what: str, given: object) -> Iterable[Any]:
    """`given` itself, which may be iterable once only, and endless.  Raises TypeError if it is not iterable."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{what}={given!r}: give several, as in [{given!r}]")
    return given


def keys_or_values(what: str, given: object) -> Iterable[Any]:
    """As `iterable`.  Raises TypeError for a str or bytes of any kind, too: that is one key or value, not several."""
    if isinstance(given, str | bytes | bytearray | memoryview):
        raise TypeError(f"{what}={(shown := shortened(given))}: give several, as in [{shown}]")
    return iterable(what, given)


def pairs(what: str, given: object) -> dict[Any, Any]:
    """The mapping `given` as a dict.  Raises TypeError if it is none."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}={given!r}: give a dict")
    return dict(given)


def whole_number(what: str, number: object, least: int = 0, most: int = INT64) -> int:
    """`number` as an int.

    Raises TypeError if it is no whole number, or a bool, ValueError if it is not from `least` to `most`, both included.
    """
    if type(number) is int:
        found = number
    elif isinstance(number, bool) or not isinstance(number, SupportsIndex):
        raise TypeError(f"{what}={number!r}: it must be a whole number")
    else:
        found = index(number)  # of NumPy's numbers
    if not least <= found <= most:
        raise ValueError(f"{what}={number}: it must be from {least} to {most}")
    return found


def place(at: object) -> TopicPartition:
    """`at` as a TopicPartition.

    Raises TypeError if it is no tuple of two, and what `one` (of the topic) and `whole_number` (of the partition) do.
    """
    if not (isinstance(at, tuple) and len(at) == 2):
        raise TypeError(f"{at!r} is no partition: give a TopicPartition, as in TopicPartition('orders', 0)")
    return TopicPartition(one("topic", at[0]), whole_number("partition", at[1], 0, INT32))


def places(what: str, given: object) -> list[TopicPartition]:
    """The items of `given` as a list of partitions.  Raises TypeError if it is one partition, and what `place` does."""
    if isinstance(given, TopicPartition):
        raise TypeError(f"{what}={given!r}: give several, as in [{given!r}]")
    return [place(at) for at in several(what, given)]


def offsets_at(what: str, given: object) -> dict[TopicPartition, int]:
    """`given`, offsets (0 or more) by partition, as a dict.  Raises what `pairs`, `place` and `whole_number` do."""
    return {place(at): whole_number(f"{what}[{at}]", offset) for at, offset in pairs(what, given).items()}
