"""Members of consumer groups, that note what they are handed and what is confirmed to them."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.client import Consumer, OffsetAndMetadata, TopicPartition
from fencepost.client.assignors import COOPERATIVE_STICKY, RANGE
from fencepost.client.errors import (
    ClientError,
    CommitFailedError,
    FencedInstanceIdError,
    ProducerFencedError,
)
from fencepost.client.records import ConsumerRecord
from fencepost.client.transactional_id import with_metadata
from fencepost.simulation.group_notes import Begun, GroupNotes, Membership, Owned, Processed, Stored
from fencepost.simulation.processes import Process
from fencepost.simulation.sights import Sights
from fencepost.simulation.taking import take
from fencepost.simulation.waiting import all_of
from fencepost.simulation.world import ADDRESS, World

T = TypeVar("T")

REPLACED: Final = (ProducerFencedError, FencedInstanceIdError)
"""What somebody may be told whose place another one has taken."""

REBORN: Final = "reborn"
"""The topic that is deleted and made anew.  Its records say in which of its lives they were written."""
SESSION_MS: Final = 600
REBALANCE_MS: Final = 1500
POLLED: Final = (1, 3, 10, 40)
"""The numbers of records that a member takes at once, at most."""
_BOUND: Final = 30.0
"""Seconds within which every call returns, and the end of a block comes, whatever goes wrong."""
OPTIONS: Final[Mapping[str, Any]] = {
    "session_timeout_ms": SESSION_MS,
    "rebalance_timeout_ms": REBALANCE_MS,
    "heartbeat_interval_ms": 150,
    "request_timeout_ms": 400,
    "max_block_ms": 4000,
    "metadata_max_age_ms": 1000,
    "fetch_max_wait_ms": 100,
    "auto_commit_interval_ms": 200,
}


class Group(NamedTuple):
    """A consumer group, and how its members work."""

    name: str
    topics: Sequence[str]
    seats: int = 3
    auto_commit: bool = False
    static: bool = False
    """Its members have the ids of instances."""
    haunted: bool = False
    """Its members are replaced while they stand still."""
    changing: bool = False
    """Its members but the first leave out topics now and then."""
    strategies: Sequence[str] = (RANGE, COOPERATIVE_STICKY)
    """The assignors that its members name."""
    output: str = ""
    """The topic that its members write to, if they do."""
    batches: bool = False
    """Its members take, mostly, what was fetched of one partition at once."""
    by_pattern: bool = False
    """They subscribe to what fits a pattern."""


class Scene(NamedTuple):
    """The world, the notes and the signals that all members and readers of one run share."""

    world: World
    notes: GroupNotes
    calm: asyncio.Event
    """Nothing goes wrong any more: whoever lives, lives on."""
    over: asyncio.Event
    """Everybody goes."""
    sights: Sights
    """What everybody was shown."""
    vacant: list[str]
    """Places whose members end when it is calm, and nobody comes after them: the others take over what they had."""

    @property
    def now(self) -> float:
        return self.world.loop.time()


def incarnation(record: ConsumerRecord | TopicPartition, value: str) -> TopicPartition:
    """The partition of a record or another one, with its topic named as `value` does: by the topic's life."""
    return TopicPartition(value.split("-")[0] if record.topic == REBORN else record.topic, record.partition)


async def timed(scene: Scene, process: Process, what: str, call: Awaitable[T]) -> T:
    """Await a call, and note it if it takes longer than it ever may."""
    begun, still = scene.now, process.stood_still
    try:
        return await call
    finally:
        took = scene.now - begun - (process.stood_still - still)
        if took > _BOUND:
            scene.notes.late.append(f"{what} of {process.name} took {took:.1f} s")


class Member:
    """One member of a group in one process: reads, processes, commits, until it is told to leave."""

    def __init__(self, scene: Scene, process: Process, group: Group, seat: int) -> None:
        self._scene = scene
        self._process = process
        self._group = group
        self._seat = seat
        self._chance: random.Random = process.chance("member")
        self.leave = asyncio.Event()
        self.consumer = Consumer(
            bootstrap_servers=ADDRESS,
            group_id=group.name,
            group_instance_id=f"{group.name}-{seat}" if group.static else None,
            auto_commit=group.auto_commit,
            partition_assignment_strategy=group.strategies,
            runtime=process.runtime(),
            **OPTIONS,
        )
        self._subscribe(group.topics)
        self._next: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
        """What the consumer said is to be committed behind the last records."""
        self._owned: tuple[Membership, tuple[TopicPartition, ...]] | None = None
        self._generation: Membership | None = None
        self._paused: dict[TopicPartition, None] = {}
        self._moved: set[TopicPartition] = set()
        """Partitions where it went back, and was handed nothing since."""

    def _subscribe(self, topics: Sequence[str]) -> None:
        if self._group.by_pattern:
            self.consumer.subscribe(pattern="|".join(topics))
        else:
            self.consumer.subscribe(*topics)

    # Who it is, and what it was handed

    def membership(self) -> Membership:
        found = self.consumer.group_metadata()
        return Membership(
            self._group.name, found.generation_id, found.group_instance_id or found.member_id, found.member_id
        )

    def note_owned(self, records: Sequence[ConsumerRecord] = ()) -> None:
        """Note which partitions it owns, after a call that may have changed that.  `records`: what the call gave."""
        member, owned = self.membership(), tuple(self.consumer.assignment())
        if (member, owned) != self._owned and owned:
            kept = self._owned[1] if self._owned is not None and self.consumer.keeps_positions else ()
            self._owned = member, owned
            self._paused = {at: None for at in self._paused if at in kept and at in self.consumer.paused()}
            self._scene.notes.owned.append(Owned(self._scene.now, member, owned))
            first: dict[TopicPartition, int] = {}
            for record in records:
                first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
            for at in owned if self._generation != member else ():
                if at.topic != REBORN and at not in kept:
                    offset = first.get(at, self.consumer.position(at))
                    self._scene.notes.begun.append(Begun(self._process.name, member, at, offset))
            self._generation = member
            self._scene.world.note(f"{self._process.name} owns {owned} in generation {member.generation}")

    def note_processed(self, record: ConsumerRecord) -> None:
        value = (record.value or b"").decode()
        at = TopicPartition(record.topic, record.partition)
        owned = at in self.consumer.assignment() and at not in self._paused
        place = incarnation(record, value)
        self._scene.sights.note(record, place)
        self._scene.notes.processed.append(
            Processed(
                self._scene.now,
                self._process.name,
                self.membership(),
                place,
                record.offset,
                value,
                owned,
                place in self._moved,
            )
        )
        self._moved.discard(place)
        self._scene.world.note(f"{self._process.name} has {at.topic}-{at.partition} {record.offset} {value}")

    def note_moved(self, at: TopicPartition) -> None:
        self._scene.notes.moved.append((self._process.name, at))
        self._moved.add(at)

    # Its work

    async def work(self) -> None:
        """Work until it is to leave.  Raises ClientError where its consumer gives up: another takes its place."""
        try:
            while not self.leave.is_set():
                try:
                    await self._step()
                except CommitFailedError as refused:
                    self._scene.world.note(f"{self._process.name} is refused: {refused}")
                except TimeoutError:
                    self._scene.world.note(f"{self._process.name} has waited long enough")
        finally:
            await timed(self._scene, self._process, "close", self.consumer.close())

    async def _step(self) -> None:
        if self._scene.calm.is_set() and self._paused:
            self._resume()
        if self._group.auto_commit and self._chance.random() < 0.4:
            await self._iterate()
            return
        records = await self.poll()
        fails_at = self._chance.randrange(30 * len(records)) if records and not self._scene.calm.is_set() else -1
        for number, record in enumerate(records):
            if number == fails_at:
                self._scene.world.note(f"{self._process.name} cannot process a record, and ends")
                self.leave.set()
                return
            self.note_processed(record)
            if self._chance.random() < 0.05:
                await asyncio.sleep(self._chance.uniform(0, 0.05))
        if records:
            await self._after(records)

    async def poll(self) -> list[ConsumerRecord]:
        """The records of one poll.  Raises TimeoutError now and then, where an impatient user gives up."""
        wait, most = self._chance.uniform(0, 200), self._chance.choice(POLLED)
        patience = math.exp(self._chance.uniform(-8, -1.6)) if self._impatient() else None
        async with asyncio.timeout(patience):
            taking = take(self.consumer, wait, most, batches=self._takes_batch())
            records, self._next = await timed(self._scene, self._process, "poll", taking)
        self.note_owned(records)
        return records

    def _takes_batch(self) -> bool:
        return self._group.batches and self._chance.random() < 0.7

    def _impatient(self) -> bool:
        return self._chance.random() < (0.1 if self._scene.calm.is_set() else 0.25)

    async def _iterate(self) -> None:
        """Take records one by one, with `async for`."""
        count = self._chance.randint(1, 10)
        try:
            async with asyncio.timeout(0.5):
                async for record in self.consumer:
                    self.note_owned([record])
                    self.note_processed(record)
                    count -= 1
                    if not count or self.leave.is_set():
                        return
        finally:
            self.note_owned()

    async def _after(self, records: list[ConsumerRecord]) -> None:
        dice = self._chance.random()
        if self._group.auto_commit:
            self._pause(dice)
            return
        if dice < 0.1 and not self._scene.calm.is_set():
            self._go_back(records)
            return
        if dice < 0.2 and not self._scene.calm.is_set():
            await asyncio.sleep(self._chance.uniform(0.3, 2 * SESSION_MS / 1000))
        await self._commit(records if dice > 0.6 else None)
        if self._group.changing and self._seat and dice > 0.97 and not self._scene.calm.is_set():
            self._subscribe(self._group.topics[: self._chance.randint(1, len(self._group.topics))])

    async def _commit(self, records: list[ConsumerRecord] | None) -> None:
        """Commit the positions of all that was handed out (None), or those after these records."""
        if records is None:
            offsets = {at: self.consumer.position(at) for at in self.consumer.assignment()}
        elif self._next is not None:
            offsets = {at: with_metadata(following).offset for at, following in self._next.items()}
        else:
            offsets = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        member, begun = self.membership(), self._scene.now
        call = self.consumer.commit(None if records is None else offsets)
        await timed(self._scene, self._process, "commit", call)
        told = {at: offset for at, offset in offsets.items() if at.topic != REBORN}
        self._scene.notes.stored.append(Stored(begun, self._process.name, member, told))

    def _go_back(self, records: list[ConsumerRecord]) -> None:
        """Go back to the first of the records."""
        first = records[0]
        at = TopicPartition(first.topic, first.partition)
        if at in self.consumer.assignment():
            self.note_moved(incarnation(at, (first.value or b"").decode()))
            self.consumer.seek(at, first.offset)

    def _pause(self, dice: float) -> None:
        if self._paused and dice < 0.5:
            self._resume()
        elif dice < 0.2 and not self._scene.calm.is_set() and self.consumer.assignment():
            at = self._chance.choice(self.consumer.assignment())
            self.consumer.pause([at])
            self._paused[at] = None

    def _resume(self) -> None:
        self.consumer.resume([at for at in self._paused if at in self.consumer.assignment()])
        self._paused = {}


async def sit(
    scene: Scene, group: Group, seat: int, make: Callable[[Scene, Process, Group, int], Member] = Member
) -> None:
    """Keep a place of a group occupied: members come, stand still, die and go.

    Where members have names, the next one comes now and then before the last has ended.  Once it is calm, the last
    place is left.
    """
    chance = scene.world.chance(f"{group.name}/{seat}")
    life = 0
    haunting: list[asyncio.Task[None]] = []
    while not scene.over.is_set():
        life += 1
        process = Process(scene.world, f"{group.name}-{seat}.{life}")
        member = make(scene, process, group, seat)
        task = process.start(member.work())
        if group.haunted and not scene.calm.is_set() and chance.random() < 0.2:
            await asyncio.sleep(chance.uniform(0.1, 1))
            process.stand_still(chance.uniform(0.1, 2))
            # A static member hears of it by itself, another one has no reason to.
            process.is_to_leave = not group.static
            haunting.append(asyncio.ensure_future(live(scene, process, task, member.leave, chance)))
        else:
            await live(scene, process, task, member.leave, chance)
        if scene.calm.is_set() and process.has_left_for_good:
            break
        await asyncio.sleep(chance.uniform(0, 0.3))
    await all_of(*haunting)


async def live(
    scene: Scene, process: Process, task: asyncio.Future[None], leave: asyncio.Event, chance: random.Random
) -> None:
    """Draw incidents for a process until it has ended."""
    while not task.done():
        until = scene.now + (0.1 if scene.calm.is_set() else chance.expovariate(1 / 1.5))
        was_calm = scene.calm.is_set()
        while not task.done() and scene.now < until and scene.calm.is_set() == was_calm:
            await asyncio.wait([task], timeout=0.1)
        if task.done():
            break
        if scene.over.is_set():
            leave.set()
            await asyncio.wait([task], timeout=2 * _BOUND)
            if not task.done():
                scene.notes.late.append(f"{process.name} does not end")
                process.die(silently=False)
                return
        elif not scene.calm.is_set():
            fate = chance.random()
            if fate < 0.2:
                leave.set()
            elif fate < 0.4:
                process.die(silently=fate < 0.3)
                return
            elif fate < 0.7:
                process.stand_still(chance.uniform(0.1, 3 * SESSION_MS / 1000))
            elif fate < 0.8:
                process.lose_connections()
        elif process.is_to_leave:
            leave.set()
        elif process.name.split(".")[0] in scene.vacant:
            process.has_left_for_good = True
            scene.vacant.remove(process.name.split(".")[0])
            if chance.random() < 0.5:
                leave.set()
            else:
                process.die(silently=chance.random() < 0.5)
                return
    error = task.exception()
    if error is not None:
        scene.world.note(f"{process.name} gives up: {type(error).__name__}: {error}")
        if not isinstance(error, ClientError):
            scene.notes.surprises.append(f"{process.name} ends with {type(error).__name__}: {error}")
        if scene.calm.is_set() and not isinstance(error, REPLACED):
            scene.notes.surprises.append(f"{process.name} gives up although nothing goes wrong: {error}")


def may_be_damaged(scene: Scene) -> bool:
    """Whether reads may be told of damaged records: the disk gave wrong bytes, and all is not calm yet."""
    return scene.world.disk.was_wrong and not scene.calm.is_set()
