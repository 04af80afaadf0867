"""Calls between coordinators and leaders, as if each were on a node of its own: they are lost, late and repeated.

Three calls go this way: a marker (coordinator to leader), a look at a transaction and an addition to it (leader to
coordinator).  What is answered is durable on the side that answers.  A node that ends takes with it what is on its way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from fencepost.broker.leader.markers import LocalMarkers
from fencepost.broker.leader.registrar import Answer, LocalRegistrar, Question
from fencepost.coordinator.transaction.markers import Marker, Results
from fencepost.log.storage import Storage
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.script import Call as Call
from fencepost.simulation.script import CallFault as CallFault
from fencepost.simulation.script import Prompter

T = TypeVar("T")

#: Seconds that an answer is waited for.
PATIENCE: Final = 1.0
_SLOWEST: Final = 0.001
#: Seconds, at most.  A repeated call comes a transaction or many later.
_LATEST: Final = {CallFault.LATE: PATIENCE, CallFault.ANSWER_LATE: PATIENCE, CallFault.REPEATED: 0.5}


class NoAnswer(Exception):
    """A call has no answer for as long as anybody waits."""


class Surroundings(Protocol):
    """The world around the calls."""

    @property
    def storage(self) -> Storage | None:
        """The storage of the node that runs now; None where none does."""
        ...

    def chance(self, name: str, /) -> random.Random:
        """A generator of its own for each part."""
        ...

    def note(self, text: str, /) -> None:
        """Write a line into the history of the run."""
        ...

    def call_befell(self, call: str, what: str, about: str, /) -> None:
        """Note that a fault befalls a call: the kind of call, the fault, and the producer and partitions in it."""
        ...


class FaultyCalls:
    """Carries calls between coordinators and leaders; each may meet one fault, with the probability given for it."""

    def __init__(
        self,
        world: Surroundings,
        faults: Mapping[CallFault, float],
        calls: Sequence[Call] = tuple(Call),
        prompter: Prompter | None = None,
    ) -> None:
        self._world = world
        self._prompter = prompter or Prompter()
        self._random, self._dice = world.chance("links"), world.chance("call faults")
        self._faults = faults
        self._calls = calls
        self._repetitions: dict[asyncio.Task[None], None] = {}

    def end(self) -> None:
        """Let nothing go wrong any more."""
        self._faults = {}
        self._prompter = Prompter()

    def markers(self, local: LocalMarkers) -> FarMarkers:
        return FarMarkers(self, local)

    def registrar(self, local: LocalRegistrar) -> FarRegistrar:
        return FarRegistrar(self, local)

    async def carry(self, call: Call, node: Storage, carry_out: Callable[[], T], what: str) -> T:
        """Have the other end carry a call out, and give its answer.  Raises NoAnswer."""
        now = asyncio.get_running_loop().time()
        befallen = self._prompter.call(call, now, lambda: self._draw(call))
        fault, late = (None, 0.0) if befallen is None else (befallen.fault, befallen.late)
        if fault is not None:
            self._world.call_befell(call.value, fault.value, what)
        if fault is CallFault.LOST:
            await self._pass(node, PATIENCE)
            raise NoAnswer
        await self._pass(node, late if fault is CallFault.LATE else self._latency())
        answer = carry_out()
        if fault is CallFault.REPEATED:
            again = self._repeat(node, carry_out, f"{call.value} again: {what}", late)
            task = asyncio.get_running_loop().create_task(again)
            self._repetitions[task] = None
            task.add_done_callback(self._repetitions.pop)
        # An answer is a promise, so it leaves when what it says is durable.
        await node.durability.wait(node.lsn)
        if fault is CallFault.ANSWER_LOST:
            await self._pass(node, PATIENCE)
            raise NoAnswer
        await self._pass(node, late if fault is CallFault.ANSWER_LATE else self._latency())
        return answer

    async def _repeat(self, node: Storage, carry_out: Callable[[], object], what: str, late: float) -> None:
        await asyncio.sleep(late)
        if self._world.storage is node:
            self._world.note(what)
            carry_out()

    async def _pass(self, node: Storage, seconds: float) -> None:
        """Let time go by, in seconds.  Raises CancelledError where the node has ended: nobody waits for it any more."""
        await asyncio.sleep(seconds)
        if self._world.storage is not node:
            raise asyncio.CancelledError

    def _draw(self, call: Call) -> tuple[CallFault, float] | None:
        if call not in self._calls:
            return None
        dice = self._dice.random()
        for fault, probability in self._faults.items():
            dice -= probability
            if dice < 0:
                return fault, self._dice.uniform(0, _LATEST[fault]) if fault in _LATEST else 0.0
        return None

    def _latency(self) -> float:
        return self._random.uniform(0.00002, _SLOWEST)


class FarMarkers:
    """The Markers of a coordinator whose leaders are on other nodes: its calls go through `FaultyCalls`."""

    def __init__(self, calls: FaultyCalls, local: LocalMarkers) -> None:
        self._calls = calls
        self._leaders = local

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Awaitable[Results]:
        where = ",".join(f"{at.topic}-{at.partition}" for at in partitions)
        what = f"producer_id={marker.producer_id} epoch={marker.producer_epoch} commit={marker.commit} {where}"
        return self._calls.carry(
            Call.MARKER, self._leaders.storage, lambda: self._leaders.write(marker, partitions), what
        )


class FarRegistrar:
    """The Registrar of leaders whose coordinator is on another node: its calls go through `FaultyCalls`."""

    def __init__(self, calls: FaultyCalls, local: LocalRegistrar) -> None:
        self._calls = calls
        self._coordinator = local

    async def ask(self, question: Question) -> Answer:
        call = Call.ADD if question.add else Call.LOOK
        where = ",".join(f"{at.topic}-{at.partition}" for at in question.partitions)
        what = f"producer_id={question.producer_id} epoch={question.producer_epoch} {where}"
        try:
            return await self._calls.carry(
                call, self._coordinator.storage, lambda: self._coordinator.ask(question), what
            )
        except NoAnswer:
            return Answer.lost(question)
