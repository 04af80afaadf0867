"""A run of the workload on a cluster that runs somewhere: the broken promises come out.

Producers, readers and checkers are those of the simulation; the cluster, its disks and the time are real.  Nothing of
the cluster is changed but what the run makes itself, under names that nobody else has.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, NamedTuple

from fencepost.client import Admin, ClientError
from fencepost.client.addresses import addresses_of
from fencepost.client.opening import open_connection
from fencepost.protocol.messages import MetadataRequest
from fencepost.runtime import Runtime
from fencepost.simulation.cast import Stage, Window
from fencepost.simulation.inhabitants.producers import Producers
from fencepost.simulation.real_world import RealProcess, RealWorld
from fencepost.simulation.script import RequestFault, drawn_shares
from fencepost.simulation.sights import Sights
from fencepost.simulation.surroundings import TOPICS, Cluster
from fencepost.simulation.workload import Load, Outcomes

#: Milliseconds in which a cluster says who it is.
_GREETING_MS: Final = 5000
_FEATURE: Final = "transaction.version"
_CREATE_TOPICS: Final = 19
#: Seconds in which any broker has ended a transaction whose time is up, and everything else is done.
_LOOKS_AGAIN: Final = 30
#: Those who send raw requests, and so ask one broker for everything.
_RAW: Final = ("pipelined", "windowed", "older")
#: What the topics, transactional ids and groups of a run begin with.
_OURS: Final = "fencepost.check"


class RealPlan(NamedTuple):
    """A run on a real cluster, as drawn from a seed."""

    seed: int
    seconds: float
    """For how long requests go wrong."""
    clients: Mapping[str, int]
    """The number of clients of each kind (cast.KINDS)."""
    load: Load
    request_faults: Mapping[RequestFault, float]


class Found(NamedTuple):
    """A cluster, as it describes itself to a client."""

    host: str
    port: int
    """The port of a broker of the cluster."""
    brokers: int
    level: int
    """The finalized level of transaction.version."""
    makes_topics: bool
    """Whether topics are made when it is asked to; otherwise they come into being when they are written to."""


class Report(NamedTuple):
    """The result of a run on a real cluster."""

    plan: RealPlan
    found: Found
    outcomes: Outcomes
    befallen: Counter[str]
    """The number of requests that each fault befell."""
    faults: list[str]
    """The broken promises."""
    reads: int
    """How often somebody read while others wrote."""


def real_plan_of(seed: int, seconds: float) -> RealPlan:
    """The plan of a seed."""
    chance = Random(f"{seed}/circumstances")
    clients = {
        "producer": chance.choice((2, 3)),
        "single": chance.choice((0, 1)),
        "pipelined": chance.choice((0, 1)),
        "windowed": chance.choice((1, 2)),
        "older": chance.choice((0, 1)),
        "reader": chance.choice((1, 2)),
        "onlooker": 1,
        "impatient": Random(f"{seed}/impatient").choice((0, 1)),
    }
    load = Load(
        positions=chance.choice((0.3, 0.8)),
        takeovers=chance.choice((0.05, 0.2)),
        transaction_timeout_ms=chance.choice((5000, 20_000)),
        request_timeout_ms=chance.choice((1000, 5000)),
        delivery_timeout_ms=chance.choice((5000, 20_000)),
        pause=chance.choice((0.005, 0.02)),
        batch_bytes=chance.choice((1, 100, 256 * 1024)),
        max_in_flight=chance.choice((1, 5, 5)),
        most_records=chance.choice((6, 30)),
        impatience_ms=2000,
    )
    return RealPlan(seed, seconds, clients, load, drawn_shares(chance, RequestFault, (0.01, 0.03, 0.1)))


async def look(outside: Runtime, bootstrap_servers: str) -> Found:
    """The cluster behind an address.  Raises ValueError for what is no address, ClientError if no broker answers."""
    (*earlier, last) = addresses_of(bootstrap_servers)
    for host, port in earlier:
        with suppress(ClientError):
            return await _look(outside, host, port)
    return await _look(outside, *last)


async def _look(outside: Runtime, host: str, port: int) -> Found:
    connection = await open_connection(outside.network, host, port, _OURS, _GREETING_MS)
    try:
        request = MetadataRequest(topics=[])
        known = await connection.request(request, connection.version_of(MetadataRequest))
        level = connection.features.levels.get(_FEATURE, 0)
        makes_topics = _CREATE_TOPICS in connection.ranges
    finally:
        connection.close()
    if len(known.brokers) == 1:
        host, port = known.brokers[0].host, known.brokers[0].port
    return Found(host, port, len(known.brokers), level, makes_topics)


async def work_on(plan: RealPlan, outside: Runtime, bootstrap_servers: str, tell: Callable[[str], None]) -> Report:
    """Work on the cluster of these brokers as the plan says, and judge it; `tell`: is given the story, line by line.

    Raises ValueError for what is no address, ClientError if the cluster cannot be worked on.
    """
    found = await look(outside, bootstrap_servers)
    prefix = f"{_OURS}.{outside.nonces.getrandbits(32):08x}."
    topics = {prefix + topic: count for topic, count in TOPICS.items()}
    cluster = Cluster(found.host, found.port, topics, prefix)
    world = RealWorld(outside, cluster, plan.seed, plan.request_faults, _patience(plan.load), tell)
    stage = Stage(world, partial(RealProcess, world), Outcomes(sights=Sights(plan.load.shape)), plan.load)
    kinds = {kind: count for kind, count in plan.clients.items() if found.brokers == 1 or kind not in _RAW}
    names = [f"{kind}-{n}" for kind, count in kinds.items() for n in range(count)]
    world.note(f"brokers: {found.brokers}, {_FEATURE} {found.level}; {', '.join(names)} write to {', '.join(topics)}")
    producers = Producers(stage, dict.fromkeys(names, Window()))
    try:
        if found.makes_topics:
            await producers.prepare()
        faults = await _run(producers, world, plan.seconds)
    finally:
        await _leave_nothing(world, names)
    reads = len(stage.passes) + len(stage.uncommitted)
    return Report(plan, found, stage.outcomes, world.befallen, faults, reads)


def _patience(load: Load) -> float:
    """Seconds in which everything ends: the time-out of transactions, and until a broker looks for those past it."""
    return load.transaction_timeout_ms / 1000 + _LOOKS_AGAIN


async def _run(producers: Producers, world: RealWorld, seconds: float) -> list[str]:
    producers.begin()
    await asyncio.sleep(seconds)
    world.calm.set()
    world.note("no more faults")
    faults = await producers.rest()
    try:
        return faults or await producers.judge()
    except (AssertionError, ClientError) as error:
        return [str(error)]


async def _leave_nothing(world: RealWorld, names: list[str]) -> None:
    """Delete the topics and groups of the run; what the cluster keeps stays under its name."""
    # A request that comes after that has a topic made again, where topics are made for whoever asks for them.
    await world.dismiss(_GREETING_MS / 1000)
    await world.arrived()
    cluster = world.cluster
    async with Admin(cluster.address, runtime=world.runtime("admin"), max_block_ms=_GREETING_MS) as admin:
        for leave in (
            partial(admin.delete_topics, cluster.topics),
            partial(admin.delete_groups, [cluster.name_of(name) for name in names]),
        ):
            try:
                await leave()
            except ClientError as error:
                world.note(f"something stays: {error}")
