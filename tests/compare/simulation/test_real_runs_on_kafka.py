"""The workload and the checkers of the simulation on Apache Kafka: all that they find comes from one thing.

Apache Kafka does not compare the epoch of an InitProducerId while a transaction is open, and aborts that (facts §4.2).
An older instance that asks what became of it so ends the transaction of its successor, which then takes it for a
time-out or, below transaction.version 2, for fencing; there a producer's own request does it as well, when it comes
late, after its repetition.  Without zombies and late requests nothing is found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from benchmarks.apache_kafka import apache_kafka
from tests.compare.nodes.two_nodes import skipped_without_kafka

from fencepost.runtime import Runtime
from fencepost.simulation.properties import property_of
from fencepost.simulation.real_runs import RealPlan, Report, real_plan_of, work_on
from fencepost.simulation.script import RequestFault

pytestmark = pytest.mark.compare

SECONDS = 3.0
SEEDS = range(4)
UNHARMED = {RequestFault.LOST: 0.05, RequestFault.ANSWER_LOST: 0.05}
#: What a successor is told, by the level of transaction.version.
KNOWN = {
    2: {"_ took _ ms, and is told that its time was up"},
    1: {property_of("producer-0, whom nobody had replaced, is told: another producer has taken over")},
}


@pytest.fixture(scope="module", params=[2, 1])
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    logging.disable(logging.CRITICAL)
    with skipped_without_kafka(), apache_kafka(features={"transaction.version": request.param}) as (address, _):
        yield request.param, address
    logging.disable(logging.NOTSET)


def carry_out(plan: RealPlan, address: str) -> Report:
    return asyncio.run(work_on(plan, Runtime.real(), address, list[str]().append))


@pytest.mark.parametrize("seed", SEEDS)
def test_without_zombies_and_late_requests_no_promise_is_broken(kafka: tuple[int, str], seed: int) -> None:
    level, address = kafka
    plan = real_plan_of(seed, SECONDS)
    plan = plan._replace(load=plan.load._replace(takeovers=0), request_faults=UNHARMED)
    report = carry_out(plan, address)
    assert report.found.level == level
    assert report.faults == []
    assert len(report.outcomes.committed) > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_with_them_successors_lose_transactions_and_nothing_else_is_broken(kafka: tuple[int, str], seed: int) -> None:
    level, address = kafka
    report = carry_out(real_plan_of(seed, SECONDS), address)
    assert {property_of(fault) for fault in report.faults} <= KNOWN[level]
    assert len(report.outcomes.committed) > 20
