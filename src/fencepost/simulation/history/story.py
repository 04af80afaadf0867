"""Each event of a history as a sentence, and where it happens, for the terminal and the page.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fencepost.protocol.types import Epoch, ProducerId
from fencepost.simulation.history.events import (
    Answer,
    Append,
    Arrival,
    Batch,
    Call,
    CallFault,
    Durable,
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
from fencepost.simulation.script import lane

NODE: Final = "node"
COORDINATOR: Final = "coordinator"
DISK: Final = "disk"
RUN: Final = "run"
_LOST: Final = {
    "request": "the request is lost",
    "answer": "the answer is lost",
    "unanswered": "the connection is lost before any answer",
}


class Sentence(NamedTuple):
    """An event as a sentence, with its time in microseconds and its lane."""

    time: int
    lane: str
    """Who it happens to: a client, NODE, COORDINATOR, a partition, DISK or RUN."""
    text: str


def tell(events: Iterable[Event]) -> Iterator[Sentence]:
    """A sentence for each event, in order.  # and a number tell which exchange or call it belongs to."""
    asked: dict[int, Request] = {}
    called: dict[int, Call] = {}
    clients: dict[str, None] = {}
    for event in events:
        match event:
            case Request():
                asked[event.exchange] = event
                clients[lane(event.client)] = None
            case Call():
                called[event.call] = event
        sentence = _sentence(event, asked, called)
        whose = lane(sentence.text.partition(" ")[0])
        yield sentence._replace(lane=whose) if isinstance(event, Note) and whose in clients else sentence


def _sentence(event: Event, asked: dict[int, Request], called: dict[int, Call]) -> Sentence:
    match event:
        case Run():
            return Sentence(0, RUN, f"seed {event.seed}: {event.command}")
        case RequestFault() | Arrival() | Answer() | Return() | Loss():
            return _of_exchange(event, asked.get(event.exchange))
        case Request():
            return Sentence(event.time, lane(event.client), f"{event.api} #{event.exchange} {_asks(event)}".rstrip())
        case Append():
            return Sentence(event.time, event.batch.partition, _appended(event))
        case Durable():
            return Sentence(event.time, DISK, f"durable up to lsn {event.lsn}")
        case Transition():
            return Sentence(event.time, COORDINATOR, _transition(event))
        case Call():
            return Sentence(event.time, lane(event.client), f"{event.operation} is called")
        case Outcome():
            call = called.get(event.call)
            name = "a call" if call is None else call.operation
            how = f"raises {event.error}" if event.error else "returns"
            return Sentence(event.time, RUN if call is None else lane(call.client), f"{name} {how}")
        case NodeChange():
            return Sentence(event.time, NODE, f"{event.what}, life {event.life}")
        case Trouble():
            return Sentence(event.time, RUN, f"{event.what}: {'over' if event.is_over else 'begins'}")
        case CallFault():
            return Sentence(event.time, COORDINATOR, f"{event.call} {event.what}: {event.about}")
        case Note():
            return Sentence(event.time, RUN, event.text)
        case Failure():
            return Sentence(event.time, RUN, f"BROKEN {event.failed}: {event.what}")


def _of_exchange(event: RequestFault | Arrival | Answer | Return | Loss, request: Request | None) -> Sentence:
    name = f"{'' if request is None else request.api} #{event.exchange}".strip()
    client = RUN if request is None else lane(request.client)
    match event:
        case RequestFault():
            return Sentence(event.time, client, f"{name}: {event.what}")
        case Arrival():
            return Sentence(event.time, NODE, f"{name} arrives")
        case Answer():
            return Sentence(event.time, NODE, f"{name} is answered {_answers(event)}".rstrip())
        case Return():
            return Sentence(event.time, client, f"{name}: the answer arrives")
        case Loss():
            return Sentence(event.time, client, f"{name}: {_LOST.get(event.what, event.what)}")


def _asks(event: Request) -> str:
    words = [f"transactional_id={event.transactional_id}"] if event.transactional_id else []
    words += _producer(event.producer_id, event.producer_epoch)
    words += [f"group={event.group}"] if event.group else []
    words += [_batch(batch) for batch in event.batches] or list(event.partitions)
    return " ".join([*words, event.detail]).rstrip()


def _answers(event: Answer) -> str:
    words = [*event.errors, *_producer(event.producer_id, event.producer_epoch), *event.offsets]
    return ", ".join([*words, *map(_batch, event.batches), *([event.detail] if event.detail else [])]) or "well"


def _producer(producer_id: ProducerId, epoch: Epoch) -> list[str]:
    return [f"producer_id={producer_id} epoch={epoch}"] if producer_id >= 0 else []


def _batch(batch: Batch) -> str:
    words = [batch.partition, *_producer(batch.producer_id, batch.producer_epoch)]
    words += [f"sequence={batch.base_sequence}"] if batch.base_sequence >= 0 else []
    more = ", ..." if batch.values and batch.records > len(batch.values) else ""
    return " ".join([*words, f"records={batch.records} ({', '.join(batch.values)}{more})".removesuffix(" ()")])


def _appended(event: Append) -> str:
    batch, offsets = event.batch, f"{event.base_offset}"
    if event.last_offset > event.base_offset:
        offsets += f"-{event.last_offset}"
    what = _batch(batch).removeprefix(batch.partition).strip()
    if event.marker:
        what = f"{event.marker} marker {' '.join(_producer(batch.producer_id, batch.producer_epoch))}"
    return f"offset {offsets}: {what} (lsn {event.lsn})"


def _transition(event: Transition) -> str:
    where = f" {', '.join(event.partitions)}" if event.partitions else ""
    producer = " ".join(_producer(event.producer_id, event.producer_epoch))
    change = f"{event.before or 'nothing'} -> {event.after}"
    return f"transactional_id={event.transactional_id} {change} {producer}{where} (lsn {event.lsn})"
