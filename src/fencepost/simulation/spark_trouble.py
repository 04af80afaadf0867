"""The faults of the tasks of a write, by probability, and the time limits of those that write."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.simulation.processes import Process
from fencepost.simulation.world import ADDRESS


class TaskTrouble(NamedTuple):
    """The probability, 0 to 1, of each thing that befalls an attempt."""

    stalls: float = 0
    """It stands still for a while, and is given up for another one."""
    twins: float = 0
    """Another attempt runs at the same time."""
    deaths: float = 0
    """It dies on the way, and another one is started."""
    lingering: float = 0
    """It goes on although its driver failed or was killed."""


class Patience(NamedTuple):
    """Time limits of the clients, in milliseconds."""

    request_timeout_ms: int = 400
    patience_ms: int = 3000
    transaction_timeout_ms: int = 60_000


def cluster_of(process: Process, patience: Patience, chance: Random) -> Cluster:
    """The Cluster by which the attempt in this process reaches the node, with the time-outs of `patience`."""
    return Cluster(
        ADDRESS,
        client_id=process.name,
        runtime=process.runtime(),
        # One that stands still may have time for more than its driver has.
        request_timeout_ms=chance.choice((patience.request_timeout_ms, 30_000)),
        patience_ms=patience.patience_ms,
    )
