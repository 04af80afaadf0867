"""Readers in commit order are there in simulated runs, and what they are shown that they should not be is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest

from fencepost.client import Consumer, ConsumerRecord
from fencepost.client.commit_order.partition import PartitionInCommitOrder
from fencepost.client.commit_order.position import Position
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.cast import Window
from fencepost.simulation.checkers.transactions.committed_order import out_of_committed_order
from fencepost.simulation.checkers.transactions.shown_once import not_shown_once
from fencepost.simulation.checkers.transactions.torn_apart import torn_apart
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.inhabitants import ordered_readers
from fencepost.simulation.plans import Circumstances, Plan, draw
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_each_record_once_in_the_order_of_the_commits() -> None:
    assert out_of_committed_order({A: ["1", "2"], B: []}, {A: ["1", "2"]}) == []
    for shown in (["2", "1"], ["1"], ["1", "2", "2"], ["1", "1", "2"], ["1", "3", "2"]):
        assert len(out_of_committed_order({A: shown}, {A: ["1", "2"]})) == 1
    assert len(out_of_committed_order({A: [], B: ["1"]}, {A: ["1"]})) == 2


def test_a_transaction_is_shown_in_a_row_in_each_partition() -> None:
    assert torn_apart({A: ["p-0-0", "p-0-1", "p-1-0"], B: ["p-1-1", "p-0-2"]}) == []
    assert torn_apart({A: ["p-0-0", "q-0-0", "p-0-1"], B: []}) == ["p-0 is shown in several parts of t-0"]


def test_of_a_compacted_topic_what_is_left_is_shown_and_nothing_twice() -> None:
    assert not_shown_once({A: ["1", "2"], B: []}, {A: ["2"]}) == []
    assert not_shown_once({A: ["1"], B: []}, {A: ["2"]}) == ["2 of t-0 is never shown"]
    assert not_shown_once({A: ["1", "1"], B: []}, {}) == ["1 of t-0 is shown 2 times"]


PLAN = Plan(
    7,
    2,
    Circumstances(
        ordered=2,
        log={"segment_bytes": 2000},
        load=Load(transaction_timeout_ms=300, takeovers=0.05, most_records=40),
        troubles=(Trouble.KILLED, Trouble.POWER_LOST, Trouble.CONNECTIONS_CUT, Trouble.CLIENT_STANDS_STILL),
        between=0.2,
    ),
    {f"{kind}-{n}": Window() for kind in ("producer", "single") for n in range(2)},
)


ON_COMPACTED: Final = PLAN._replace(
    circumstances=PLAN.circumstances._replace(
        topic_settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "50"},
        load=PLAN.circumstances.load._replace(shape=Shape(keys=2)),
        settings={"log.cleaner.backoff.ms": 20},
    )
)


@pytest.mark.parametrize("plan", [PLAN, ON_COMPACTED])
def test_whatever_befalls_them_they_are_shown_all_once(plan: Plan) -> None:
    report = carry_out(plan)
    assert report.faults == []
    lives = {line.split()[1] for line in report.history if line.split()[1].startswith("ordered-")}
    assert len(lives) > 6
    assert sum(" has " in line for line in report.history) > 100


def delivered_only(position: Position) -> Position:
    """What is open is forgotten with the life of a reader."""
    return Position(position.delivered, position.delivered)


def start_only(position: Position) -> Position:
    """What was delivered behind an open transaction is delivered again."""
    return Position(position.start, position.start)


def without_inside(position: Position) -> Position:
    """What was delivered of a transaction is delivered again."""
    return Position(position.start, position.delivered)


@pytest.mark.parametrize("broken", [delivered_only, start_only, without_inside])
def test_a_reader_that_goes_on_from_elsewhere_is_found(
    broken: Callable[[Position], Position], monkeypatch: pytest.MonkeyPatch
) -> None:
    stands = PartitionInCommitOrder.position
    monkeypatch.setattr(PartitionInCommitOrder, "position", lambda self: broken(stands(self)))
    assert any(carry_out(PLAN._replace(seed=seed)).faults for seed in range(4))


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("plan", [PLAN, ON_COMPACTED])
def test_a_reader_that_leaves_records_out_or_is_shown_them_twice_is_found(
    plan: Plan, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = itertools.count(1)

    class Broken(Consumer):
        async def poll(self, timeout_ms: float = 1000, max_records: int = 500) -> list[ConsumerRecord]:
            found = await super().poll(timeout_ms, max_records)
            return [record for record in found for _ in range(1 if next(count) % 7 else times)]

    monkeypatch.setattr(ordered_readers, "Consumer", Broken)
    told = "is shown 2 times" if times else "is never shown"
    faults = carry_out(plan).faults
    assert any(fault.startswith("ordered-") for fault in faults)
    assert plan is PLAN or any(told in fault for fault in faults)


def test_they_are_drawn_where_nothing_goes_before_it_is_read() -> None:
    drawn: list[Any] = [draw(seed) for seed in range(200)]
    there = [each for each in drawn if each.ordered]
    assert 20 < len(there) < 120
    assert not any("retention.bytes" in each.topic_settings for each in there)
    assert not any(Trouble.RECORDS_DELETED in each.troubles for each in there)
