"""Ids of group members: what they call themselves, and a random number."""

from __future__ import annotations

import random
from typing import Final

from fencepost.protocol.decoding import LONGEST_STRING

_RANDOM_BITS: Final = 128
_RANDOM_DIGITS: Final = _RANDOM_BITS // 4


def new_member_id(prefix: str, generator: random.Random) -> str:
    """An id that nobody has; `prefix` is the id of the instance, if it has one, or of the client."""
    return f"{prefix}-{generator.getrandbits(_RANDOM_BITS):0{_RANDOM_DIGITS}x}"


def has_room(prefix: str) -> bool:
    """Whether an id that begins with this can be sent and stored; where it cannot, Apache Kafka answers -1."""
    return len(prefix.encode()) + 1 + _RANDOM_DIGITS <= LONGEST_STRING
