"""Plans of worlds with few in them, for tests that look at those alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from fencepost.simulation.group_load import Group
from fencepost.simulation.inhabitants.groups import AUDIT, LEDGER, TRANSFORMERS, GroupsPlan
from fencepost.simulation.plans import Circumstances, Plan, draw_applications
from fencepost.simulation.script import CallFault, RequestFault
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load

#: Time-outs are looked for often, since much is late.
IMPATIENT: Final[Mapping[str, object]] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
GROUPS: Final[Mapping[str, object]] = {
    **IMPATIENT,
    "group.min.session.timeout.ms": 100,
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 1000,
}
LOAD: Final = Load(
    takeovers=0.05, transaction_timeout_ms=1500, request_timeout_ms=400, delivery_timeout_ms=700, pause=0.05
)
CRASHES: Final = (Trouble.KILLED, Trouble.POWER_LOST)
CHANGES: Final = (Trouble.TOPIC_GROWS, Trouble.TOPIC_MADE_ANEW, Trouble.RECORDS_DELETED)

World = Callable[[int], Plan]
"""The plan for a seed."""


def groups(
    *,
    incidents: int,
    groups: tuple[Group, ...] = (LEDGER, AUDIT),
    transformers: tuple[Group, ...] = (TRANSFORMERS,),
    loops: tuple[Group, ...] = (),
    crashes: float = 0,
    topics_change: float = 0,
    request_faults: Mapping[RequestFault, float] | None = None,
    settings: Mapping[str, object] = {},
    load: Load = LOAD,
    **more: Any,
) -> World:
    """Groups of consumers, and producers for them.

    `incidents`: one every half a second; `crashes`, `topics_change`: how many of them are something like that.
    """
    share = crashes + topics_change
    given = Circumstances(
        settings={**GROUPS, **settings},
        producers=2,
        load=load,
        groups=GroupsPlan(groups, transformers, loops, requests_are_late=bool(request_faults)),
        troubles=CRASHES * bool(crashes) + CHANGES * bool(topics_change),
        between=0.5 / share if share else 1,
        request_faults=request_faults or {},
        **more,
    )
    return lambda seed: Plan(seed, incidents * 0.5, given, given.clients)


def applications(seed: int, level: int, changes: float) -> Plan:
    """Applications that write micro-batches; some kinds of trouble come often, others not at all."""
    chance = Random(f"{seed}/trouble")

    def often(most: float) -> float:
        return chance.choice((0, most / 4, most))

    there = draw_applications(chance, seed)._replace(names=("a", "b"))
    if chance.random() < 0.3:
        # Less than many a batch takes.
        there = there._replace(patience=there.patience._replace(transaction_timeout_ms=120))
    crashes, apis = often(0.4), chance.choice((None, None, (26,)))
    given = Circumstances(
        settings=IMPATIENT,
        level=level,
        levels=(1, 2),
        applications=there,
        troubles=CRASHES * bool(crashes) + (Trouble.LEVEL_CHANGES,) * bool(changes),
        between=0.15 / (crashes + changes) if crashes + changes else 1,
        request_faults={fault: often(0.2 if apis else 0.04) for fault in RequestFault},
        apis=apis,
        call_faults={
            fault: often(0.04) for fault in CallFault if fault is not CallFault.REPEATED or (level == 2 and not changes)
        },
    )
    return Plan(seed, 3, given, {})
