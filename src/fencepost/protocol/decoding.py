"""Makes the decoder of one message in one version: straight-line Python, compiled on first use.

The generated function walks a buffer with one position.  Runs of fixed-size fields are read by one struct, lengths are
checked against the end before anything is taken, and an array's count against the bytes that are left.  The items of
all arrays of a request are counted, and bounded: they cost many times more than their bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from functools import lru_cache
from struct import Struct, unpack_from
from struct import error as StructError
from typing import Any

from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.layout import FIXED, Field, default_of, fields_of
from fencepost.protocol.message import Message
from fencepost.protocol.types import Buffer

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, start, end) -> (message, where it ended)."""

STEP = 500
"""Items that are decoded, or encoded, in one step."""
SteppedDecoder = Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]
"""As a Decoder, in steps, between which somebody else may be served."""

LONGEST_STRING = 0x7FFF
"""Flexible versions could say more, but nobody does, and what is stored has no room for it."""

MOST_ITEMS = 100_000
"""Items of all arrays of one request together, at any depth, and its unknown tagged fields."""

BAD_INPUT = (StructError, IndexError, UnicodeDecodeError)
"""What a generated decoder lets through when the bytes end too early or are no text."""


@lru_cache(1024)
def uuid_of(data: bytes) -> uuid.UUID:
    """The UUID of these 16 bytes.  Ids of topics come again and again, and to make one takes longer than all around."""
    return uuid.UUID(bytes=data)


def read_uvarint(buffer: Buffer, at: int, n: int) -> tuple[int, int]:
    """The varint with the first byte `n` that goes on at `at`, and its end.  Raises ProtocolError beyond 5 bytes."""
    n &= 127
    for shift in (7, 14, 21, 28):
        byte = buffer[at]
        at += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return n, at
    raise ProtocolError("a variable-length number is longer than 5 bytes")


def cut_off() -> ProtocolError:
    """The error for a length or count that is negative, or goes beyond the end of the message."""
    return ProtocolError("a length or count is larger than what is left of the message, or negative")


def too_many(count: int) -> ProtocolError:
    """The error for a request with more than MOST_ITEMS items."""
    return ProtocolError(f"its lists have {count} items in all, and those of a request no more than {MOST_ITEMS}")


def too_long(name: str, length: int) -> ProtocolError:
    """The error for a string of more than LONGEST_STRING bytes."""
    return ProtocolError(f"{name} has {length} bytes: a string has at most {LONGEST_STRING}")


def unexpected_null(name: str) -> ProtocolError:
    """The error for a null where there must be a value."""
    return ProtocolError(f"{name} is null, which it may not be")


class _Writer:
    """Lines of the function under construction, and the objects that they refer to."""

    def __init__(self, flexible: bool, version: int, bounded: bool, stepped: bool = False) -> None:
        self.bounded = bounded
        self.stepped = stepped
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "uvarint": read_uvarint,
            "cut_off": cut_off,
            "too_long": too_long,
            "too_many": too_many,
            "null": unexpected_null,
            "uuid_of": uuid_of,
            "unpack_from": unpack_from,
        }
        self.flexible = flexible
        self.version = version
        self._names = 0

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def refer(self, stem: str, thing: Any) -> str:
        name = self.name(stem)
        self.scope[name] = thing
        return name

    def add(self, depth: int, *lines: str) -> None:
        self.lines += [" " * depth + line for line in lines]

    # Every method below leaves the position in `p`; `e` is the end of the buffer.

    def uvarint(self, depth: int, target: str, *checks: str) -> None:
        """Read an unsigned number of variable length.  `checks`: lines for one that has more than one byte."""
        self.add(depth, f"{target} = b[p]; p += 1", f"if {target} > 127:")
        self.add(depth + 1, f"{target}, p = uvarint(b, p, {target})", *checks)

    def length(self, depth: int, field: Field, target: str) -> tuple[int, str]:
        """Read a length or count; returns the depth of the code for a value that is there, and the length of that.

        Null becomes None where it is allowed.
        """
        if self.flexible:
            too_long = f"if n > {LONGEST_STRING + 1}: raise too_long({field.name!r}, n - 1)"
            self.uvarint(depth, "n", *([too_long] if field.kind == "string" else []))
            null, length = "not n", "n - 1"
        else:
            form = Struct(">h" if field.kind == "string" else ">i")
            self.add(depth, f"n, = {self.refer('s', form.unpack_from)}(b, p); p += {form.size}")
            null, length = "n == -1", "n"
        if field.nullable:
            self.add(depth, f"if {null}: {target} = None", "else:")
            depth += 1
        else:
            self.add(depth, f"if {null}: raise null({field.name!r})")
        if not self.flexible:
            self.add(depth, "if n < 0: raise cut_off()")
        return depth, length

    def value(self, depth: int, field: Field, target: str) -> None:
        match field.kind:
            case "string" | "binary" | "batches":
                depth, length = self.length(depth, field, target)
                take = {"string": "str(b[p:q], 'utf-8')", "binary": "bytes(b[p:q])", "batches": "b[p:q]"}[field.kind]
                self.add(depth, f"q = p + {length}", "if q > e: raise cut_off()", f"{target} = {take}; p = q")
            case "uuid":
                self.add(depth, "q = p + 16", "if q > e: raise cut_off()", f"{target} = uuid_of(bytes(b[p:q])); p = q")
            case "array":
                self.array(depth, field, target)
            case "struct":
                if field.nullable:
                    self.add(depth, "n = b[p]; p += 1", f"if n == 255: {target} = None", "else:")
                    depth += 1
                self.add(depth, f"{target} = {self.structure(depth, field.of)}")
            case fixed:
                unpack = Struct(">" + FIXED[fixed])
                self.add(depth, f"{target}, = {self.refer('s', unpack.unpack_from)}(b, p); p += {unpack.size}")

    def array(self, depth: int, field: Field, target: str) -> None:
        depth, length = self.length(depth, field, target)
        self.add(depth, f"if {length} > e - p: raise cut_off()")
        self.counted(depth, length)
        element: Field = field.of
        if element.kind in FIXED:
            size = Struct(">" + FIXED[element.kind]).size
            self.add(depth, f"q = p + ({length}) * {size}", "if q > e: raise cut_off()")
            self.add(depth, f"{target} = list(unpack_from(f'>{{{length}}}{FIXED[element.kind]}', b, p)); p = q")
            return
        items = self.name("items")
        self.add(depth, f"{items} = []", f"for _ in range({length}):")
        if element.kind == "struct" and not element.nullable:
            item = self.structure(depth + 1, element.of)
        else:
            item = self.name("item")
            self.value(depth + 1, element, item)
        self.add(depth + 1, f"{items}.append({item})")
        if self.stepped:
            self.add(depth + 1, "left -= 1", f"if not left: left = {STEP}; yield")
        self.add(depth, f"{target} = {items}")

    def counted(self, depth: int, count: str) -> None:
        """Count so many items in `c`, and refuse too many."""
        if self.bounded:
            self.add(depth, f"c += {count}", f"if c > {MOST_ITEMS}: raise too_many(c)")

    def structure(self, depth: int, cls: type[Message]) -> str:
        """Read a message; returns the name that it has in the function."""
        made = self.name("m")
        self.add(depth, f"{made} = {self.refer('new', cls.__new__)}({self.refer('cls', cls)})")
        tagged, run = [], []
        for field in fields_of(cls):
            if not field.wire.in_version(self.version) or (field.wire.tag is not None and not self.flexible):
                self.default(depth, field, made)
            elif field.wire.tag is not None:
                tagged.append(field)
                self.default(depth, field, made)
            elif field.kind in FIXED:
                run.append(field)
            else:
                self.fixed_run(depth, run, made)
                run = []
                self.value(depth, field, f"{made}.{field.name}")
        self.fixed_run(depth, run, made)
        if self.flexible:
            self.tags(depth, tagged, made)
        return made

    def default(self, depth: int, field: Field, made: str) -> None:
        default = default_of(field)
        value = "[]" if isinstance(default, list) else self.refer("d", default)
        self.add(depth, f"{made}.{field.name} = {value}")

    def fixed_run(self, depth: int, run: list[Field], made: str) -> None:
        if run:
            unpack = Struct(">" + "".join(FIXED[field.kind] for field in run))
            targets = ", ".join(f"{made}.{field.name}" for field in run)
            self.add(depth, f"{targets}, = {self.refer('s', unpack.unpack_from)}(b, p); p += {unpack.size}")

    def tags(self, depth: int, tagged: list[Field], made: str) -> None:
        """Read tagged fields: a count, then tag, size and bytes of each; unknown ones are stepped over."""
        stop = self.name("stop")
        self.add(depth, "n = b[p]; p += 1", "if n:")
        self.add(depth + 1, "if n > 127: n, p = uvarint(b, p, n)", "if n > e - p: raise cut_off()")
        self.counted(depth + 1, "n")
        self.add(depth + 1, "for _ in range(n):")
        self.uvarint(depth + 2, "t")
        self.uvarint(depth + 2, "n")
        self.add(depth + 2, f"{stop} = p + n", f"if {stop} > e: raise cut_off()")
        for number, field in enumerate(tagged):
            self.add(depth + 2, f"{'el' if number else ''}if t == {field.wire.tag}:")
            self.value(depth + 3, field, f"{made}.{field.name}")
            self.add(depth + 3, f"if p != {stop}: raise cut_off()")
        self.add(depth + 2, f"p = {stop}")


def compile_decoder(cls: type[Message], version: int, flexible: bool) -> Decoder:
    """The decoder of a declared class in one version."""
    decoder: Decoder = _compile(cls, _Writer(flexible, version, bounded=cls.__schema__.is_request))
    return decoder


def compile_stepped_decoder(cls: type[Message], version: int, flexible: bool) -> SteppedDecoder:
    """The decoder for messages that may have many items, in steps."""
    writer = _Writer(flexible, version, bounded=cls.__schema__.is_request, stepped=True)
    decoder: SteppedDecoder = _compile(cls, writer)
    return decoder


def _compile(cls: type[Message], writer: _Writer) -> Any:
    made = writer.structure(1, cls)
    # Without a yield it would not be a generator where there are no arrays.
    first = [" c = 0", f" left = {STEP}", " if not left: yield"] if writer.stepped else [" c = 0"]
    source = "\n".join(["def decode(b, p, e):", *first, *writer.lines, f" return {made}, p"])
    exec(compile(source, f"<decoder of {cls.__name__} v{writer.version}>", "exec"), writer.scope)
    return writer.scope["decode"]
