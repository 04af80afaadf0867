"""A run of a plan with everything written down that happens in it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple

from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.history.events import Event, Failure, Run
from fencepost.simulation.history.operations import told
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.properties import property_of, time_of
from fencepost.simulation.world import World


class Recorded(NamedTuple):
    """The result of a run, and the events of its history."""

    report: Report
    events: list[Event]


def carry_out_recorded(plan: Plan, command: str) -> Recorded:
    """Run a plan and record its events; the run is the same as without.  `command`: what repeats it."""
    events: list[Event] = []
    with ExitStack() as stack:

        def watch(world: World) -> None:
            recorder = world.record()
            recorder.events = events
            stack.enter_context(told(recorder))

        report = carry_out(plan, watch)
    run = Run(plan.seed, round(plan.seconds * 1_000_000), command, tuple(_circumstances(plan.circumstances)))
    return Recorded(report, [run, *events, *_failures(report.faults, events)])


def _circumstances(given: Circumstances) -> Iterable[str]:
    for name, value in given._asdict().items():
        if isinstance(value, dict):
            yield from (f"{name}: {key if isinstance(key, str) else key.name}={each}" for key, each in value.items())
        elif name == "troubles":
            yield f"troubles={','.join(trouble.value for trouble in value)}"
        elif hasattr(value, "_asdict"):
            yield from (f"{name}: {key}={each}" for key, each in value._asdict().items())
        else:
            yield f"{name}={value}"


def _failures(faults: Iterable[str], events: list[Event]) -> Iterable[Failure]:
    end = next((event.time for event in reversed(events) if not isinstance(event, Run)), 0)
    for fault in faults:
        seen = time_of(fault)
        yield Failure(end if seen is None else round(seen * 1_000_000), property_of(fault), fault)
