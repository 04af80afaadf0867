"""Messages with random values in every field that their version has, and default values in the others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

from fencepost.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from fencepost.protocol.layout import Field, default_of, fields_of
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.stored import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
)

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
CLASSES: list[Any] = [
    *REQUESTS.values(),
    *RESPONSES.values(),
    *(TransactionLogKey, TransactionLogValue, OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue),
    *(ConsumerProtocolSubscription, ConsumerProtocolAssignment),
]


def versions(cls: Any) -> range:
    first, last = cls.__schema__.versions
    return range(first, last + 1)


def every_version() -> Iterator[tuple[Any, int]]:
    """Each class with each of its versions."""
    return ((cls, version) for cls in CLASSES for version in versions(cls))


def random_message(cls: Any, version: int, random: Random, flexible: bool | None = None) -> Any:
    """A message of which every bit of the bytes can be told from every other."""
    flexible = version >= cls.__schema__.flexible if flexible is None else flexible
    values = {}
    for field in fields_of(cls):
        there = field.wire.in_version(version) and (field.wire.tag is None or flexible)
        if there and (field.wire.tag is None or random.random() < 0.7):
            values[field.name] = random_value(field, version, random, flexible)
        else:
            default = default_of(field)
            values[field.name] = [] if default == [] else default
    return cls(**values)


def random_value(field: Field, version: int, random: Random, flexible: bool) -> Any:
    if field.nullable and random.random() < 0.2:
        return None
    match field.kind:
        case "struct":
            return random_message(field.of, version, random, flexible)
        case "array":
            count = (
                random.choice((0, 1, 2, 3)) if field.of.kind in ("struct", "array") else random.choice((0, 1, 5, 200))
            )
            return [random_value(field.of, version, random, flexible) for _ in range(count)]
        case "string":
            return "".join(random.choices("abcdefxyz-ßé漢\U0001f512", k=random.choice((0, 1, 9, 200))))
        case "binary" | "batches":
            return random.randbytes(random.choice((0, 1, 9, 200)))
        case "uuid":
            return uuid.UUID(bytes=random.randbytes(16))
        case "boolean":
            return random.random() < 0.5
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "uint16" | "uint32":
            return random.getrandbits(16)
        case number:
            bits = random.choice((1, 5, BITS[number] - 1))
            return random.choice((1, -1)) * random.getrandbits(bits)
