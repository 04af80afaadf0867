"""One scenario for every client: a transaction is timed out, the application goes on, and is told what it is told.

A producer commits one transaction and opens another, which the coordinator times out (KIP-588).  Then the application
makes its next call, unaware.  When something fails it calls abort on the same producer and begins again; when the abort
fails, or a transaction for the third time, it builds a new producer.  In the end the log is read with read_committed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.apache_kafka import apache_kafka

from fencepost.broker import running_broker
from fencepost.client import BrokerError, TopicPartition
from fencepost.client.blocking import Admin, Consumer
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Runtime, SystemClock

#: the next call after the time-out -> how the page names it
CALLS = {
    "same": "send to the same partition",
    "new": "send to a new partition",
    "offsets": "send offsets in the transaction",
    "commit": "commit",
    "abort": "abort",
}
LATE_OFFSET = 5


class Told(str):
    """What a call told the application: empty where it worked, else the error by the client's own name."""

    __slots__ = ()


class StockProducer(Protocol):
    """A transactional producer of some client, every call waited for."""

    def start(self) -> Told: ...
    def begin(self) -> Told: ...
    def send(self, partition: int, value: str) -> Told: ...
    def offsets(self, offset: int) -> Told: ...
    def commit(self) -> Told: ...
    def abort(self) -> Told: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Names:
    """What a producer works with.  `group` is empty unless the next call sends offsets."""

    bootstrap: str
    transactional_id: str
    topic: str
    group: str
    timeout_ms: int


Client = Callable[[Names], StockProducer]


@dataclass(frozen=True)
class Target:
    """A broker to try clients on."""

    bootstrap: str
    timeout_ms: int
    #: lets the time of every open transaction run out
    pass_time: Callable[[], None] = lambda: None


# Brokers


@dataclass
class JumpingClock:
    """The machine's clock, moved forward at will, so that no slow machine times out what should live."""

    ahead: int = 0
    real: SystemClock = field(default_factory=SystemClock)

    def now(self) -> Milliseconds:
        return Milliseconds(self.real.now() + self.ahead)


@contextmanager
def fencepost(level: int) -> Iterator[Target]:
    """Fencepost at a transaction.version."""
    clock, real = JumpingClock(), Runtime.real()
    settings = {
        "num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
        "transaction.state.log.num.partitions": 4,
        "offsets.topic.num.partitions": 4,
    }
    with running_broker(settings=settings, runtime=Runtime(clock, real.network, real.random)) as broker:
        if level != 2:
            with Admin(broker.bootstrap_servers) as admin:
                admin.update_feature("transaction.version", level)

        def pass_time() -> None:
            for _ in range(16):  # more at once would be a clock that was set, and no time that has passed
                clock.ahead += 4_000
                time.sleep(0.2)

        yield Target(broker.bootstrap_servers, 60_000, pass_time)


@contextmanager
def kafka(level: int) -> Iterator[Target]:
    """Apache Kafka at a transaction.version.  Raises NoPeer."""
    settings = {"num.partitions": "2", "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with apache_kafka(settings, {"transaction.version": level}) as (bootstrap, _):
        yield Target(bootstrap, 2_000)


# The scenario


@dataclass
class Case:
    """One next call of one client."""

    client: Client
    names: Names
    call: str
    producer: StockProducer
    steps: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    offset_committed: bool = False

    def works(self, step: str, told: Told) -> bool:
        """Note what went wrong, if anything did."""
        if told:
            self.steps.append(f"{step}: {told}")
        return not told

    def transaction(self, prefix: str, producer: StockProducer, value: str) -> bool:
        """Begin, send and commit; whether the application was told that all of it worked."""
        done = (
            self.works(f"{prefix} begin", producer.begin())
            and self.works(f"{prefix} send", producer.send(0, value))
            and self.works(f"{prefix} commit", producer.commit())
        )
        if done:
            self.committed.append(value)
        return done

    def open(self) -> None:
        """A transaction that commits, and one that stays open."""
        producer = self.producer
        ready = self.works("start", producer.start()) and self.transaction("first", producer, "first")
        ready = ready and self.works("begin", producer.begin()) and self.works("send", producer.send(0, "lost"))
        if not ready:
            raise RuntimeError(f"{self.names.transactional_id} did not come as far as the time-out: {self.steps}")

    def next_call(self) -> Told:
        match self.call:
            case "same":
                return self.producer.send(0, "late")
            case "new":
                return self.producer.send(1, "late")
            case "offsets":
                return self.producer.offsets(LATE_OFFSET)
        return Told()

    def go_on(self) -> str:
        """What follows the time-out: "goes on", "rebuild" or "stuck", or a commit that should not have worked."""
        if self.call != "abort" and self._commit_late():
            return "commits"
        for step in ("next", "next but one"):
            if not self.works("abort", self.producer.abort()):
                break  # whether it would work all the same is chance
            if self.transaction(step, self.producer, "next"):
                return "goes on"
        self.producer.close()
        self.producer = self.client(self.names)
        rebuilt = self.works("rebuilt start", self.producer.start())
        return "rebuild" if rebuilt and self.transaction("rebuilt", self.producer, "rebuilt") else "stuck"

    def _commit_late(self) -> bool:
        step = "commit" if self.call == "commit" else "offsets" if self.call == "offsets" else "send"
        if not self.works(step, self.next_call()) or not self.works("commit", self.producer.commit()):
            return False
        self.committed += ["lost"] + (["late"] if step == "send" else [])
        self.offset_committed = self.call == "offsets"
        return True


def play(client: Client, target: Target) -> dict[str, str]:
    """Every next call of a client on a broker: call -> what came of it, as the page says it."""
    run = uuid.uuid4().hex[:8]
    cases: list[Case] = []
    with Admin(target.bootstrap) as admin:
        for call in CALLS:
            name = f"{call}-{run}"
            admin.create_topic(name, partitions=2)
            names = Names(target.bootstrap, name, name, name if call == "offsets" else "", target.timeout_ms)
            cases.append(Case(client, names, call, client(names)))
        try:
            for case in cases:
                case.open()
            target.pass_time()
            for case in cases:
                wait_for(admin, case.names.transactional_id, "CompleteAbort")
            return {case.call: outcome(admin, case) for case in cases}
        finally:
            for case in cases:
                case.producer.close()


def outcome(admin: Admin, case: Case) -> str:
    """Go on, then read: a cell of the page."""
    verdict = case.go_on()
    wait_for(admin, case.names.transactional_id, "CompleteCommit")
    found, offset = shown(case.names)
    if sorted(found) != sorted(case.committed) or (offset == LATE_OFFSET) != case.offset_committed:
        verdict = f"WRONG ({', '.join(found)}; offset {offset} are shown)"
    return verdict + "".join(f"; {step}" for step in case.steps)


def wait_for(admin: Admin, transactional_id: str, state: str, patience: float = 60) -> None:
    """Wait until a transactional id is in a state."""
    end = time.monotonic() + patience
    while (found := admin.describe_transaction(transactional_id)) is None or found.state != state:
        if time.monotonic() > end:
            raise TimeoutError(f"{transactional_id} did not become {state}: {found}")
        time.sleep(0.05)


def shown(names: Names) -> tuple[list[str], int]:
    """What read_committed shows of the topic, and the group's committed offset (-1: none)."""
    partitions = [TopicPartition(names.topic, number) for number in range(2)]
    with Consumer(bootstrap_servers=names.bootstrap, group_id=names.group or None) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        values = list[str]()
        while not consumer.next_offsets() or any(consumer.position(at) < ends[at] for at in partitions):
            values += [(record.value or b"").decode() for record in consumer.poll(500)]
        if not names.group:
            return values, -1
        try:
            committed = consumer.committed(partitions[:1])[partitions[0]]
        except BrokerError as error:
            return values, -int(error.code)
        return values, -1 if committed is None else committed.offset
