"""Declares messages: a class states what is on the wire, and nothing else.

    @response(api=26, versions="0-5", flexible="3+")
    class EndTxnResponse:
        throttle_time_ms: int32
        error_code: int16
        producer_id: int64 = since(5, default=-1)

The class gets slots, a keyword constructor, equality and a representation.  A field that a version does not have keeps
its default.  Encoders and decoders are made from the declaration in `fencepost.protocol.codec`, on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

LAST = 32767
MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Wire:
    """The place of a field on the wire: in which versions, and under which tag if it is a tagged field."""

    first: int = 0
    last: int = LAST
    default: Any = MISSING
    tag: int | None = None
    is_secret: bool = False
    """Nobody is shown its value."""

    def in_version(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Schema:
    """The declaration of a message as its decorator read it.  `flexible`: the first flexible version."""

    versions: tuple[int, int]
    flexible: int
    fields: dict[str, Wire]
    api: int | None = None
    is_request: bool = False


class Message:
    """The base of every declared class; also the type of "any message"."""

    __slots__ = ()
    __schema__: ClassVar[Schema]


T = TypeVar("T")


def since(version: int, *, default: Any = MISSING) -> Any:
    """A field of `version` and later."""
    return Wire(first=version, default=default)


def until(version: int, *, default: Any = MISSING) -> Any:
    """A field of versions up to and including `version`."""
    return Wire(last=version, default=default)


def between(first: int, last: int, *, default: Any = MISSING) -> Any:
    """A field of the versions first to last, both included."""
    return Wire(first=first, last=last, default=default)


def tagged(tag: int, *, since: int = 0, default: Any = None) -> Any:
    """A tagged field: left out of the bytes while it has its default, skipped by who does not know it (KIP-482)."""
    return Wire(first=since, default=default, tag=tag)


def secret() -> Any:
    """A field of every version that the message's representation leaves out: logs and errors may show that."""
    return Wire(is_secret=True)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first.rstrip("+")), int(last) if last else (LAST if text.endswith("+") else int(first))


def _declare(cls: type[T], schema: Schema) -> type[T]:
    names = list(schema.fields)
    namespace = {k: v for k, v in cls.__dict__.items() if k not in names and k not in ("__dict__", "__weakref__")}
    namespace |= {"__slots__": tuple(names), "__schema__": schema}
    namespace |= {"__init__": _constructor(schema), "__eq__": _equal, "__repr__": _represent, "__hash__": None}
    declared: type[T] = type(cls.__name__, (Message,), namespace)
    return declared


def _constructor(schema: Schema) -> Callable[..., None]:
    """A keyword constructor as straight-line code.  A list default is a fresh list for every message."""
    parameters, body, scope = [], [], {}
    for name, wire in schema.fields.items():
        if wire.default is MISSING:
            parameters.append(name)
            body.append(f"    self.{name} = {name}")
        elif isinstance(wire.default, list):
            parameters.append(f"{name}=None")
            body.append(f"    self.{name} = [] if {name} is None else {name}")
        else:
            scope[f"_{name}"] = wire.default
            parameters.append(f"{name}=_{name}")
            body.append(f"    self.{name} = {name}")
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    exec(f"def __init__({signature}):\n" + "\n".join(body or ["    pass"]), scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def _equal(self: Any, other: Any) -> bool:
    return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _represent(self: Any) -> str:
    fields = self.__schema__.fields.items()
    shown = (f"{name}={'<secret>' if wire.is_secret else repr(getattr(self, name))}" for name, wire in fields)
    return f"{type(self).__name__}({', '.join(shown)})"


def _fields(cls: type) -> dict[str, Wire]:
    fields = {}
    for name in cls.__annotations__:
        declared = cls.__dict__.get(name, MISSING)
        fields[name] = declared if isinstance(declared, Wire) else Wire(default=declared)
    return fields


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, between, tagged, secret))
def struct(cls: type[T]) -> type[T]:
    """A structure inside messages; its versions are those of the message around it."""
    return _declare(cls, Schema((0, LAST), LAST, _fields(cls)))


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, between, tagged, secret))
def request(*, api: int, versions: str, flexible: str = "never") -> Callable[[type[T]], type[T]]:
    """A request of the API with this key."""
    return _message(versions, flexible, api, is_request=True)


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, between, tagged, secret))
def response(*, api: int, versions: str, flexible: str = "never") -> Callable[[type[T]], type[T]]:
    """The response of the API with this key."""
    return _message(versions, flexible, api, is_request=False)


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, between, tagged, secret))
def data(*, versions: str, flexible: str = "never") -> Callable[[type[T]], type[T]]:
    """A structure that is not sent by itself: a record of an internal topic, or an embedded protocol."""
    return _message(versions, flexible, None, is_request=False)


def _message(versions: str, flexible: str, api: int | None, *, is_request: bool) -> Callable[[type[T]], type[T]]:
    first_flexible = LAST if flexible == "never" else _range(flexible)[0]

    def declare(cls: type[T]) -> type[T]:
        return _declare(cls, Schema(_range(versions), first_flexible, _fields(cls), api, is_request))

    return declare
