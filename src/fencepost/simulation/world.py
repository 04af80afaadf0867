"""A world of one broker and its clients on virtual time, with everything that happens written into a history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fencepost.broker import Broker
from fencepost.log.storage import Storage
from fencepost.protocol.types import Lsn, TopicPartition
from fencepost.runtime import Runtime
from fencepost.simulation.call_faults import FaultyCalls
from fencepost.simulation.checkers.producer_ids import ProducerIds
from fencepost.simulation.checkers.removals import Removals
from fencepost.simulation.checkers.stable_offsets import Told
from fencepost.simulation.disk_faults import FaultyDisk
from fencepost.simulation.durable_answers import watched
from fencepost.simulation.history.recorder import Recorder
from fencepost.simulation.loop import VirtualClock, VirtualLoop
from fencepost.simulation.metadata import MemoryMetadataStore
from fencepost.simulation.network import NamedNetwork, SimulatedNetwork
from fencepost.simulation.script import Prompter
from fencepost.simulation.surroundings import Cluster

PORT = 9092
#: Seconds of virtual time in which everybody gets on, and has ended, when nothing goes wrong any more.
PATIENCE = 300.0
CLUSTER = Cluster("127.0.0.1", PORT)
ADDRESS = CLUSTER.address
#: Small, so that a restart reads little and rolls are frequent.
SETTINGS: Mapping[str, object] = {
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "log.segment.bytes": 1024 * 1024,
    "group.initial.rebalance.delay.ms": 0,
}


class Violation(AssertionError):
    """Something was seen while the world ran that may never be; ends the run."""


class Client(Protocol):
    """A client process, as incidents see it (processes.Process)."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing that was started in it is under way."""
        ...

    def stand_still(self, seconds: float) -> None:
        """Run nothing of it for so many seconds."""
        ...

    def cut_off(self, seconds: float, *, sending: bool = True, receiving: bool = True) -> None:
        """Delay what it sends, what it is sent, or both for so many seconds."""
        ...

    def recover(self) -> None:
        """End all that befalls it."""
        ...


class World:
    """One broker with its clock, network and disk, all simulated.  One seed decides everything."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        settings: Mapping[str, object] | None = None,
        log: Mapping[str, Any] | None = None,
        prompter: Prompter | None = None,
    ) -> None:
        """`log`: fields of the settings of every log, whatever its topic says; `prompter`: knows what comes next."""
        self.loop = loop
        self.cluster = CLUSTER
        self.patience = PATIENCE
        self.seed = seed
        self.random = self.chance("world")
        self.network = SimulatedNetwork(self.chance("network"))
        self.disk = FaultyDisk(self.chance("disk"))
        self.metadata = MemoryMetadataStore()
        self.clock = VirtualClock(loop)
        self.settings = {**SETTINGS, **(settings or {})}
        self._log = dict(log or {})
        self.prompter = prompter or Prompter()
        self.history: list[str] = []
        self.recorder: Recorder | None = None
        """Where set, everything is written down: see `record`."""
        self.violations: list[str] = []
        """What may never be, and was seen while the world ran."""
        self.broken = asyncio.Event()
        """Set with the first of these."""
        self.broker: Broker | None = None
        self.faulty_calls: FaultyCalls | None = None
        """Where set, coordinators and leaders of the next start are far from each other."""
        self.removals = Removals(self.clock)
        """What somebody deleted, or retention took."""
        self.clients: dict[Client, None] = {}
        """Every process that was started."""
        self.may_end_early = False
        """A start does not know that the clock was set ahead meanwhile: what is open may be too old then."""
        self.largest_skew_ms = 0
        """Milliseconds that the clocks of clients are off from that of the node, at most."""
        self._producer_ids = ProducerIds()
        self._told_stable: Told = {}
        self._lives = 0
        self._starting: Broker | None = None

    @property
    def storage(self) -> Storage | None:
        """The storage of the node that runs now; None where none does."""
        return None if self.broker is None else self.broker.node.storage

    def chance(self, name: str) -> random.Random:
        """A random generator for a part, which draws the same whatever other parts draw."""
        return random.Random(f"{self.seed}/{name}")

    def record(self) -> Recorder:
        """Have a recorder write down every event from now on."""
        self.recorder = self.network.watch = Recorder(self.loop.time, self._durable, self._state_of)
        return self.recorder

    def _durable(self) -> Lsn | None:
        return None if self.storage is None else self.storage.durability.lsn

    def _state_of(self, transactional_id: str) -> str | None:
        known = None if self.broker is None else self.broker.node.transactions.describe(transactional_id)
        return None if known is None or known.error else known.state

    def note(self, text: str) -> None:
        """Write a line into the history."""
        self.history.append(f"{self.loop.time():.6f} {text}")
        if self.recorder is not None:
            self.recorder.note(text)

    def call_befell(self, call: str, what: str, about: str) -> None:
        """Note that a fault befalls a call between a coordinator and a leader."""
        self.note(f"{call} {what}: {about}")
        if self.recorder is not None:
            self.recorder.call_befell(call, what, about)

    @contextmanager
    def trouble(self, what: str) -> Iterator[None]:
        """Note that a trouble befalls the node while this block lasts."""
        if self.recorder is not None:
            self.recorder.trouble(what)
        yield
        if self.recorder is not None:
            self.recorder.trouble(what, is_over=True)

    def _changed(self, what: str) -> None:
        if self.recorder is not None:
            self.recorder.node(what, self._lives)

    def runtime(self, name: str) -> Runtime:
        """The runtime of a client of that name, or of the node."""
        return Runtime(self.clock, NamedNetwork(self.network, name), self.chance(name))

    async def until(self, time: float) -> None:
        """Wait until this time of the loop, in seconds; not at all if it is over."""
        if time > self.loop.time():
            came = asyncio.Event()
            self.loop.call_at(time, came.set)
            await came.wait()

    def skew_of(self, name: str) -> int:
        """Milliseconds that the clock of a client is ahead of the node's; negative: behind it."""
        most = self.largest_skew_ms
        return self.chance(f"{name}/skew").randint(-most, most) if most else 0

    async def ends(self) -> dict[TopicPartition, int]:
        """The offset behind what was written to each partition of the clients; waits until it is durable."""
        storage, found = self.storage, dict[TopicPartition, int]()
        assert storage is not None, "the broker is running"
        for at in self.cluster.places:
            partition = storage.partition(*at)
            assert partition is not None, "its topic was made"
            await storage.durability.wait(storage.lsn)
            found[at] = partition.high_watermark
        return found

    # The node

    async def start(self) -> None:
        """Start the broker on what the last one left."""
        self._lives += 1
        broker = Broker(
            data=Path("/data"),
            listen=ADDRESS,
            settings=self.settings,
            runtime=self.runtime(f"broker-{self._lives}"),
            disk=self.disk,
            metadata=self.metadata,
            markers=self.faulty_calls.markers if self.faulty_calls else lambda local: local,
            registrar=self.faulty_calls.registrar if self.faulty_calls else lambda local: local,
            **watched(
                self.violated,
                self._log,
                None if self.recorder is None else self.recorder.appended,
                self.removals,
                self._producer_ids,
                self._told_stable,
            ),
        )
        self._starting = broker
        await broker.start()
        self.broker = broker
        self._changed("started")
        self.note(f"broker started, life {self._lives}")

    async def crash(self, power_losses: float = 0.5) -> None:
        """End the node, with that probability by loss of power and else by kill -9, and start it again."""
        if self.random.random() < power_losses:
            self.lose_power()
        else:
            self.kill()
        await self.start_again()

    async def start_again(self) -> None:
        """Start the broker a moment after it ended."""
        await asyncio.sleep(self.random.uniform(0, 0.02))
        await self.start()

    def violated(self, what: str) -> None:
        """Note that something was seen that may never be: the run ends."""
        self.note(f"VIOLATION {what}")
        self.violations.append(f"{self.loop.time():.6f} {what}")
        self.broken.set()

    def kill(self) -> None:
        """End the broker by kill -9."""
        self._end()
        self.disk.crash()
        self._changed("killed")
        self.note("broker killed")

    def lose_power(self) -> None:
        """Switch the machine off: parts of what was not synced are lost."""
        self._end()
        self.disk.power_loss()
        self._changed("power lost")
        self.note("power lost")

    def give_up_start(self) -> None:
        """Clean up after a start during which the power was cut."""
        assert self._starting is not None, "the broker was being started"
        self.broker = self._starting
        self.lose_power()

    def _end(self) -> None:
        broker, self.broker = self.broker, None
        assert broker is not None, "the broker is running"
        broker.crash()
        self.network.take_down(PORT)

    async def stop(self) -> None:
        """Stop the broker cleanly.  Raises Violation if something was seen that may never be."""
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.stop()
            self._changed("stopped")
        await asyncio.sleep(0)
        if self.violations:
            raise Violation("; ".join(self.violations[:3]))
