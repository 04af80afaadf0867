"""Records as callers give them to a producer, checked; and the errors of what is none."""

from __future__ import annotations

from types import NoneType
from typing import Final

from fencepost.client.errors import RecordTooLargeError
from fencepost.protocol.records import Headers

#: What a key or value may be.
BYTES: Final = (bytes, bytearray, NoneType)
#: Milliseconds since 1970, as a record can hold them.
LATEST: Final = (1 << 63) - 1


def checked_timestamp(timestamp: int) -> int:
    """The timestamp, in milliseconds since 1970.  Raises TypeError or ValueError if a record cannot have it."""
    if not isinstance(timestamp, int):
        raise TypeError(f"timestamp={timestamp!r}: it must be an int, in milliseconds since 1970")
    if not 0 <= timestamp <= LATEST:
        raise ValueError(f"timestamp={timestamp}: it must be from 0 to {LATEST}, in milliseconds since 1970")
    return timestamp


def what_is_wrong(key: object, value: object, headers: Headers) -> TypeError:
    """The error of a key, a value and headers that cannot be encoded."""
    for name, found in (("key", key), ("value", value)):
        if not isinstance(found, BYTES):
            hint = f", for example {name}.encode()" if isinstance(found, str) else ""
            return TypeError(f"the {name} is of type {type(found).__name__}: give bytes or None{hint}")
    return TypeError(f"headers={headers!r}: give a list of pairs, each a str and bytes or None")


def too_large(at: object, key: bytes | None, value: bytes | None, limit: int) -> RecordTooLargeError:
    """The error of a record for this topic or partition that no request may hold."""
    return RecordTooLargeError(
        f"a record for {at} has {len(key or b'')} bytes of key and {len(value or b'')} of value, "
        f"and with its headers and those of a batch more than max_request_size={limit}. It was not sent. Make it "
        "smaller, or raise max_request_size and the topic's max.message.bytes"
    )
