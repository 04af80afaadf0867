"""Our consumers and Java ones in one group: whoever leads, everybody has a share, on Apache Kafka and on Fencepost."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from benchmarks.apache_kafka import java
from tests.compare.nodes.two_nodes import SIDES, TwoNodes
from tests.compare.stock_clients.java_member import JavaMember, java_member

from fencepost.client import Admin, Consumer, RebalanceListener, TopicPartition
from fencepost.client.assignors import ASSIGNORS, COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, Member, Shares

pytestmark = pytest.mark.compare

PROGRAM = Path(__file__).parent / "java" / "Assign.java"
PARTITIONS = 6
_PATIENCE = 40.0


class Revoked(RebalanceListener):
    """Counts what was taken from our members."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.partitions += [at.partition for at in partitions]


async def settle(ours: list[Consumer], theirs: list[JavaMember]) -> None:
    """Until everybody has a fair share, and all of it is had once."""
    give_up = asyncio.get_running_loop().time() + _PATIENCE
    shares: list[set[int]] = []
    while asyncio.get_running_loop().time() < give_up:
        await asyncio.gather(asyncio.sleep(0.1), *(consumer.poll(100) for consumer in ours))
        shares = [{at.partition for at in consumer.assignment()} for consumer in ours]
        shares += [member.owned for member in theirs]
        all_had = sorted(number for share in shares for number in share)
        if all_had == list(range(PARTITIONS)) and max(map(len, shares)) - min(map(len, shares)) <= 1:
            return
    raise AssertionError(f"it is not shared out: {shares}")


@pytest.mark.parametrize("java_first", [True, False], ids=["Java leads", "we lead"])
@pytest.mark.parametrize("strategy", ASSIGNORS)
@pytest.mark.parametrize("side", SIDES)
def test_members_of_both_kinds_share_a_group(nodes: TwoNodes, side: str, strategy: str, java_first: bool) -> None:
    bootstrap, name = nodes.on(side).bootstrap, f"mixed-{strategy}-{java_first}"

    def member(listener: RebalanceListener) -> Consumer:
        consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=name,
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
        )
        consumer.subscribe(name, listener=listener)
        return consumer

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, partitions=PARTITIONS)
        revoked = Revoked()
        if java_first:
            async with java_member(bootstrap, name, name, strategy) as theirs:
                await settle([], [theirs])
                async with member(revoked) as first, member(revoked) as second:
                    await settle([first, second], [theirs])
                await settle([], [theirs])
            return
        async with member(revoked) as first:
            await settle([first], [])
            async with java_member(bootstrap, name, name, strategy) as theirs, member(revoked) as second:
                await settle([first, second], [theirs])
                if strategy == COOPERATIVE_STICKY:
                    assert len(set(revoked.partitions)) < PARTITIONS, "what stays is not taken"
                    assert len(revoked.partitions) <= PARTITIONS
            await settle([first], [])

    asyncio.run(scenario())


def drawn(chance: random.Random, alike: bool) -> tuple[dict[str, Member], dict[str, int]]:
    topics = {topic: chance.randrange(1, 9) for topic in "abcd"[: chance.randrange(1, 5)]}
    members: dict[str, Member] = {}
    free = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
    chance.shuffle(free)
    for number in range(chance.randrange(1, 7)):
        wanted = (
            sorted(topics) if alike else sorted(chance.sample(sorted(topics), chance.randrange(1, len(topics) + 1)))
        )
        had = [free.pop() for _ in range(min(len(free), chance.randrange(6)))]
        instance = f"i{chance.randrange(100)}-{number}" if chance.random() < 0.3 else None
        members[f"m{chance.randrange(100)}-{number}"] = Member(
            wanted, instance, [at for at in had if at.topic in wanted], 1
        )
    return members, topics


def line_of(strategy: str, members: Mapping[str, Member], counts: Mapping[str, int]) -> str:
    def said(name: str, member: Member) -> str:
        owned = " ".join(f"{at.topic}:{at.partition}" for at in member.owned)
        return f"{name},{member.instance_id or '-'},{' '.join(member.topics)},{owned}"

    topics = " ".join(f"{topic}={count}" for topic, count in counts.items())
    return f"{strategy};{topics};{'/'.join(said(*each) for each in members.items())}"


def shares_in(line: str) -> Shares:
    found: Shares = {}
    for said in line.split("/"):
        member, _, partitions = said.partition("=")
        places = (at.split(":") for at in partitions.split())
        found[member] = sorted(TopicPartition(topic, int(number)) for topic, number in places)
    return found


@pytest.mark.parametrize("strategy", [RANGE, ROUND_ROBIN, COOPERATIVE_STICKY])
def test_shares_are_those_of_apache_kafkas_assignors(nodes: TwoNodes, strategy: str) -> None:  # noqa: ARG001
    """The same ones; of what is sticky as many that stay, and shares as large."""
    chance = random.Random(strategy)
    cases = [drawn(chance, alike=strategy == COOPERATIVE_STICKY) for _ in range(300)]
    lines = "\n".join(line_of(strategy, *case) for case in cases)
    command = java(str(PROGRAM))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    theirs = [shares_in(line) for line in done.stdout.splitlines()]
    assert len(theirs) == len(cases)
    for (members, counts), their in zip(cases, theirs, strict=True):
        our = {member: sorted(found) for member, found in ASSIGNORS[strategy](members, counts).items()}
        if strategy == COOPERATIVE_STICKY:
            kept = [sum(at in members[member].owned for at in found) for member, found in our.items()]
            they_kept = [sum(at in members[member].owned for at in found) for member, found in their.items()]
            assert sum(kept) == sum(they_kept), (members, counts)
            assert sum(map(len, our.values())) == sum(map(len, their.values())), (members, counts)
        else:
            assert our == their, (members, counts)
