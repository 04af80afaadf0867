"""A history is read as it was written, and anything else is refused in a sentence that names the line."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.types import Epoch, ProducerId
from fencepost.simulation.history.events import KINDS, Batch, Event, Note
from fencepost.simulation.history.file_format import HistoryUnreadable, digest_of, lines, read


def made(kind: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(kind) is tuple:
        return st.lists(made(typing.get_args(kind)[0]), max_size=2).map(tuple)
    if dataclasses.is_dataclass(kind):
        fields = {name: made(of) for name, of in typing.get_type_hints(kind).items()}
        make: Any = kind
        return st.fixed_dictionaries(fields).map(lambda values: make(**values))
    plain: dict[Any, st.SearchStrategy[Any]] = {int: st.integers(), str: st.text(), bool: st.booleans()}
    return plain[getattr(kind, "__supertype__", kind)]


EVENTS = st.lists(st.one_of([made(kind) for kind in KINDS]), max_size=4)


def encoded(events: list[Event]) -> list[bytes]:
    return [line.encode() for line in lines(events)]


@given(EVENTS)
@settings(max_examples=25, deadline=None)
def test_it_is_read_as_it_was_written(events: list[Event]) -> None:
    text = encoded(events)
    assert read(text) == events
    assert len(text) == len(events) + 2
    assert json.loads(text[-1])["sha256"] == digest_of(events)


TWO: list[Event] = [Note(1, "one"), Note(2, "two")]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_changed_byte_goes_unseen(data: st.DataObject) -> None:
    whole = b"".join(encoded(TWO))
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    with pytest.raises(HistoryUnreadable, match=r"^line \d"):
        read(changed.splitlines(keepends=True))


def test_no_cut_goes_unseen() -> None:
    whole = b"".join(encoded(TWO))
    for size in range(len(whole)):
        with pytest.raises(HistoryUnreadable, match=r"^line \d"):
            read(whole[:size].splitlines(keepends=True))


BATCH = dataclasses.asdict(Batch("left-0", ProducerId(1), Epoch(0), 0, 1, True, ()))


@pytest.mark.parametrize(
    ("number", "line", "says"),
    [
        (1, b"\x89PNG\r\n", "line 1: this is no history of a simulation"),
        (1, b'{"format":"another"}\n', "line 1: this is no history of a simulation"),
        (1, b'{"format":"fencepost-history","version":2}\n', "line 1: the history has the format version 2, only 1"),
        (2, b"[" * 100_000 + b"\n", "line 2: it is damaged, or cut off"),
        (2, b"[]\n", "line 2: it is damaged, or cut off"),
        (2, b'{"event":"Flood"}\n', "line 2: there is no event 'Flood'"),
        (2, b'{"event":["Note"]}\n', r"line 2: there is no event \['Note'\]"),
        (3, b'{"event":"Note","time":2}\n', "line 3: Note: it has no text"),
        (3, b'{"event":"Note","time":2,"text":"x","more":1}\n', "line 3: Note: it has a field 'more'"),
        (3, b'{"event":"Note","time":true,"text":"x"}\n', "line 3: Note: time is True"),
        (
            3,
            b'{"event":"Append","time":1,"batch":7,"base_offset":0,"last_offset":0,"marker":"","lsn":1}\n',
            "Batch is",
        ),
        (3, b'{"event":"Note","time":2,"text":"another"}\n', "line 4: the digest is another one"),
        (4, b'{"end":3,"sha256":""}\n', "line 4: 3 events are announced, there are 2"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(number: int, line: bytes, says: str) -> None:
    text = encoded(TWO)
    text[number - 1] = line
    with pytest.raises(HistoryUnreadable, match=says) as refused:
        read(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_nothing_follows_the_end() -> None:
    with pytest.raises(HistoryUnreadable, match="line 5: something follows"):
        read([*encoded(TWO), b"\n"])


def test_an_empty_file_is_no_history() -> None:
    with pytest.raises(HistoryUnreadable, match="line 1: the file is empty"):
        read([])
