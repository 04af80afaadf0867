"""What may have become of a transactional id before its node ended, as tables.

A situation is a list of steps; the newest protocol (transaction.version 2: the leader adds partitions, EndTxn bumps
the epoch) has the same steps, of other versions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.compare.coordinator.timeouts import OF_VERSION_2, VERSIONS

#: situation -> its steps
SITUATIONS = {
    "never used": (),
    "begun": ("init",),
    "begun thrice": ("init", "init", "init"),
    "begun with its pair": ("init", "init with its pair"),
    "open without partitions": ("init", "add nothing"),
    "open without data": ("init", "init", "add a"),
    "open with data": ("init", "init", "add a", "write a"),
    "open with data in two partitions": ("init", "add a", "add b", "write a", "write a", "write b"),
    "open with some data": ("init", "add a", "add b", "write b"),
    "open with a group": ("init", "init", "add offsets"),
    "open with offsets": ("init", "init", "add offsets", "offset"),
    "open with data and offsets": ("init", "add a", "write a", "add offsets", "offset"),
    "open after a commit": ("init", "add a", "write a", "commit", "add a", "write a"),
    "open after an abort": ("init", "add a", "write a", "abort", "add b", "write b"),
    "open in a deleted topic": ("init", "add a", "write a", "add gone", "write gone"),
    "open in a deleted topic only": ("init", "add gone", "write gone"),
    "committed": ("init", "init", "add a", "write a", "commit"),
    "committed twice": ("init", "add a", "write a", "commit", "add a", "write a", "commit"),
    "committed offsets": ("init", "add offsets", "offset", "commit"),
    "committed in a deleted topic": ("init", "add gone", "write gone", "commit"),
    "aborted": ("init", "init", "add a", "write a", "abort"),
    "aborted without data": ("init", "add a", "abort"),
    "aborted offsets": ("init", "add offsets", "offset", "abort"),
    "aborted by the next instance": ("init", "add a", "write a", "init"),
    "aborted by its own call": ("init", "add a", "write a", "init with its pair"),
    "begun again after a commit": ("init", "add a", "write a", "commit", "init"),
    "begun with its pair after a commit": ("init", "add a", "write a", "commit", "init with its pair"),
    "timed out": ("init", "init briefly", "add late", "write late", "wait"),
    "timed out without data": ("init briefly", "add late", "wait"),
    "timed out, begun again": ("init briefly", "add late", "write late", "wait", "init"),
    "timed out, begun with its pair": ("init briefly", "add late", "write late", "wait", "init with its pair"),
    "timed out while the node was down": ("init", "init for a while", "add late", "write late"),
}
#: what is asked after the restart -> its versions
REQUESTS = {**VERSIONS, "produce on": (3, 10, 11, 12), "produce beyond": (3, 10, 11, 12)}
#: Milliseconds until a transaction times out.  Even the shortest time is longer than one step and the look at both
#: nodes after it take on a busy machine: otherwise one node has aborted by then, and the other one not yet.
BRIEFLY, FOR_A_WHILE, LONG = 3_000, 20_000, 900_000
RELATIONS = {"its pair": 0, "the epoch after": 1, "the epoch before": -1, "another producer": 0}
PROTOCOLS = {0: ("old",), 1: ("old", "new"), 2: ("old", "new")}


class Case(NamedTuple):
    """One transactional id: what it was before, and what it is asked afterwards."""

    situation: str
    protocol: str
    request: str
    version: int
    relation: str

    def __str__(self) -> str:
        return f"{self.situation} ({self.protocol} protocol); {self.request} v{self.version} with {self.relation}"


def steps(situation: str, protocol: str) -> tuple[str, ...]:
    """The steps of a situation; a new producer adds nothing that its writes add anyway."""
    every = SITUATIONS[situation]
    if protocol == "old":
        return every
    writes = {f"add {step.removeprefix('write ')}" for step in every if step.startswith("write")}
    if "offset" in every:
        writes.add("add offsets")
    return tuple(step for step in every if step not in writes)


def cases(level: int, chance: random.Random) -> Iterator[Case]:
    """Every situation, request and relation, each of some version."""
    for situation in SITUATIONS:
        for protocol in PROTOCOLS[level]:
            if protocol == "new" and steps(situation, "new") == steps(situation, "old") and "commit" not in situation:
                continue
            for request, versions in REQUESTS.items():
                if situation == "never used" and request.startswith("produce"):
                    continue  # listed: the transactional bit without a producer id
                usable = [one for one in versions if level or not _of_version_2(request, one)]
                if not usable:
                    continue
                for relation in RELATIONS:
                    if request != "init" or relation == "its pair":
                        yield Case(situation, protocol, request, chance.choice(usable), relation)


def _of_version_2(request: str, version: int) -> bool:
    return (request, version) in OF_VERSION_2 or (request.startswith("produce") and version == 12)
