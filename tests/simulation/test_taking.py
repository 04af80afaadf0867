"""Records that are taken a partition at a time, of topics that fit a pattern, and handed over many in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.simulation.narrow_worlds import groups

from fencepost.client.bulk import filled
from fencepost.client.partition_batch import PartitionBatch
from fencepost.client.subscription import Subscription
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.inhabitants.groups import AUDIT, KINDS, LEDGER, TRANSFORMERS, as_usual
from fencepost.simulation.plans import Circumstances, Plan, plan_of
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.request_faults import RequestFault
from fencepost.simulation.script import End, Transaction, Write
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load, Sent, sent_together

SOME: Any = dict.fromkeys(RequestFault, 0.02)
BY_BATCHES = groups(
    incidents=8,
    request_faults=SOME,
    crashes=0.2,
    groups=(LEDGER._replace(batches=True), AUDIT._replace(batches=True)),
    transformers=(TRANSFORMERS._replace(batches=True),),
    loops=(),
)
BY_PATTERN = groups(
    incidents=10,
    request_faults=SOME,
    crashes=0.2,
    topics_change=0.6,
    groups=(LEDGER._replace(by_pattern=True), AUDIT._replace(by_pattern=True)),
    transformers=(),
    loops=(),
)
CLIENTS = {"producer-0": Window(), "impatient-0": Window(), "reader-0": Window()}


def together(seed: int, shape: Shape = Shape()) -> Report:  # noqa: B008
    given = Circumstances(
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100},
        load=Load(transaction_timeout_ms=1500, most_records=30, together=0.7, batches=True, shape=shape),
        troubles=(Trouble.KILLED, Trouble.POWER_LOST, Trouble.CONNECTIONS_CUT),
        between=0.2,
        request_faults=SOME,
    )
    return carry_out(Plan(seed, 2, given, CLIENTS))


@pytest.mark.parametrize("world", [BY_BATCHES, BY_PATTERN])
def test_no_promise_is_broken_to_groups(world: Any) -> None:
    for seed in range(2):
        assert carry_out(world(seed)).faults == [], f"seed {seed}"


@pytest.mark.parametrize("shape", [Shape(), Shape(keys=2), Shape(largest_batch=1000)])
def test_no_promise_is_broken_to_who_hands_over_many(shape: Shape) -> None:
    reports = [together(seed, shape) for seed in (1, 2)]
    assert [report.faults for report in reports] == [[], []]
    assert min(len(report.outcomes.committed) for report in reports) > 10


def test_a_batch_that_is_said_to_end_later_than_it_does_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PartitionBatch.__init__

    def ends_later(self: PartitionBatch, at: Any, position: int, next_offset: Any, fetched: Any) -> None:
        made(self, at, position, next_offset + 1 if isinstance(next_offset, int) else next_offset, fetched)

    monkeypatch.setattr(PartitionBatch, "__init__", ends_later)
    assert any(carry_out(BY_BATCHES(seed)).faults for seed in range(2))


def test_a_topic_that_fits_the_pattern_and_is_not_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Subscription.has_changed

    def leaves_one_out(self: Any) -> bool:
        changed, self.topics = looked(self), self.topics[:2]
        return changed

    monkeypatch.setattr(Subscription, "has_changed", leaves_one_out)
    assert any(carry_out(BY_PATTERN(seed)).faults for seed in range(2))


def test_records_of_one_call_that_are_written_in_another_order_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(keys: Any, values: Any, *rest: Any) -> Any:
        return filled(keys, [*values][::-1], *rest)

    monkeypatch.setattr("fencepost.client.handing_over.filled", backwards)
    assert any(together(seed).faults for seed in (1, 2))


def test_the_records_of_a_partition_go_together_but_those_with_headers() -> None:
    records = [Write("a", 0, 0), Write("b", 0, 0), Write("a", 0, 0), Write("a", 1, 0)]
    planned = Transaction(7, 0, tuple(records), End.COMMITS, position=False)

    def calls(shape: Shape) -> Sequence[Sequence[str]]:
        return [[each.value for each in call] for call in sent_together("p-7", planned, shape)]

    assert calls(Shape()) == [["p-7-0", "p-7-2"], ["p-7-3"], ["p-7-1"]]
    assert sent_together("p-7", planned, Shape())[0][0] == Sent("a", 0, "p-7-0")
    large = Shape(largest_batch=10_000)
    values = [f"p-7-{n}" for n in range(4)]
    alone = [value for value in values if large.headers_of(value)]
    assert all(call == [call[0]] for call in calls(large) if call[0] in alone)


def test_some_seeds_do_each_of_it() -> None:
    drawn = [plan_of(seed, 1).circumstances for seed in range(100)]
    assert 20 < sum(bool(each.load.together) for each in drawn) < 80
    assert 20 < sum(each.load.batches for each in drawn) < 60
    there = [group for each in drawn if each.groups for group in (*each.groups.groups, *each.groups.transformers)]
    assert {(group.batches, group.by_pattern) for group in there} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert {as_usual(group) for group in there} <= KINDS
