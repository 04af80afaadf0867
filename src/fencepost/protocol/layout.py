"""The layout of a declared message class, made from its annotations, for the compilers of encoders and decoders."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Any

from fencepost.protocol.message import MISSING, Message, Wire
from fencepost.protocol.types import ZERO_UUID

#: wire type -> struct code of the fixed-size ones
FIXED = {
    "int8": "b",
    "boolean": "?",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}

DEFAULTS: dict[str, Any] = {"string": "", "binary": b"", "batches": b""}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its place in the versions and its type, taken apart."""

    name: str
    wire: Wire
    kind: str
    """A wire type, "struct" or "array"."""
    nullable: bool
    of: Any = None
    """The class of a struct; for an array the Field of its elements."""
    shortened: bool = False
    """Whether it is an `error_text`."""


def fields_of(cls: type[Message]) -> list[Field]:
    """The fields of a declared class, in wire order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return [_field(name, wire, hints[name]) for name, wire in cls.__schema__.fields.items()]


def _field(name: str, wire: Wire, hint: Any) -> Field:
    nullable = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        if len(choices) != 1:
            raise TypeError(f"{name}: a field has one type, or one type and None")
        nullable, hint = True, choices[0]
    if hasattr(hint, "__metadata__"):
        kind, *rest = hint.__metadata__
        return Field(name, wire, kind, nullable, shortened=bool(rest))
    if typing.get_origin(hint) is list:
        return Field(name, wire, "array", nullable, _field(name, Wire(), typing.get_args(hint)[0]))
    if isinstance(hint, type) and issubclass(hint, Message):
        # A tagged structure is None by being left out; it has no null of its own on the wire.
        return Field(name, wire, "struct", nullable and wire.tag is None, hint)
    raise TypeError(f"{name}: {hint!r} is not a type of the protocol")


def default_of(field: Field) -> Any:
    """The value that a field has where a version does not carry it, and that keeps a tagged field off the wire."""
    if field.wire.default is not MISSING:
        return field.wire.default
    if field.nullable:
        return None
    if field.kind == "array":
        return []
    if field.kind == "uuid":
        return ZERO_UUID
    if field.kind in DEFAULTS:
        return DEFAULTS[field.kind]
    return None if field.kind == "struct" else 0
