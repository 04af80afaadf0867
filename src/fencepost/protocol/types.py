"""The types of the protocol: what a number means (`Offset`, `Epoch`), and how it is laid out on the wire (`int32`)."""

from __future__ import annotations

import uuid as _uuid
from enum import IntEnum
from typing import Annotated, NamedTuple, NewType, TypeAlias

Milliseconds = NewType("Milliseconds", int)
"""A point in time (since the Unix epoch) or a duration, by context."""
Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)
ProducerId = NewType("ProducerId", int)

Buffer: TypeAlias = bytes | bytearray | memoryview

# How a field is laid out.  To the type checker they are the plain Python type.
int8: TypeAlias = Annotated[int, "int8"]
int16: TypeAlias = Annotated[int, "int16"]
uint16: TypeAlias = Annotated[int, "uint16"]
int32: TypeAlias = Annotated[int, "int32"]
uint32: TypeAlias = Annotated[int, "uint32"]
int64: TypeAlias = Annotated[int, "int64"]
float64: TypeAlias = Annotated[float, "float64"]
boolean: TypeAlias = Annotated[bool, "boolean"]
string: TypeAlias = Annotated[str, "string"]
uuid: TypeAlias = Annotated[_uuid.UUID, "uuid"]
binary: TypeAlias = Annotated[bytes, "binary"]
batches: TypeAlias = Annotated[bytes | bytearray | memoryview, "batches"]
"""Record batches.  Decoding gives a slice of the message's own buffer, not a copy."""

ZERO_UUID = _uuid.UUID(int=0)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Isolation(IntEnum):
    """How far a reader may read: to the high watermark, or to the last stable offset (facts §8.1)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
