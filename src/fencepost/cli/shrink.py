"""`fencepost simulate --shrink`: the shortest plan that fails as a seed does, as a regression test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from fencepost.cli import Refused
from fencepost.simulation.drawn_runs import Plan, carry_out, is_sound
from fencepost.simulation.plan_as_test import as_test
from fencepost.simulation.properties import property_of
from fencepost.simulation.script import Script
from fencepost.simulation.shrinking import Shrinker


class Shrunk(NamedTuple):
    """The shortest plan that was found, and a test of it."""

    plan: Plan
    source: str
    """The source of a test that fails as long as the plan breaks its promise."""


def shrink(plan: Plan, command: str, tries: int) -> int:
    """Shrink a plan and print its test; exit code 1, for a promise is broken.  Raises Refused if none is.

    `tries`: how many plans are tried, at most.
    """
    report = carry_out(plan)
    if not report.faults:
        raise Refused(f"--shrink: with seed {plan.seed} no promise is broken, so there is nothing to shrink")
    print(shrunk(report.plan, report.faults[0], command, _tell, tries).source, end="")
    return 1


def shrunk(plan: Plan, fault: str, command: str, tell: Callable[[str], None], most: int) -> Shrunk:
    """The shortest plan that breaks the same promise.  `plan`: with its script; `fault`: the checker's sentence.

    `most`: how many plans are tried, at most.  `tell` is called with lines that say how far it is.
    """
    failed = property_of(fault)
    said = [fault]

    def fails(candidate: Plan) -> Plan | None:
        if not is_sound(candidate):
            return None
        report = carry_out(candidate)
        found = [each for each in report.faults if property_of(each) == failed]
        said[:] = found[:1] or said
        return report.plan if found else None

    tell(f"{failed}: {size_of(plan)}")
    shrinker = Shrinker(plan, fails, lambda found, left: tell(f"{size_of(found)}; {left} tries left"), most)
    try:
        shrinker.shrink()
    except KeyboardInterrupt:
        tell("interrupted: this is the shortest plan so far")
    return Shrunk(shrinker.value, as_test(shrinker.value, failed, said[0], command))


def size_of(plan: Plan) -> str:
    """The numbers of clients, faults, transactions, records and settings of a plan, and its seconds, in words."""
    script, given = plan.script or Script(), plan.circumstances
    transactions = [each for those in script.transactions.values() for each in those]
    faults = len(script.troubles) + len(script.requests) + len(script.calls)
    settings = len(given.settings) + len(given.log) + len(given.limits)
    return (
        f"{len(plan.clients)} clients, {faults} faults, {len(transactions)} transactions, "
        f"{sum(len(each.records) for each in transactions)} records, {settings} settings, {plan.seconds:g} s"
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
