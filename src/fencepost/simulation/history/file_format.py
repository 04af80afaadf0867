"""A history as a file: a line that says what it is, a line of JSON for each event, and a line that ends it.

The last line has the number of events and the SHA-256 of all lines before it, so that what was cut off or changed is
seen.  The same events give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from fencepost.simulation.history.events import KINDS, Batch, Event

FORMAT: Final = "fencepost-history"
VERSION: Final = 1
_BY_NAME: Final = {kind.__name__: kind for kind in KINDS}
_TYPES: Final = {kind: typing.get_type_hints(kind) for kind in (*KINDS, Batch)}


class HistoryUnreadable(Exception):
    """This is no history, or a damaged one; the message says where and why."""


def lines(events: Iterable[Event]) -> Iterator[str]:
    """The lines of a file, each with its end."""
    digest, count = hashlib.sha256(), 0
    for line in _unended(events):
        digest.update(line.encode())
        count += 1
        yield line
    yield _line({"end": count - 1, "sha256": digest.hexdigest()})


def digest_of(events: Iterable[Event]) -> str:
    """The SHA-256 of a history's lines: the same for the same history."""
    return hashlib.sha256("".join(_unended(events)).encode()).hexdigest()


def _unended(events: Iterable[Event]) -> Iterator[str]:
    yield _line({"format": FORMAT, "version": VERSION})
    for event in events:
        yield _line({"event": type(event).__name__, **_plain(event)})


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n"


def _plain(value: Any) -> dict[str, Any]:
    """The JSON form of a value of an event: its fields by name."""
    return {field.name: _element(getattr(value, field.name)) for field in fields(value)}


def _element(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_element(each) for each in value]
    return _plain(value) if is_dataclass(value) else value


def read(text: Iterable[bytes]) -> list[Event]:
    """The events of a file, given line by line.  Raises HistoryUnreadable."""
    events: list[Event] = []
    digest, ended = hashlib.sha256(), False
    number = 0
    for number, line in enumerate(text, 1):
        if ended:
            raise HistoryUnreadable(f"line {number}: something follows the end of the history")
        content = _content(line, number)
        if number == 1:
            _check_format(content)
        elif "end" in content:
            _check_end(content, len(events), digest.hexdigest(), number)
            ended = True
        else:
            events.append(_event(content, number))
        digest.update(line)
    if not number:
        raise HistoryUnreadable("line 1: the file is empty")
    if not ended:
        raise HistoryUnreadable(f"line {number}: the history has no end, the file was cut off")
    return events


def _content(line: bytes, number: int) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and line.endswith(b"\n"):
        return content
    if number == 1:
        raise HistoryUnreadable("line 1: this is no history of a simulation")
    raise HistoryUnreadable(f"line {number}: it is damaged, or cut off")


def _check_format(content: dict[str, Any]) -> None:
    if content.get("format") != FORMAT:
        raise HistoryUnreadable("line 1: this is no history of a simulation")
    if content.get("version") != VERSION:
        raise HistoryUnreadable(
            f"line 1: the history has the format version {content.get('version')!r}, only {VERSION} is read here"
        )


def _check_end(content: dict[str, Any], count: int, digest: str, number: int) -> None:
    if content.get("end") != count:
        raise HistoryUnreadable(f"line {number}: {content.get('end')!r} events are announced, there are {count}")
    if content.get("sha256") != digest:
        raise HistoryUnreadable(f"line {number}: the digest is another one, some line before it was changed")


def _event(content: dict[str, Any], number: int) -> Event:
    name = content.pop("event", None)
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise HistoryUnreadable(f"line {number}: there is no event {name!r}")
    try:
        event: Event = _made(kind, content)
    except _Misfit as misfit:
        raise HistoryUnreadable(f"line {number}: {name}: {misfit}") from None
    return event


class _Misfit(Exception):
    """A field is missing, unknown, or of another type."""


def _made(kind: type[Any], content: Any) -> Any:
    if not isinstance(content, dict):
        raise _Misfit(f"{kind.__name__} is {content!r:.40}")
    types = _TYPES[kind]
    if missing := [name for name in types if name not in content]:
        raise _Misfit(f"it has no {missing[0]}")
    if unknown := [name for name in content if name not in types]:
        raise _Misfit(f"it has a field {unknown[0]!r:.40}")
    return kind(**{name: _value(name, wanted, content[name]) for name, wanted in types.items()})


def _value(name: str, wanted: Any, found: Any) -> Any:
    if typing.get_origin(wanted) is tuple and isinstance(found, list):
        return tuple(_value(name, typing.get_args(wanted)[0], each) for each in found)
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _made(wanted, found)
    # A NewType is, when it runs, the type below it.
    if type(found) is not getattr(wanted, "__supertype__", wanted):
        raise _Misfit(f"{name} is {found!r:.40}")
    return found
