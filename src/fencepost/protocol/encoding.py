"""Makes the encoder of one message in one version: straight-line Python, compiled on first use.

The generated function appends pieces to a list that the caller joins: record batches are never copied before that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from struct import Struct, pack
from typing import Any

from fencepost.protocol.decoding import LONGEST_STRING, STEP, too_long
from fencepost.protocol.errors import told
from fencepost.protocol.layout import FIXED, Field, default_of, fields_of
from fencepost.protocol.message import Message

Encoder = Callable[[Any, Callable[[Any], None]], None]
"""(message, append) -> None; every piece goes to `append`."""

SteppedEncoder = Callable[[Any, Callable[[Any], None]], Generator[None, None, None] | None]
"""As an Encoder, in steps, between which somebody else may be served; None where there are no arrays: all is done."""


def _uvarint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SMALL = [_uvarint(number) for number in range(1024)]


def uvarint(number: int) -> bytes:
    """The unsigned variable-length form of a number."""
    return _SMALL[number] if number < 1024 else _uvarint(number)


def _not_nullable(name: str) -> TypeError:
    return TypeError(f"{name} is None, which this field may not be")


class _Writer:
    """Lines of the function under construction, and the objects that they refer to."""

    def __init__(self, flexible: bool, version: int, stepped: bool = False) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "pack": pack,
            "small": _SMALL,
            "uvarint": uvarint,
            "not_nullable": _not_nullable,
            "too_long": too_long,
            "told": told,
        }
        self.flexible = flexible
        self.version = version
        self.stepped = stepped
        self._names = 0
        self._run: list[tuple[str, str]] = []
        """Formats and values of what is of fixed size and not written yet: it goes out in one piece."""

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def refer(self, stem: str, thing: Any) -> str:
        name = self.name(stem)
        self.scope[name] = thing
        return name

    def add(self, depth: int, *lines: str) -> None:
        self.flush(depth)
        self.lines += [" " * depth + line for line in lines]

    def fixed(self, kind: str, value: str) -> None:
        self._run.append((kind, value))

    def zero(self) -> None:
        """Write one byte of 0."""
        self._run.append(("x", ""))

    def flush(self, depth: int) -> None:
        """Write what is of fixed size, before anything else is done."""
        run, self._run = self._run, []
        if run:
            form = Struct(">" + "".join(kind for kind, _ in run))
            values = ", ".join(value for _, value in run if value)
            self.add(depth, f"w({self.refer('s', form.pack)}({values}))" if values else f"w({form.pack()!r})")

    def length(self, depth: int, kind: str, expression: str) -> None:
        """Write the length of what is there.  Nearly every number is small: then no function is called for it."""
        if self.flexible:
            self.add(depth, f"n = {expression} + 1", f"w(small[n] if n < {len(_SMALL)} else uvarint(n))")
        else:
            self.fixed("h" if kind == "string" else "i", expression)

    def null(self, depth: int, field: Field, source: str) -> tuple[int, str]:
        """Write null where the value is None; returns the depth of the code for one that is there, and its name."""
        held = self.name("x")
        self.add(depth, f"{held} = {source}", f"if {held} is None:")
        if not field.nullable:
            self.add(depth + 1, f"raise not_nullable({field.name!r})")
            return depth, held
        if self.flexible:
            self.zero()
        else:
            self.fixed("h" if field.kind == "string" else "i", "-1")
        self.flush(depth + 1)
        self.add(depth, "else:")
        return depth + 1, held

    def value(self, depth: int, field: Field, source: str) -> None:
        match field.kind:
            case "string":
                inner, held = self.null(depth, field, source)
                text = f"told({held})" if field.shortened else held
                self.add(inner, f"{held} = {text}.encode()")
                if self.flexible:
                    self.string(inner, field, held)
                else:  # else its length does not fit
                    self.length(inner, "string", f"len({held})")
                    self.add(inner, f"w({held})")
            case "binary" | "batches":
                inner, held = self.null(depth, field, source)
                self.length(inner, field.kind, f"len({held})")
                self.add(inner, f"w({held})")
            case "uuid":
                self.fixed("16s", f"{source}.bytes")
            case "array":
                inner, held = self.null(depth, field, source)
                self.length(inner, "array", f"len({held})")
                self.elements(inner, field.of, held)
            case "struct":
                held = self.name("m")
                self.add(depth, f"{held} = {source}")
                if field.nullable:
                    self.add(depth, f"if {held} is None: w(b'\\xff')", "else:", " w(b'\\x01')")
                    depth += 1
                self.structure(depth, field.of, held)
                self.flush(depth)
            case fixed:
                self.fixed(FIXED[fixed], source)

    def string(self, depth: int, field: Field, held: str) -> None:
        """Write a string with its length in front, in one piece where it is short."""
        self.add(depth, f"n = len({held}) + 1", f"if n < {len(_SMALL)}: w(small[n] + {held})", "else:")
        self.add(depth + 1, f"if n > {LONGEST_STRING + 1}: raise too_long({field.name!r}, n - 1)")
        self.add(depth + 1, "w(uvarint(n))", f"w({held})")

    def elements(self, depth: int, element: Field, source: str) -> None:
        if element.kind in FIXED:
            self.add(depth, f"w(pack(f'>{{len({source})}}{FIXED[element.kind]}', *{source}))")
            return
        item = self.name("item")
        self.add(depth, f"for {item} in {source}:")
        if element.kind == "struct":
            self.structure(depth + 1, element.of, item)
        else:
            self.value(depth + 1, element, item)
        self.flush(depth + 1)
        if self.stepped:
            self.add(depth + 1, "left -= 1", f"if not left: left = {STEP}; yield")

    def structure(self, depth: int, cls: type[Message], held: str) -> None:
        tagged = []
        for field in fields_of(cls):
            if not field.wire.in_version(self.version) or (field.wire.tag is not None and not self.flexible):
                continue
            if field.wire.tag is not None:
                tagged.append(field)
            else:
                self.value(depth, field, f"{held}.{field.name}")
        if self.flexible:
            self.tags(depth, tagged, held)

    def tags(self, depth: int, tagged: list[Field], held: str) -> None:
        """Write tagged fields: count, then tag, size and bytes of each that differs from its default, in tag order."""
        if not tagged:
            self.zero()
            return
        present = self.name("present")
        defaults, pieces = [], []
        for field in sorted(tagged, key=lambda field: field.wire.tag or 0):
            source = f"{held}.{field.name}"
            piece = self.refer("tag", _tagged(field, self.version))
            default = default_of(field)
            same, other = ("is", "is not") if default is None else ("==", "!=")
            expected = "None" if default is None else self.refer("d", default)
            defaults.append(f"{source} {same} {expected}")
            pieces.append(f"if {source} {other} {expected}: {present}.append({piece}({source}))")
        self.add(depth, f"if {' and '.join(defaults)}: w(b'\\x00')", "else:")
        self.add(depth + 1, f"{present} = []", *pieces)
        self.add(depth + 1, f"n = len({present})", f"w(small[n] if n < {len(_SMALL)} else uvarint(n))")
        self.add(depth + 1, f"for x in {present}: w(x)")


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
    writer.flush(1)
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
    writer.flush(1)
    lines = [f" left = {STEP}", *writer.lines] if writer.stepped else writer.lines or [" pass"]
    source = "\n".join(["def encode(m, w):", *lines])
    exec(compile(source, f"<encoder of {cls.__name__} v{writer.version}>", "exec"), writer.scope)
    return writer.scope["encode"]
