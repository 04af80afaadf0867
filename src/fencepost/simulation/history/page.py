"""A history as one HTML page that opens from a file: a lane for everybody, time going down, arrows between them.

What is drawn is worked out here; the script in the page draws what is in sight of it, filters, and shows details.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any, Final

from fencepost.protocol.types import NO_PRODUCER_ID, ProducerId
from fencepost.simulation.history.events import (
    Answer,
    Append,
    Arrival,
    Batch,
    Call,
    CallFault,
    Event,
    Failure,
    Loss,
    NodeChange,
    Note,
    Outcome,
    Request,
    RequestFault,
    Return,
    Run,
    Transition,
    Trouble,
)
from fencepost.simulation.history.places import places
from fencepost.simulation.history.story import COORDINATOR, DISK, NODE, RUN, Sentence, tell

#: In front of clients, and behind them.
_FIRST: Final = (RUN,)
_LAST: Final = (NODE, COORDINATOR)
_DATA: Final = "HISTORY_DATA"
_SCRIPT: Final = "HISTORY_SCRIPT"
_NOTHING: Final[tuple[Any, ...]] = (-1, "", [], ())


def of(events: Sequence[Event]) -> Iterator[str]:
    """The HTML page of a history, in parts."""
    here = resources.files(__package__)
    head, _, rest = here.joinpath("page.html").read_text(encoding="utf-8").partition(_DATA)
    middle, _, tail = rest.partition(_SCRIPT)
    yield head
    yield json.dumps(drawing(events), separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")
    yield middle
    yield here.joinpath("page.js").read_text(encoding="utf-8")
    yield tail


def drawing(events: Sequence[Event]) -> dict[str, Any]:
    """The data that the script in the page draws.  Rows are numbered by the event that they show."""
    sentences = list(tell(events))
    names = _lanes(sentences, {event.batch.partition for event in events if isinstance(event, Append)})
    number = {name: n for n, name in enumerate(names)}
    keys = _keys(events, sentences)
    run = next((event for event in events if isinstance(event, Run)), None)
    return {
        "run": None if run is None else asdict(run),
        "lanes": names,
        "rows": [
            {
                "time": each.time,
                "lane": number[each.lane],
                "kind": type(event).__name__,
                "label": _label(event),
                "text": each.text,
                "keys": keys[n],
                "of": _belongs_to(event),
                "event": _compact(asdict(event)),
            }
            for n, (each, event) in enumerate(zip(sentences, events, strict=True))
        ],
        "arrows": _arrows(events),
        "troubles": _spans(events, Trouble),
        "down": _spans(events, NodeChange),
        "failures": [
            {"failed": event.failed, "what": event.what, "rows": places(event, events)}
            for event in events
            if isinstance(event, Failure)
        ],
    }


def _lanes(sentences: Sequence[Sentence], partitions: Collection[str]) -> list[str]:
    """The lanes of the page from left to right: clients, the node with its parts, partitions, internal topics."""
    found = dict.fromkeys(each.lane for each in sentences)
    last = (*_LAST, *sorted(partitions, key=lambda name: (name.startswith("__"), name)), DISK)
    clients = [name for name in found if name not in (*_FIRST, *last)]
    return [name for name in (*_FIRST, *clients, *last) if name in found]


def _compact(content: dict[str, Any]) -> dict[str, Any]:
    """The same without empty values."""
    return {name: value for name, value in content.items() if value not in _NOTHING or value is False}


def _label(event: Event) -> str:
    """A few words about an event, beside its dot."""
    match event:
        case Request():
            return f"{event.api} #{event.exchange}"
        case RequestFault() | NodeChange():
            return event.what
        case Trouble():
            return f"{'over: ' if event.is_over else ''}{event.what}"
        case Answer():
            return event.errors[0] if event.errors else ""
        case Loss():
            return f"#{event.exchange} lost"
        case Append():
            who = f"{event.batch.producer_id}/{event.batch.producer_epoch}" if event.batch.producer_id >= 0 else ""
            return f"{event.marker} @{event.base_offset} {who}".strip()
        case Transition():
            return f"{event.transactional_id} {event.before or 'nothing'} -> {event.after}"
        case Call():
            return event.operation
        case Outcome():
            return event.error.partition(":")[0] or "returns"
        case CallFault():
            return f"{event.call} {event.what}"
        case Note():
            return event.text
        case Failure():
            return f"BROKEN: {event.failed}"
    return ""


def _belongs_to(event: Event) -> str:
    """A name that all rows of one exchange or one call have in common; empty for other events."""
    match event:
        case Request() | RequestFault() | Arrival() | Answer() | Return() | Loss():
            return f"exchange {event.exchange}"
        case Call() | Outcome():
            return f"call {event.call}"
    return ""


def _keys(events: Sequence[Event], sentences: Sequence[Sentence]) -> list[list[str]]:
    """The names by which each event can be filtered: all of an exchange has those of any part of it."""
    owners = {event.producer_id: event.transactional_id for event in events if isinstance(event, Transition)}
    ids = {*owners.values(), *(event.transactional_id for event in events if isinstance(event, Request))}
    own = [
        dict.fromkeys((*_named(event, owners), *([f"id {each.lane}"] if each.lane in ids else [])))
        for each, event in zip(sentences, events, strict=True)
    ]
    together: dict[str, dict[str, None]] = defaultdict(dict)
    for event, named in zip(events, own, strict=True):
        together[_belongs_to(event)] |= named
    return [
        list(together[group]) if (group := _belongs_to(event)) else list(named)
        for event, named in zip(events, own, strict=True)
    ]


def _named(event: Event, owners: Mapping[ProducerId, str]) -> Iterator[str]:
    """The names in an event.  `owners`: the transactional id that each producer id was given to."""
    match event:
        case Request():
            yield from _of(event.transactional_id, event.producer_id, event.partitions, event.batches)
        case Answer():
            yield from _of("", event.producer_id, (), event.batches)
        case Append():
            yield from _of(owners.get(event.batch.producer_id, ""), NO_PRODUCER_ID, (), (event.batch,))
        case Transition():
            yield from _of(event.transactional_id, event.producer_id, event.partitions, ())


def _of(
    transactional_id: str, producer_id: ProducerId, partitions: Sequence[str], batches: Sequence[Batch]
) -> Iterator[str]:
    if transactional_id:
        yield f"id {transactional_id}"
    for number in (producer_id, *(batch.producer_id for batch in batches)):
        if number >= 0:
            yield f"producer {number}"
    for partition in (*partitions, *(batch.partition for batch in batches)):
        yield f"partition {partition}"


def _arrows(events: Sequence[Event]) -> list[list[Any]]:
    """[row, row, kind] from where something is sent to where it arrives, or is known to be lost."""
    arrows: list[list[Any]] = []
    asked: dict[int, int] = {}
    answered: dict[int, int] = {}
    for row, event in enumerate(events):
        match event:
            case Request():
                asked[event.exchange] = row
            case Answer():
                answered[event.exchange] = row
            case Arrival() if event.exchange in asked:
                arrows.append([asked[event.exchange], row, "request"])
            case Return() if event.exchange in answered:
                arrows.append([answered[event.exchange], row, "answer"])
            case Loss() if event.what == "request" and event.exchange in asked:
                arrows.append([asked[event.exchange], row, "lost request"])
            case Loss() if event.what == "answer" and event.exchange in answered:
                arrows.append([answered[event.exchange], row, "lost answer"])
    return sorted(arrows, key=lambda arrow: (arrow[0], arrow[1]))


def _spans(events: Sequence[Event], kind: type[Trouble] | type[NodeChange]) -> list[list[Any]]:
    """[row, row, what] from where it begins to where it is over."""
    spans: list[list[Any]] = []
    begun: tuple[int, str] | None = None
    for row, event in enumerate(events):
        if not isinstance(event, kind):
            continue
        is_over = event.is_over if isinstance(event, Trouble) else event.what == "started"
        if begun is not None and is_over:
            spans.append([begun[0], row, begun[1]])
        begun = None if is_over else begun or (row, event.what)
    return spans if begun is None else [*spans, [begun[0], len(events) - 1, begun[1]]]
