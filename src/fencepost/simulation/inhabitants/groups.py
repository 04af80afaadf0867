"""Consumer groups, readers of both isolation levels, and loops that consume, transform and produce."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.client import Admin, TopicPartition
from fencepost.client.assignors import COOPERATIVE_STICKY
from fencepost.simulation.changing_topics import GROWN, ChangingTopics
from fencepost.simulation.checkers.groups.ahead import ahead
from fencepost.simulation.checkers.groups.doubled import doubled
from fencepost.simulation.checkers.groups.forgotten import forgotten
from fencepost.simulation.checkers.groups.misplaced import misplaced
from fencepost.simulation.checkers.groups.missed import missed
from fencepost.simulation.checkers.groups.not_owned import not_owned
from fencepost.simulation.checkers.groups.out_of_order import out_of_order
from fencepost.simulation.checkers.groups.outdated import outdated
from fencepost.simulation.checkers.groups.reads_out_of_order import reads_out_of_order
from fencepost.simulation.checkers.groups.replaced import replaced
from fencepost.simulation.checkers.groups.restless import restless
from fencepost.simulation.checkers.groups.shared import shared
from fencepost.simulation.checkers.groups.superseded import superseded
from fencepost.simulation.checkers.groups.transformed import transformed
from fencepost.simulation.checkers.groups.transformed_out_of_order import transformed_out_of_order
from fencepost.simulation.checkers.groups.unkept import unkept
from fencepost.simulation.checkers.groups.unread import unread
from fencepost.simulation.checkers.groups.unreal import unreal
from fencepost.simulation.checkers.groups.went_back import went_back
from fencepost.simulation.consume_transform_produce import OUTPUT_PARTITIONS, Transformer
from fencepost.simulation.exactly_once_load import Looper
from fencepost.simulation.group_load import REBORN, Group, Scene, sit
from fencepost.simulation.group_notes import GroupNotes, Truth, read_truth
from fencepost.simulation.group_readers import read
from fencepost.simulation.surroundings import TOPICS
from fencepost.simulation.waiting import all_of
from fencepost.simulation.workload import Outcomes
from fencepost.simulation.world import ADDRESS, World

READERS: Final = {"committed": True, "uncommitted": False}
LEDGER: Final = Group("ledger", (*TOPICS, GROWN, REBORN), changing=True)
AUDIT: Final = Group("audit", (*TOPICS, GROWN), seats=2, auto_commit=True, static=True, haunted=True)
TRANSFORMERS: Final = Group("transformers", tuple(TOPICS), seats=3, haunted=True, output="out")
LOOPS: Final = Group("loops", tuple(TOPICS), seats=3, haunted=True, output="looped")
KEEPERS: Final = Group("keepers", (*TOPICS, GROWN, REBORN), changing=True, strategies=(COOPERATIVE_STICKY,))
KEEPING_LOOPS: Final = LOOPS._replace(name="keeping-loops", strategies=(COOPERATIVE_STICKY,))
KINDS: Final = frozenset((LEDGER, AUDIT, TRANSFORMERS, LOOPS, KEEPERS, KEEPING_LOOPS))


def as_usual(group: Group) -> Group:
    """The same group with members that take single records and subscribe to topics by name."""
    return group._replace(batches=False, by_pattern=False)


_SETTLING: Final = 4.0
"""Seconds until what goes on from before is over: sessions of the dead, requests that are late, rebalances."""
_PATIENCE: Final = 10.0
"""Seconds in which everybody arrives, once nothing goes wrong any more."""


class GroupsPlan(NamedTuple):
    """The groups of a run: those that only read, and those that transform."""

    groups: tuple[Group, ...] = (LEDGER, AUDIT)
    transformers: tuple[Group, ...] = (TRANSFORMERS,)
    loops: tuple[Group, ...] = ()
    """Groups that read, transform and write with `ExactlyOnce`."""
    requests_are_late: bool = False
    """A commit that is late may come after the next one."""
    batches: bool = False
    """Whether readers take what was fetched of one partition at once."""


class Groups:
    """Groups that read TOPICS and the topics that change (inhabitants.Inhabitants)."""

    def __init__(self, world: World, plan: GroupsPlan, topics: ChangingTopics, outcomes: Outcomes) -> None:
        self._world = world
        self._plan = plan
        self._topics = topics
        self._outcomes = outcomes
        self.notes = GroupNotes()
        self.truth = Truth({}, {}, {})
        """What is in the log, when all is over."""
        vacant = [f"{group.name}-{group.seats - 1}" for group in self._groups if world.random.random() < 0.5]
        self._scene = Scene(world, self.notes, asyncio.Event(), asyncio.Event(), outcomes.sights, vacant)
        self._members: list[asyncio.Future[None]] = []
        self._settled = self._is_over = math.inf
        """When everything had been calm for a while, and when everybody was told to go."""

    @property
    def _groups(self) -> tuple[Group, ...]:
        return (*self._plan.groups, *self._plan.transformers, *self._plan.loops)

    @property
    def _outputs(self) -> list[str]:
        return [group.output for group in self._groups if group.output]

    async def prepare(self) -> None:
        async with Admin(ADDRESS, runtime=self._world.runtime("admin")) as admin:
            for output in self._outputs:
                await admin.create_topic(output, partitions=OUTPUT_PARTITIONS)

    def begin(self) -> None:
        loop, plan, scene = self._world.loop, self._plan, self._scene
        members = [sit(scene, group, n) for group in plan.groups for n in range(group.seats)]
        members += [sit(scene, group, n, Transformer) for group in plan.transformers for n in range(group.seats)]
        members += [sit(scene, group, n, Looper) for group in plan.loops for n in range(group.seats)]
        members += [read(scene, name, (*TOPICS, GROWN), f"read_{name}", batches=plan.batches) for name in READERS]
        self._members = [loop.create_task(member) for member in members]

    def calm_down(self) -> None:
        self._scene.calm.set()

    async def rest(self) -> list[str]:
        world, scene = self._world, self._scene
        scene.calm.set()
        await asyncio.sleep(_SETTLING)
        self._settled = world.loop.time()
        await self._topics.send_last_ones(self._outcomes)
        give_up = world.loop.time() + _PATIENCE
        while (left := self._left(self._read_truth())) and world.loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.3)
        await asyncio.sleep(1)
        self._is_over = world.loop.time()
        scene.over.set()
        await all_of(*self._members)
        return [f"{fault}, in {_PATIENCE:.0f} s" for fault in left]

    # The end

    def _read_truth(self) -> Truth:
        """The records in the log when all is over; a topic that was made anew has the name of its last life."""
        assert self._world.storage is not None
        found = read_truth(self._world.storage, (*TOPICS, *self._topics.partitions, *self._outputs))

        def named(at: TopicPartition) -> TopicPartition:
            return at._replace(topic=self._topics.named(at.topic))

        return Truth(
            {named(at): records for at, records in found.records.items()},
            {named(at): start for at, start in found.starts.items()},
            {named(at): end for at, end in found.ends.items()},
        )

    def _left(self, truth: Truth) -> list[str]:
        """Records that a member or reader has yet to be shown, or an output yet to be written, in sentences."""
        topics = {group.name: [self._topics.named(topic) for topic in group.topics] for group in self._groups}
        faults = missed(self.notes, truth, topics)
        read_by_readers = truth._replace(
            records={at: found for at, found in truth.records.items() if at.topic in (*TOPICS, GROWN)}
        )
        faults += unread(self.notes, read_by_readers, READERS)
        for output in self._outputs:
            faults += [fault for fault in transformed(truth, tuple(TOPICS), output) if "has 0" in fault]
        return faults

    def _positions(self, group: str, topics: Mapping[str, int]) -> dict[TopicPartition, int | None]:
        assert self._world.broker is not None
        places = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
        found = self._world.broker.node.groups.fetch_offsets(group, places, require_stable=False)
        assert isinstance(found, dict)
        return {at: getattr(position, "offset", None) for at, position in found.items()}

    async def judge(self) -> list[str]:
        assert self._world.storage is not None
        await self._world.storage.durability.wait(self._world.storage.lsn)
        truth = self.truth = self._read_truth()
        notes = self.notes
        in_place = [each for each in notes.processed if each.at in truth.starts]
        faults = [*notes.late, *notes.surprises, *shared(notes)]
        for checker in (not_owned, outdated, went_back, replaced, reads_out_of_order):
            faults += checker(notes)
        faults += restless([each for each in notes.owned if each.time <= self._is_over], self._settled, notes.fenced)
        faults += forgotten(notes, requests_are_late=self._plan.requests_are_late)
        may_be_gone = superseded(truth, self._outcomes.keys)
        committed = {sent.value for records in self._outcomes.committed.values() for sent in records}
        known = committed if self._outcomes.keys else None
        faults += out_of_order(in_place) + ahead(notes, truth) + unreal(notes, truth, READERS, may_be_gone, known)
        fed = [self._topics.named(topic) for topic in self._topics.partitions]
        faults += unkept(truth, (each for each in self._topics.acknowledged if each[0] in fed)) + doubled(truth, fed)
        for output in self._outputs:
            faults += transformed(truth, tuple(TOPICS), output, may_be_gone)
            faults += transformed_out_of_order(truth, output)
        for group in self._groups:
            places = {topic: {**TOPICS, **self._topics.partitions}[topic] for topic in group.topics if topic != REBORN}
            faults += misplaced(truth, self._positions(group.name, places), group.name)
        return faults
