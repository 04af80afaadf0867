"""A cluster that runs somewhere, real time, and sockets on which requests go wrong: what a workload has around it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from fencepost.client import Admin, OffsetSpec
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime
from fencepost.simulation.cutting_network import LINGERS, CuttingNetwork
from fencepost.simulation.request_faults import LATEST, RequestFaults, Sending
from fencepost.simulation.script import Prompter, RequestFault
from fencepost.simulation.surroundings import Cluster


class RealWorld:
    """One cluster, and its clients in this process (surroundings.Surroundings).

    The seed decides what each client does and which of its requests are befallen; when, and by what it is met, is up to
    the cluster.
    """

    def __init__(
        self,
        outside: Runtime,
        cluster: Cluster,
        seed: int,
        shares: Mapping[RequestFault, float],
        patience: float,
        tell: Callable[[str], None],
    ) -> None:
        """`shares`: of each client's requests what each fault befalls; `tell`: is given the story, line by line."""
        self.outside = outside
        self.cluster = cluster
        self.loop = asyncio.get_running_loop()
        self.prompter = Prompter()
        self.may_end_early = False
        self.shares = shares
        self.patience = patience
        self.calm = asyncio.Event()
        """Once set nothing goes wrong any more."""
        self.befallen: Counter[str] = Counter()
        """The number of requests that each fault befell."""
        self._at_work: dict[asyncio.Task[None], None] = {}
        self._late_until = 0.0
        """When all that was sent late has arrived, by the loop's clock in seconds."""
        self._seed = seed
        self._tell = tell
        self._begun = self.loop.time()

    def chance(self, name: str) -> Random:
        return Random(f"{self._seed}/{name}")

    def note(self, text: str) -> None:
        self._tell(f"{self.loop.time() - self._begun:.6f} {text}")

    def runtime(self, name: str) -> Runtime:
        return Runtime(self.outside.clock, self.outside.network, self.chance(name))

    async def until(self, time: float) -> None:
        await asyncio.sleep(time - self.loop.time())

    async def ends(self) -> Mapping[TopicPartition, int]:
        async with Admin(self.cluster.address, runtime=self.runtime("ends")) as admin:
            found = await admin.list_offsets(dict.fromkeys(self.cluster.places, OffsetSpec.LATEST))
        return {at: 0 if end is None else end.offset for at, end in found.items()}

    def befell(self, what: str) -> None:
        """Note that a fault befell a request."""
        self.befallen[what] += 1
        self._late_until = self.loop.time() + LATEST + LINGERS

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a client of that name."""
        task = self.loop.create_task(work, name=name)
        self._at_work[task] = None
        task.add_done_callback(self._at_work.pop)
        return task

    async def dismiss(self, patience: float) -> None:
        """End the clients that still work, if any; wait up to `patience` seconds for it."""
        for task in self._at_work:
            task.cancel()
        if self._at_work:
            await asyncio.wait(list(self._at_work), timeout=patience)

    async def arrived(self) -> None:
        """Wait until what was sent late has arrived, be its sender there or not."""
        await self.until(self._late_until)


class RealProcess:
    """A process whose clients' requests meet faults (surroundings.ClientProcess)."""

    def __init__(self, world: RealWorld, name: str) -> None:
        self.world = world
        self.name = name
        faults = RequestFaults(world.chance(f"{name}/request faults"), world.note, world.shares)
        passage = _UntilCalm(faults, world.calm)
        self._network = CuttingNetwork(world.outside.network, name, passage, world.befell)

    def runtime(self, name: str = "client") -> Runtime:
        return Runtime(self.world.outside.clock, self._network, self.world.chance(f"{self.name}/{name}"))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        return self.world.start(work, self.name)


class _UntilCalm:
    """The Passage of requests (request_faults) with faults, which passes all on unharmed once it is calm."""

    def __init__(self, faults: RequestFaults, calm: asyncio.Event) -> None:
        self._faults = faults
        self._calm = calm

    def send(self, transport: Sending, data: bytes, /) -> None:
        if self._calm.is_set():
            transport.send(data)
        else:
            self._faults.send(transport, data)
