"""Makes the encoder of one message in one version: straight-line Python, compiled on first use.

The generated function appends pieces to a list that the caller joins: record batches are never copied before that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from struct import Struct
from typing import Any

from fencepost.protocol.decoding import LONGEST_STRING, too_long
from fencepost.protocol.layout import FIXED, Field, default_of, fields_of
from fencepost.protocol.message import Message

Encoder = Callable[[Any, Callable[[Any], None]], None]
"""(message, append) -> None; every piece goes to `append`."""

STEP = 500
"""Elements that are encoded in one step."""
SteppedEncoder = Callable[[Any, Callable[[Any], None]], Generator[None, None, None] | None]
"""The same in steps, between which somebody else may be served; None where there are no arrays: all of it is done."""


def _uvarint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SMALL = [_uvarint(number) for number in range(1024)]


def uvarint(number: int) -> bytes:
    """Unsigned variable-length form."""
    return _SMALL[number] if number < 1024 else _uvarint(number)


def _not_nullable(name: str) -> TypeError:
    return TypeError(f"{name} is None, which this field may not be")


class _Writer:
    """Lines of the function under construction, and the objects that they refer to."""

    def __init__(self, flexible: bool, version: int, stepped: bool = False) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "small": _SMALL,
            "uvarint": uvarint,
            "not_nullable": _not_nullable,
            "too_long": too_long,
        }
        self.flexible = flexible
        self.version = version
        self.stepped = stepped
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

    def length(self, depth: int, kind: str, expression: str) -> None:
        """Of what is there; `-1`: of what is null."""
        if self.flexible:
            self.uvarint(depth, f"{expression} + 1")
        else:
            pack = Struct(">h" if kind == "string" else ">i").pack
            self.add(depth, f"w({self.refer('s', pack)}({expression}))")

    def uvarint(self, depth: int, expression: str) -> None:
        """Nearly every number is small: then no function is called for it."""
        self.add(depth, f"n = {expression}", f"w(small[n] if n < {len(_SMALL)} else uvarint(n))")

    def null(self, depth: int, field: Field, source: str) -> int:
        """Write null where the value is None; returns the depth of the code for a value that is there."""
        self.add(depth, f"if {source} is None:")
        if field.nullable:
            self.length(depth + 1, field.kind, "-1")
        else:
            self.add(depth + 1, f"raise not_nullable({field.name!r})")
        self.add(depth, "else:")
        return depth + 1

    def value(self, depth: int, field: Field, source: str) -> None:
        match field.kind:
            case "string":
                depth = self.null(depth, field, source)
                self.add(depth, f"x = {source}.encode()")
                if self.flexible:  # else its length does not fit
                    self.add(depth, f"if len(x) > {LONGEST_STRING}: raise too_long({field.name!r}, len(x))")
                self.length(depth, "string", "len(x)")
                self.add(depth, "w(x)")
            case "binary" | "batches":
                depth = self.null(depth, field, source)
                self.length(depth, field.kind, f"len({source})")
                self.add(depth, f"w({source})")
            case "uuid":
                self.add(depth, f"w({source}.bytes)")
            case "array":
                depth = self.null(depth, field, source)
                self.length(depth, "array", f"len({source})")
                self.elements(depth, field.of, source)
            case "struct":
                if field.nullable:
                    self.add(depth, f"if {source} is None: w(b'\\xff')", "else:", " w(b'\\x01')")
                    depth += 1
                held = self.name("m")
                self.add(depth, f"{held} = {source}")
                self.structure(depth, field.of, held)
            case fixed:
                self.add(depth, f"w({self.refer('s', Struct('>' + FIXED[fixed]).pack)}({source}))")

    def elements(self, depth: int, element: Field, source: str) -> None:
        if element.kind in FIXED:
            pack = self.refer("s", Struct)
            self.add(depth, f"w({pack}(f'>{{len({source})}}{FIXED[element.kind]}').pack(*{source}))")
            return
        item = self.name("item")
        self.add(depth, f"for {item} in {source}:")
        self.value(depth + 1, element, item)
        if self.stepped:
            self.add(depth + 1, "left -= 1", f"if not left: left = {STEP}; yield")

    def structure(self, depth: int, cls: type[Message], held: str) -> None:
        tagged, run = [], []
        for field in fields_of(cls):
            if not field.wire.in_version(self.version) or (field.wire.tag is not None and not self.flexible):
                continue
            if field.wire.tag is not None:
                tagged.append(field)
            elif field.kind in FIXED:
                run.append(field)
            else:
                self.fixed_run(depth, run, held)
                run = []
                self.value(depth, field, f"{held}.{field.name}")
        self.fixed_run(depth, run, held)
        if self.flexible:
            self.tags(depth, tagged, held)

    def fixed_run(self, depth: int, run: list[Field], held: str) -> None:
        if run:
            pack = Struct(">" + "".join(FIXED[field.kind] for field in run)).pack
            values = ", ".join(f"{held}.{field.name}" for field in run)
            self.add(depth, f"w({self.refer('s', pack)}({values}))")

    def tags(self, depth: int, tagged: list[Field], held: str) -> None:
        """Count, then tag, size and bytes of each tagged field that differs from its default, in tag order."""
        if not tagged:
            self.add(depth, "w(b'\\x00')")
            return
        present = self.name("present")
        self.add(depth, f"{present} = []")
        for field in sorted(tagged, key=lambda field: field.wire.tag or 0):
            source = f"{held}.{field.name}"
            piece = self.refer("tag", _tagged(field, self.version))
            different = f"{source} != {self.refer('d', default_of(field))}"
            self.add(depth, f"if {different}: {present}.append({piece}({source}))")
        self.uvarint(depth, f"len({present})")
        self.add(depth, f"for x in {present}: w(x)")


def _tagged(field: Field, version: int) -> Callable[[Any], bytes]:
    """The encoder of a tagged field by itself: tag, size and value."""
    assert field.wire.tag is not None
    tag = uvarint(field.wire.tag)
    if field.kind in FIXED:
        # Its size is known before: all three in one go.
        size = Struct(">" + FIXED[field.kind]).size
        return partial(Struct(f">{len(tag) + 1}s{FIXED[field.kind]}").pack, tag + uvarint(size))
    value = _compile_value(field, version)

    def encode(of: Any) -> bytes:
        encoded = value(of)
        return b"".join((tag, uvarint(len(encoded)), encoded))

    return encode


def _compile_value(field: Field, version: int) -> Callable[[Any], bytes]:
    """The encoder of a tagged field's value."""
    writer = _Writer(flexible=True, version=version)
    writer.value(1, field, "value")
    source = "\n".join(["def encode(value):", " out = []; w = out.append", *writer.lines, " return b''.join(out)"])
    exec(compile(source, f"<encoder of tagged field {field.name}>", "exec"), writer.scope)
    encode: Callable[[Any], bytes] = writer.scope["encode"]
    return encode


def compile_encoder(cls: type[Message], version: int, flexible: bool) -> Encoder:
    """The encoder of a declared class in one version."""
    encoder: Encoder = _compile(cls, _Writer(flexible, version))
    return encoder


def compile_stepped_encoder(cls: type[Message], version: int, flexible: bool) -> SteppedEncoder:
    """The encoder for messages that may be long, in steps."""
    encoder: SteppedEncoder = _compile(cls, _Writer(flexible, version, stepped=True))
    return encoder


def _compile(cls: type[Message], writer: _Writer) -> Any:
    writer.structure(1, cls, "m")
    lines = [f" left = {STEP}", *writer.lines] if writer.stepped else writer.lines or [" pass"]
    source = "\n".join(["def encode(m, w):", *lines])
    exec(compile(source, f"<encoder of {cls.__name__} v{writer.version}>", "exec"), writer.scope)
    return writer.scope["encode"]
