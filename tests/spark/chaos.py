"""A query with state, from topic to topic, while everything that has a part in it fails at points drawn from a seed."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.crash.kill_cycles import Node
from tests.spark.killed_queries import PARTITIONS, expected, feed, make_source
from tests.spark.losing_line import HERE, THERE, LosingLine, losing_line
from tests.spark.standalone import Process, processes
from tests.spark.stateful_query import MOST, OPEN, TARGET

from fencepost.client.blocking import Admin

#: Steps of the query in one micro-batch: begun, written, committed.
STEPS: Final = 3
#: Requests of the query, source and sink, by their API keys: Produce, Fetch, ListOffsets, Metadata, FindCoordinator,
#: InitProducerId, EndTxn, TxnOffsetCommit, DescribeTransactions.
REQUESTS: Final = (0, 1, 2, 3, 10, 22, 26, 28, 65)
#: What fails: the driver with all that it started, one process of Spark's Java or of its Python, the node, or answers
#: that are lost on their way.
KINDS: Final = ("driver", "java", "python", "node", "answers")
_LOST_AT_ONCE: Final = 4
_LONGEST_PAUSE: Final = 1.0
_PATIENCE: Final = 300.0
_LIVES_IN_VAIN: Final = 5


class Fault(NamedTuple):
    """Something that fails `pause` seconds after the query has told `steps` more steps.

    `which`: a number to choose a process by, among those that are there then.  `requests`: whose answers are lost.
    """

    kind: str
    steps: int
    pause: float
    which: int
    requests: Sequence[int]


def faults(seed: int, count: int, batches: int = 2) -> list[Fault]:
    """Of every kind one, in some order, and so again; each at some step of so many micro-batches."""
    chance = random.Random(f"chaos of queries {seed}")
    kinds = [kind for _ in range(0, count, len(KINDS)) for kind in chance.sample(KINDS, len(KINDS))]
    return [
        Fault(
            kind,
            chance.randint(1, STEPS * batches),
            chance.uniform(0, _LONGEST_PAUSE),
            chance.randrange(1000),
            chance.sample(REQUESTS, _LOST_AT_ONCE),
        )
        for kind in kinds[:count]
    ]


@dataclass
class Life:
    """One process of the query and what it starts."""

    process: subprocess.Popen[str]
    told: queue.Queue[str | None] = field(default_factory=queue.Queue)
    """Its steps; None: it has ended."""

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("step "):
                self.told.put(line.split()[1])
        self.told.put(None)

    def wait_for(self, steps: int) -> bool:
        """Until it has told so many more; whether it still runs."""
        return all(self.told.get(timeout=_PATIENCE) is not None for _ in range(steps))

    def forget(self) -> None:
        """Steps that it has told by now."""
        while not self.told.empty():
            if self.told.get() is None:
                self.told.put(None)
                return

    def members(self, kind: str) -> list[Process]:
        """Its processes of that kind: `java`, or `python`."""
        running = processes()
        mine = {self.process.pid}
        for _ in range(4):
            mine |= {each.pid for each in running if each.parent in mine}
        named = {"java": "org.apache.spark.deploy.SparkSubmit", "python": "pyspark"}[kind]
        mine.discard(self.process.pid)
        return [each for each in running if each.pid in mine and named in each.command and " -c " not in each.command]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Chaos:
    """One run: what it did, and what it found."""

    plan: str
    store: str
    folder: Path
    batches: int = 3
    """Micro-batches that are fed before each fault, at least."""
    lives: int = 0
    lost: Counter[int] = field(default_factory=Counter)
    """Answers, by API key."""
    failures: list[str] = field(default_factory=list)
    """How lives ended that nobody killed."""

    @property
    def fed(self) -> int:
        """Numbers that are fed before each fault: two records each."""
        return self.batches * MOST // 2

    def run(self, todo: Sequence[Fault]) -> None:
        """Asserts that the target has what it is to have in the end, and nothing is left open."""
        node = Node(self.folder / "data")
        port = node.address.rsplit(":", 1)[1]
        here, node.address = f"{HERE}:{port}", f"{THERE}:{port}"
        node.command[node.command.index("--listen") + 1] = node.address
        node.command += ["--set", "transaction.state.log.num.partitions=1", "--set", "offsets.topic.num.partitions=1"]
        node.start()
        try:
            with losing_line(int(port)) as line:
                make_source(here)
                with Admin(here) as admin:
                    admin.create_topic(TARGET, partitions=PARTITIONS)
                self._suffer(todo, node, line, here)
                self.lost = line.lost
                found, meant = shown(here), expected(self.plan, self.fed * len(todo))
                surplus, missing = Counter(found) - Counter(meant), Counter(meant) - Counter(found)
                assert (surplus, missing) == (Counter(), Counter())
                with Admin(here) as admin:
                    assert "Ongoing" not in admin.list_transactions().values()
        finally:
            node.kill()

    def _suffer(self, todo: Sequence[Fault], node: Node, line: LosingLine, servers: str) -> None:
        life = self._born(servers)
        try:
            for number, fault in enumerate(todo):
                life.forget()
                feed(servers, range(self.fed * number, self.fed * (number + 1)))
                while not life.wait_for(fault.steps):
                    life = self._next(life, servers)
                threading.Event().wait(fault.pause)
                self._happen(fault, life, node, line)
            for _ in range(_LIVES_IN_VAIN):
                assert life.process.stdin is not None
                with suppress(BrokenPipeError):
                    life.process.stdin.close()
                while life.wait_for(1):
                    pass
                if life.process.wait(_PATIENCE) == 0:
                    return
                life = self._next(life, servers)
            raise AssertionError(f"the query does not come to its end: {self.failures[-1]}")
        finally:
            life.kill()

    def _happen(self, fault: Fault, life: Life, node: Node, line: LosingLine) -> None:
        if fault.kind == "node":
            node.kill()
            node.start()
        elif fault.kind == "answers":
            line.lose.update(fault.requests)
        elif fault.kind == "driver":
            life.kill()
        elif running := life.members(fault.kind):
            with suppress(ProcessLookupError):
                os.kill(running[fault.which % len(running)].pid, signal.SIGKILL)

    def _born(self, servers: str) -> Life:
        self.lives += 1
        words = [self.plan, self.store, servers, str(self.folder / "checkpoint"), OPEN]
        with (self.folder / f"life-{self.lives}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stateful_query", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        life = Life(process)
        threading.Thread(target=life.listen, daemon=True).start()
        return life

    def _next(self, life: Life, servers: str) -> Life:
        if life.process.wait(_PATIENCE) != -signal.SIGKILL:
            lines = (self.folder / f"life-{self.lives}.log").read_text().strip().splitlines()
            self.failures.append("\n".join(lines[-30:]))
        life.kill()  # what it may have left
        return self._born(servers)


def shown(servers: str) -> list[str]:
    """What read_committed shows of the target, by a client that is not ours."""
    settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 20}
    reader = Consumer({"bootstrap.servers": servers, "group.id": "audit", **settings})
    reader.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
    values, ended = list[str](), 0
    while ended < PARTITIONS:
        message = reader.poll(30)
        assert message is not None, "the target cannot be read to its end: a transaction hangs"
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
    reader.close()
    return sorted(values)


def main() -> None:
    """python -m tests.spark.chaos SEED FAULTS PLAN STORE FOLDER: one run, and what happened."""
    seed, count, plan, store, folder = sys.argv[1:]
    chaos = Chaos(plan, store, Path(folder))
    try:
        chaos.run(faults(int(seed), int(count)))
    finally:
        print(f"{chaos.lives} lives, answers lost by API key: {dict(chaos.lost)}")
        for failure in chaos.failures:
            print("--- a life that nobody killed ended so:", failure, sep="\n")


if __name__ == "__main__":
    main()
