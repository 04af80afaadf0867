"""What is written down of a run is what happened in it, and changes nothing of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest

from fencepost.client import Producer
from fencepost.protocol.types import Epoch, ProducerId
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Circumstances, Plan, carry_out, plan_of
from fencepost.simulation.history import events as history_events
from fencepost.simulation.history.events import (
    Answer,
    Append,
    Arrival,
    Batch,
    Durable,
    Event,
    Loss,
    NodeChange,
    Outcome,
    Request,
    RequestFault,
    Return,
    Run,
    Transition,
    Trouble,
)
from fencepost.simulation.history.story import tell
from fencepost.simulation.recorded_runs import Recorded, carry_out_recorded
from fencepost.simulation.request_faults import RequestFault as Fault
from fencepost.simulation.script import (
    BefallenCall,
    BefallenRequest,
    Call,
    CallFault,
    End,
    Happening,
    Script,
    Transaction,
    Write,
    lane,
)

E = TypeVar("E")
SEEDS = (10,)


def of(kind: type[E], events: Sequence[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture(scope="module", params=SEEDS)
def drawn(request: pytest.FixtureRequest) -> Recorded:
    return carry_out_recorded(plan_of(request.param, 0.5), "the command")


def test_a_run_is_the_same_when_it_is_written_down(drawn: Recorded) -> None:
    before = {name: Producer.__dict__[name] for name in ("commit_transaction", "close")}
    assert carry_out(plan_of(drawn.report.plan.seed, 0.5)).history == drawn.report.history
    assert before == {name: Producer.__dict__[name] for name in before}, "the clients are as they were"


def test_time_goes_on(drawn: Recorded) -> None:
    times = [event.time for event in drawn.events if not isinstance(event, Run)]
    assert times == sorted(times)
    assert [type(event) for event in drawn.events].count(Run) == 1


def test_every_exchange_takes_its_steps_in_order(drawn: Recorded) -> None:
    steps: dict[int, list[str]] = {}
    for event in drawn.events:
        if isinstance(event, Request | Arrival | Answer | Return | Loss):
            steps.setdefault(event.exchange, []).append(type(event).__name__)
    assert len(steps) > 100
    whole = ["Request", "Arrival", "Answer", "Return"]
    for number, taken in steps.items():
        without = [step for step in taken if step != "Loss"]
        assert without == whole[: len(without)], f"exchange {number}"
        assert taken.count("Loss") <= 1 and not ("Loss" in taken and "Return" in taken), f"exchange {number}"
    assert len({len(taken) for taken in steps.values()}) > 1, "some are whole, some are not"


def test_what_was_committed_to_the_producers_stands_there(drawn: Recorded) -> None:
    """Each record of a committed transaction was sent, was appended, and the coordinator decided on the commit."""
    appended = Counter(value for event in of(Append, drawn.events) for value in event.batch.values)
    asked = {value for event in of(Request, drawn.events) for batch in event.batches for value in batch.values}
    outcomes = drawn.report.outcomes
    committed = [record.value for records in outcomes.committed.values() for record in records]
    assert len(committed) > 10
    assert [value for value in committed if not appended[value] or value not in asked] == []
    decided = {event.transactional_id for event in of(Transition, drawn.events) if event.after == "PrepareCommit"}
    assert {tag.rpartition("-")[0] for tag in outcomes.committed if tag.startswith("producer-")} <= decided


def test_every_sentence_has_a_lane(drawn: Recorded) -> None:
    told = list(tell(drawn.events))
    assert len(told) == len(drawn.events)
    assert {"run", "node", "coordinator", "disk", "left-0"} <= {each.lane for each in told}
    assert all(each.text for each in told)


def given(
    *transactions: Transaction,
    requests: tuple[BefallenRequest, ...] = (),
    troubles: tuple[Happening, ...] = (),
) -> list[Event]:
    script = Script(troubles, requests, transactions={"producer-0": transactions})
    plan = Plan(3, 0.5, Circumstances(), {"producer-0": Window()}, script)
    return carry_out_recorded(plan, "").events


ONE = Transaction(0, 0.1, (Write("left", 1),))


def test_one_transaction_is_written_down_from_its_beginning_to_its_end() -> None:
    events = given(ONE)
    batch = Batch("left-1", ProducerId(0), Epoch(0), 0, 1, True, ("producer-0-0-0",))
    (produce,) = [event for event in of(Request, events) if batch in event.batches]
    assert (lane(produce.client), produce.transactional_id, produce.batches) == ("producer-0", "producer-0", (batch,))
    data, marker, *_ = [event for event in of(Append, events) if event.batch.partition == "left-1"]
    assert (data.batch, data.base_offset, data.marker) == (batch, 0, "")
    assert (marker.base_offset, marker.marker, marker.batch.producer_epoch) == (1, "COMMIT", 1)
    (answer,) = [event for event in of(Answer, events) if event.exchange == produce.exchange]
    assert (answer.errors, answer.offsets) == ((), ("left-1: base_offset 0",))
    durable = max(event.lsn for event in of(Durable, events[: events.index(answer)]))
    assert durable >= data.lsn, "it is answered when it is durable"
    changes = [(event.before, event.after) for event in of(Transition, events)]
    assert changes[:4] == [
        ("", "Empty"),
        ("Empty", "Ongoing"),
        ("Ongoing", "PrepareCommit"),
        ("PrepareCommit", "CompleteCommit"),
    ]
    names = {event.call: event.operation for event in of(history_events.Call, events)}
    ended = [names[event.call] for event in of(Outcome, events) if not event.error]
    assert ended[:3] == ["init_transactions()", "begin_transaction()", "commit_transaction()"]


@pytest.mark.parametrize(
    ("fault", "lost", "is_appended"),
    [
        (Fault.LOST, "request", False),
        (Fault.HELD_BACK, "request", True),
        (Fault.ANSWER_LOST, "unanswered", True),
        (Fault.LATE, None, True),
    ],
)
def test_what_befalls_a_request_is_seen(fault: Fault, lost: str | None, is_appended: bool) -> None:
    late = 0.05 if fault in (Fault.HELD_BACK, Fault.LATE) else 0
    events = given(ONE, requests=(BefallenRequest(0.1, "producer-0", 0, fault, late),))
    (befallen,) = of(RequestFault, events)
    assert befallen.what == fault.value
    losses = [event.what for event in of(Loss, events) if event.exchange == befallen.exchange]
    assert losses == ([] if lost is None else [lost])
    arrived = [event for event in of(Arrival, events) if event.exchange == befallen.exchange]
    assert bool(arrived) is is_appended


def test_what_befalls_a_call_among_nodes_is_seen() -> None:
    script = Script(calls=(BefallenCall(0.1, Call.MARKER, CallFault.LOST),), transactions={"producer-0": (ONE,)})
    plan = Plan(3, 0.5, Circumstances(), {"producer-0": Window()}, script)
    (befallen,) = of(history_events.CallFault, carry_out_recorded(plan, "").events)
    assert (befallen.call, befallen.what, befallen.about) == (
        "marker",
        "lost",
        "producer_id=0 epoch=1 commit=True left-1",
    )


def test_trouble_and_the_lives_of_the_node_are_seen() -> None:
    events = given(ONE, troubles=(Happening(0.05, "POWER_LOST", 0),))
    assert [(event.what, event.is_over) for event in of(Trouble, events)] == [
        ("power lost", False),
        ("power lost", True),
    ]
    lives = [(event.what, event.life) for event in of(NodeChange, events)]
    assert lives == [("started", 1), ("power lost", 1), ("started", 2), ("stopped", 2)]


def test_a_call_that_raises_says_what() -> None:
    events = given(ONE._replace(end=End.IS_REPLACED), ONE._replace(number=1, time=0.2))
    errors = [event.error for event in of(Outcome, events) if event.error]
    assert any("taken over" in error for error in errors), errors
