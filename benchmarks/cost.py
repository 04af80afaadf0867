"""What one request costs a node in processor time, by a bare socket, beside another checkout of Fencepost.

    python -m benchmarks.cost --against ../earlier            # µs of the node's process per request
    python -m benchmarks.cost --against ../earlier --bytecodes  # how many bytecodes its main thread runs: exact

`../earlier` is a checkout with a `.venv` of its own.  Both nodes are up at the same time and are measured in turn, in
many short rounds: what others do on the machine then falls on both.  The minimum of the rounds is the figure that says
most; the median is printed beside it.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bytecodes import read_counts
from benchmarks.prober import Wire, produce_request
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId

ROOT = Path(__file__).resolve().parent.parent
_TOPIC = "measured"
_SMALL, _LARGE = 0, 1
"""Partitions: of one-record batches, and of batches of a megabyte; so is each one behind them."""
_PARTITIONS = 5


class Client:
    """Asks one node for one thing after the other, each as soon as the one before it is answered."""

    def __init__(self, address: str) -> None:
        self._wire = Wire(address)
        topic = CreatableTopic(
            name=_TOPIC, num_partitions=_PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        self._ask(CreateTopicsRequest(topics=[topic]), 5)
        self._producers = {name: self._producer(name) for name in ("tv1", "tv2")}
        self._sequences = dict.fromkeys(self._producers, 0)
        now = int(time.time() * 1000)
        self._one = self._wire.frame(produce_request(_TOPIC, {_SMALL: encode_batch([(now, None, b"x" * 100, ())])}))
        batch = encode_batch([(now, None, b"x" * 1000, ()) for _ in range(900)])
        self._many = self._wire.frame(produce_request(_TOPIC, {_LARGE: batch}))
        self._send(self._one, ProduceRequest)
        every = dict.fromkeys(range(_LARGE, _PARTITIONS), batch)
        self._send(self._wire.frame(produce_request(_TOPIC, every)), ProduceRequest)

    def _ask(self, request: Any, version: int) -> Any:
        return self._wire.ask(request, version)

    def _send(self, frame: bytes, request: type[Any]) -> Any:
        self._wire.send(frame)
        return self._wire.receive(request)

    def _producer(self, name: str) -> tuple[int, int]:
        # Whoever asks where the coordinator is has the journal made.
        while self._ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4).coordinators[0].error_code:
            time.sleep(0.01)
        begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        while (answer := self._ask(begin, 5)).error_code:
            time.sleep(0.01)
        return answer.producer_id, answer.producer_epoch

    def _write(self, name: str, version: int) -> None:
        producer_id, epoch = self._producers[name]
        record = (int(time.time() * 1000), None, b"x" * 100, ())
        batch = encode_batch(
            [record],
            producer_id=ProducerId(producer_id),
            producer_epoch=Epoch(epoch),
            base_sequence=self._sequences[name],
            transactional=True,
        )
        data = TopicProduceData(name=_TOPIC, partition_data=[PartitionProduceData(index=_SMALL, records=batch)])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=60_000, topic_data=[data])
        error = self._ask(request, version).responses[0].partition_responses[0].error_code
        if error:
            raise SystemExit(f"a Produce v{version} was answered with error {error}")

    def _end(self, name: str, version: int) -> Any:
        producer_id, epoch = self._producers[name]
        end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        answer = self._ask(end, version)
        if answer.error_code:
            raise SystemExit(f"an EndTxn v{version} was answered with error {answer.error_code}")
        return answer

    def tv2(self) -> None:
        """A transaction of one record: Produce, EndTxn (KIP-890 part 2)."""
        self._write("tv2", 12)
        ended = self._end("tv2", 5)
        self._producers["tv2"] = ended.producer_id, ended.producer_epoch

    def tv1(self) -> None:
        """A transaction of one record: AddPartitionsToTxn, Produce, EndTxn."""
        producer_id, epoch = self._producers["tv1"]
        topics = [AddPartitionsToTxnTopic(name=_TOPIC, partitions=[_SMALL])]
        add = AddPartitionsToTxnRequest(
            transactional_id="tv1", producer_id=producer_id, producer_epoch=epoch, topics=topics
        )
        self._ask(add, 3)
        self._write("tv1", 11)
        self._sequences["tv1"] += 1
        self._end("tv1", 4)

    def produce(self) -> None:
        self._send(self._one, ProduceRequest)

    def fetch(self) -> None:
        self._fetch([_SMALL], 200)

    def produce_large(self) -> None:
        self._send(self._many, ProduceRequest)

    def fetch_large(self) -> None:
        self._fetch([_LARGE], 1024 * 1024)

    def fetch_large_of_many(self) -> None:
        self._fetch(range(_LARGE, _PARTITIONS), 1024 * 1024)

    def _fetch(self, partitions: Iterable[int], size: int) -> None:
        wanted = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=size) for each in partitions]
        topics = [FetchTopic(topic=_TOPIC, partitions=wanted)]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=topics)
        if not all(found.records for found in self._ask(request, 12).responses[0].partitions):
            raise SystemExit("a Fetch was answered with nothing")


#: figure -> (what is done, how often in a round)
FIGURES: dict[str, tuple[Callable[[Client], None], int]] = {
    "transaction of one record, Produce v12": (Client.tv2, 200),
    "transaction of one record, Produce v11": (Client.tv1, 150),
    "Produce of one record": (Client.produce, 400),
    "Fetch of one record": (Client.fetch, 400),
    "Produce of 900 records, 0.9 MB": (Client.produce_large, 10),
    "Fetch of 0.9 MB": (Client.fetch_large, 20),
    "Fetch of 3.6 MB, of four partitions": (Client.fetch_large_of_many, 5),
}


class Node:
    """A running node of some checkout."""

    def __init__(self, process: subprocess.Popen[str], address: str, counts: Path | None) -> None:
        self._process = process
        self._clock = ~process.pid << 3 | 2  # the processor clock of a process, as the kernel numbers them
        self._counts = counts
        self.client = Client(address)

    def used(self) -> float:
        """Microseconds of processor time, all threads together; or bytecodes of the main thread."""
        if self._counts is None:
            return time.clock_gettime(self._clock) * 1e6
        return sum(self.functions().values())

    def functions(self) -> dict[str, int]:
        """How many bytecodes each function has run."""
        assert self._counts is not None, "bytecodes are counted"
        self._counts.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        return read_counts(self._counts)


@contextmanager
def running(checkout: Path, flush: str, *, count: bool) -> Iterator[Node]:
    """A node of this checkout with a data directory of its own."""
    base = ROOT / ".bench"
    base.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base) as folder:
        counts = Path(folder) / "counts" if count else None
        program = ["-m", "fencepost"] if counts is None else [str(ROOT / "benchmarks" / "bytecodes.py"), str(counts)]
        command = [str(checkout / ".venv" / "bin" / "python"), *program, "serve", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*command, "--data", f"{folder}/data", f"--flush={flush}"], stdout=subprocess.PIPE, text=True, cwd=folder
        )
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
            if found is None:
                raise SystemExit("fencepost serve did not become ready")
            yield Node(process, found[0], counts)
        finally:
            process.terminate()
            process.wait()


def measure(nodes: dict[str, Node], rounds: int, scale: float, only: str) -> None:
    """Print each figure: its minimum and its median on each node, and their ratios to those of the first."""
    for figure, (once, times) in FIGURES.items():
        if only not in figure:
            continue
        each = max(1, int(times * scale))
        taken: dict[str, list[float]] = defaultdict(list)
        for round_ in range(rounds + 1):
            for name, node in nodes.items():
                begun = node.used()
                for _ in range(each):
                    once(node.client)
                if round_:  # the first one warms up
                    taken[name].append((node.used() - begun) / each)
        least = {name: min(values) for name, values in taken.items()}
        medians = {name: statistics.median(values) for name, values in taken.items()}
        first, *others = nodes
        line = f"{figure:42}" + "".join(f" {name} {least[name]:9,.1f} ({medians[name]:9,.1f})" for name in nodes)
        print(line + "".join(f"  {least[o] / least[first]:.3f} ({medians[o] / medians[first]:.3f})" for o in others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, whose figures come first")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--flush", default="os", choices=("os", "durable"))
    parser.add_argument("--bytecodes", action="store_true", help="count bytecodes, which takes a hundred times as long")
    parser.add_argument("--scale", type=float, default=1.0, help="size of each round")
    parser.add_argument("--only", default="", help="only the figures whose name holds this")
    options = parser.parse_args()
    checkouts = {"this": ROOT} if options.against is None else {"before": options.against.resolve(), "this": ROOT}
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(running(checkout, options.flush, count=options.bytecodes))
            for name, checkout in checkouts.items()
        }
        measure(nodes, options.rounds, options.scale, options.only)


if __name__ == "__main__":
    main()
