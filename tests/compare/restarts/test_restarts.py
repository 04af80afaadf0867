"""Both nodes are killed, or stopped, amid transactions, and asked everything when they are back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.compare.coordinator.epochs import LAST, Epochs, drive
from tests.compare.coordinator.offsets import Offsets
from tests.compare.coordinator.walks import Walk
from tests.compare.nodes.comparison import Findings
from tests.compare.nodes.leader import Leader
from tests.compare.nodes.twins import SETTINGS, TOPICS, Twins
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes
from tests.compare.restarts.cases import Rehearsal
from tests.compare.restarts.explanations import EXPLANATIONS
from tests.compare.restarts.situations import cases
from tests.compare.restarts.stories import stories
from tests.compare.restarts.storytellers import EXPLANATIONS as OF_STORIES
from tests.compare.restarts.storytellers import Told
from tests.compare.restarts.views import everything
from tests.seeds import seeds

pytestmark = pytest.mark.compare
RESTARTS = [(level, how) for level in (2, 1, 0) for how in ("killed", "stopped")]
WALKS = [(2, "killed"), (1, "stopped")]
DRIVEN = 12
WRITES = [(2, "killed"), (1, "stopped"), (0, "killed")]


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    with two_nodes(SETTINGS) as both:
        both.make_topics(TOPICS)
        yield both


@pytest.mark.parametrize(("level", "how"), RESTARTS)
def test_every_request_to_an_id_in_every_situation(nodes: TwoNodes, level: int, how: str) -> None:
    twins = Twins(nodes, level, EXPLANATIONS)
    rehearsal = Rehearsal(twins, f"{how}-{level}", list(cases(level, random.Random(f"{level} {how}"))))
    rehearsal.prepare()
    for title, look in everything(twins, rehearsal.settled, rehearsal.groups):
        twins.play(f"{title} before", look)
    twins.restart(how)
    for title, look in everything(twins, rehearsal.settled, rehearsal.groups):
        twins.play(f"{title} after", look)
    rehearsal.go_on()
    twins.findings.check()


@pytest.mark.parametrize(("level", "how"), WRITES)
def test_every_write_to_a_partition_that_was_opened_again(nodes: TwoNodes, level: int, how: str) -> None:
    nodes.set_level(level)
    every = {f"{how}-{level}-{number}": story for number, story in enumerate(stories(level, how))}
    ids = []
    for address in nodes.addresses:
        maker = Leader(address)
        maker.make(list(every))
        ids.append(maker.topic_ids)
    findings = Findings(OF_STORIES, level)
    told = []
    for topic, story in every.items():
        leaders = Leader(nodes.addresses[0], ids[0]), Leader(nodes.addresses[1], ids[1])
        told.append(Told(story, topic, leaders, findings))
    for each in told:
        each.begin()
    nodes.restart(how)
    for each in told:
        each.go_on()
    findings.check()


@pytest.mark.parametrize(("level", "how"), WALKS)
def test_random_walks_that_are_interrupted(nodes: TwoNodes, level: int, how: str) -> None:
    """The first part of each walk is before the restart; ids whose epochs are nearly used up are among them."""
    twins = Twins(nodes, level, EXPLANATIONS)
    driven = [f"{how}-{level}-epochs-{seed}" for seed in seeds(DRIVEN)]
    drive_all(nodes.addresses, driven)
    walks: dict[str, Walk] = {name: Epochs(twins, random.Random(name), name) for name in driven}
    for seed in seeds(60):
        for kind in (Walk, Offsets):
            name = f"{how}-{level}-{kind.__name__.lower()}-{seed}"
            walks[name] = kind(twins, random.Random(name), name)
    going = {}
    for name, walk in walks.items():
        # Apache Kafka stops reading a partition of __transaction_state at a marker in it, and forgets what follows.
        walk.internal = {"__consumer_offsets": [0]}
        walk.timeout_ms = 900_000
        twins.play(f"{name} before", lambda walk=walk: walk.go(12))  # type: ignore[misc]
        if not twins.diverged:
            going[name] = twins.history
    twins.restart(how)
    for name, asked in going.items():
        twins.play(f"{name} after", lambda walk=walks[name]: walk.go_on(15), asked)  # type: ignore[misc]
    twins.findings.check()


def drive_all(addresses: tuple[str, str], names: Sequence[str]) -> None:
    """Near the last epoch, each one a little less near than the one before it."""
    with ThreadPoolExecutor(4) as pool:
        reached = [
            pool.submit(drive, address, f"{name}-0", LAST - number % 4)
            for address in addresses
            for number, name in enumerate(names)
        ]
        for each in reached:
            each.result()
