"""Records as readers are shown them, whole: on sights made by hand, and with one line of a client broken."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client import Consumer
from fencepost.client.records import ConsumerRecord
from fencepost.client.sending import Sending
from fencepost.protocol.types import Offset, TopicPartition
from fencepost.simulation import readers
from fencepost.simulation.cast import Window
from fencepost.simulation.checkers.transactions.changed import changed
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.sights import Sights
from fencepost.simulation.workload import Load

SHAPE = Shape(keys=3, largest_batch=1000)
LARGE = next(f"producer-0-{n}-0" for n in range(100) if SHAPE.headers_of(f"producer-0-{n}-0"))
IN_A_BATCH_OF_TWO = next(f"windowed-0-{n}-0" for n in range(100) if SHAPE.headers_of(f"windowed-0-{n}-0", 2))


def record(value: str = LARGE, offset: int = 5, **other: Any) -> ConsumerRecord:
    """As it was sent, or otherwise."""
    sent = ConsumerRecord(
        *("left", 0, Offset(offset), 1000),
        SHAPE.key_of(value),
        value.encode(),
        tuple(SHAPE.headers_of(value)),
    )
    return sent._replace(**other)


def seen(*records: ConsumerRecord) -> list[str]:
    sights = Sights(SHAPE)
    for each in records:
        sights.note(each)
    return changed(sights)


def test_what_everybody_is_shown_as_it_was_sent_is_well() -> None:
    together = record(IN_A_BATCH_OF_TWO, 7, headers=tuple(SHAPE.headers_of(IN_A_BATCH_OF_TWO, 2)))
    assert seen(record(), record(), together, together, record("last.left.0-0-0", 8, key=None, headers=())) == []


OTHERWISE: dict[str, dict[str, Any]] = {
    "no key": {"key": None},
    "another key": {"key": SHAPE.key_of("producer-9-9-0")},
    "no headers": {"headers": ()},
    "one header more": {"headers": (*SHAPE.headers_of(LARGE), ("more", b""))},
    "another header": {"headers": (("", b"x"),)},
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_a_record_that_is_not_as_it_was_sent_is_named(how: str) -> None:
    wrong = record(**OTHERWISE[how])
    assert seen(wrong, wrong) == [f"{LARGE} is shown with another key, or other headers, than it was sent with"]


@pytest.mark.parametrize("how", [*OTHERWISE, "another time"])
def test_one_that_is_shown_in_two_ways_is_named(how: str) -> None:
    told = seen(record(), record(**OTHERWISE.get(how, {"timestamp": 1001})))
    assert told == [f"left-0 5 is shown as {LARGE}, in two ways"]


def test_another_one_at_the_same_offset_is_named_unless_that_is_of_another_topic_of_the_name() -> None:
    assert seen(record(), record("single-1-0")) == [f"left-0 5 is shown as single-1-0, to somebody else as {LARGE}"]
    sights = Sights()
    for life in (1, 2):
        sights.note(record(f"reborn.{life}-0-1"), TopicPartition(f"reborn.{life}", 0))
    assert changed(sights) == []


PLAN = Plan(
    3,
    1,
    Circumstances(load=Load(shape=SHAPE, most_records=3), settings={"message.max.bytes": 1100}),
    {
        "producer-0": Window(),
        "single-0": Window(),
        "windowed-0": Window(),
        "reader-0": Window(),
        "onlooker-0": Window(),
    },
)


def test_nothing_is_said_of_a_run_in_which_all_is_well() -> None:
    report = carry_out(PLAN)
    assert report.faults == []
    assert len(report.outcomes.committed) > 20


@pytest.mark.parametrize("lost", ["key", "headers"])
def test_a_producer_that_leaves_something_out_is_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append: Any = Sending._append

    def without(*given: Any) -> Any:
        *rest, key, timestamp, headers = given
        return append(*rest, None if lost == "key" else key, timestamp, () if lost == "headers" else headers)

    monkeypatch.setattr(Sending, "_append", without)
    assert "is shown with another key, or other headers" in " ".join(carry_out(PLAN).faults)


def test_a_consumer_that_has_one_time_for_all_records_it_takes_together_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Careless(Consumer):
        async def poll(self, *given: Any, **options: Any) -> list[ConsumerRecord]:
            found = await super().poll(*given, **options)
            return [each._replace(timestamp=found[0].timestamp) for each in found]

    monkeypatch.setattr(readers, "Consumer", Careless)
    assert "in two ways" in " ".join(carry_out(PLAN).faults)
