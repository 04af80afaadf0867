"""Records as named tuples of the kind that a reader asks for, made without calling their class.

`record_kernel.pxd` has both functions in C.  There a record without headers is one that Python's cycle collector does
not visit: it refers to numbers, bytes and text only, which refer to nothing, so that it can be part of no cycle.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

R = TypeVar("R", bound=tuple[Any, ...])

__all__ = ["tuple_of_five", "tuple_of_seven"]

_new: Final = tuple.__new__


def tuple_of_five(kind: type[R], offset: int, timestamp: int, key: object, value: object, headers: object) -> R:
    """A record of this kind."""
    return _new(kind, (offset, timestamp, key, value, headers))


def tuple_of_seven(
    kind: type[R],
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: object,
    value: object,
    headers: object,
) -> R:
    """A record of this kind, with the partition that it is of."""
    return _new(kind, (topic, partition, offset, timestamp, key, value, headers))
