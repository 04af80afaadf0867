"""Our Spark pipelines beside Spark's own Kafka connector, in turn, in sessions that are warm: medians and ratios.

    python -m benchmarks.spark_beside                                # a million rows of 100 bytes, and of 1 KB
    python -m benchmarks.spark_beside --rows 100000 --rounds 1       # a look
    python -m benchmarks.spark_beside --only read write              # some of the figures

Every side has one session (local[2]) for the whole run.  Each figure is taken on all sides before the next one is, so
that a slow minute of the machine is everybody's.  Ours is exactly once; Spark's own sink is at least once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from benchmarks.apache_kafka import NoPeer, apache_kafka
from benchmarks.fencepost_node import fencepost_node
from benchmarks.measure import fresh_topic
from benchmarks.spark import PARTITIONS, Order, fill
from benchmarks.spark_peer import spark_peer
from fencepost.compiled.files import FORCE_PURE

PEER = "Spark's own on Apache Kafka"
IN_PYTHON = "ours on Fencepost, nothing compiled"


class Figure(NamedTuple):
    """What is measured: a method of `benchmarks.spark.Work`, and the keys of its rows.

    `aim`: the ratio to the peer; `in_python`: the same where nothing is compiled.
    """

    what: str
    key: str
    aim: float
    in_python: float


FIGURES: Final = {
    "read": Figure("read", "number", 2.0, 1.2),
    "write": Figure("write", "number", 1.2, 1.0),
    "stream": Figure("stream", "number", 1.0, 1.0),
    "write-no-keys": Figure("write", "none", 1.2, 1.0),
    "write-long-keys": Figure("write", "long", 1.2, 1.0),
}


#: label of a figure and bytes of a value -> side -> rows per second of each round
Rates = dict[tuple[str, int], dict[str, list[float]]]


class Job(NamedTuple):
    """How much is measured."""

    rows: int
    size: int
    warm: int
    rounds: int


class Taken(NamedTuple):
    """What one round on one side gave, in rows per second."""

    side: str
    rate: float


class Side(NamedTuple):
    """A session, and the cluster that it works on."""

    bootstrap: str
    session: subprocess.Popen[str]

    def seconds(self, order: Order) -> float:
        assert self.session.stdin is not None and self.session.stdout is not None
        print(json.dumps(order._asdict()), file=self.session.stdin, flush=True)
        for line in self.session.stdout:
            if line.startswith("{"):
                return float(json.loads(line)["seconds"])
        raise SystemExit(f"a session of Spark ended while it was to {order.what}")


def start(stack: ExitStack, python: str, bootstrap: str, *options: str, **environment: str) -> Side:
    command = [python, "-m", "benchmarks.spark", "--follow", "--bootstrap", bootstrap, *options]
    session = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": python, **environment},
    )
    stack.callback(session.wait)
    assert session.stdin is not None
    stack.callback(session.stdin.close)
    return Side(bootstrap, session)


def sides(stack: ExitStack) -> dict[str, Side]:
    """Ours on a durable node of ours, compiled and not; where there is a peer, ours on it, and its own."""
    ours = stack.enter_context(fencepost_node("durable"))[0]
    found = {
        "ours on Fencepost": start(stack, sys.executable, ours),
        IN_PYTHON: start(stack, sys.executable, ours, **{FORCE_PURE: "1"}),
    }
    try:
        python, jars = spark_peer()
        # What a round has written goes at once, or the disk fills.
        theirs, _ = stack.enter_context(apache_kafka({"log.segment.delete.delay.ms": "0"}))
    except NoPeer as reason:
        print(f"no ratios: {reason}")
        return found
    found["ours on Apache Kafka"] = start(stack, sys.executable, theirs)
    found[PEER] = start(stack, str(python), theirs, "--engine", "kafka", "--jars", jars)
    return found


def rounds(side_of: Mapping[str, Side], label: str, sources: Mapping[str, str], options: Job) -> Iterator[Taken]:
    """Take a figure on every side in turn, the rounds for warming too.

    What is written goes to a topic of its own that is deleted after.  All of them are made before: the producer of the
    peer is known to wait two minutes, and fail, at one that is only just there.
    """
    figure, count = FIGURES[label], options.warm + options.rounds
    sinks = {name: [fresh_topic(side.bootstrap, PARTITIONS) for _ in range(count)] for name, side in side_of.items()}
    for round_ in range(count):
        for name, side in side_of.items():
            sink = sinks[name][round_]
            order = Order(figure.what, sources[side.bootstrap], sink, options.rows, options.size, figure.key)
            rate = options.rows / side.seconds(order)
            kind = "warming" if round_ < options.warm else f"round {round_ - options.warm + 1}"
            print(f"{kind:8} {name:36} {label:16} {options.size:5} B {rate:12,.0f} rows/s", flush=True)
            admin = AdminClient({"bootstrap.servers": side.bootstrap})
            for done in admin.delete_topics([sink]).values():
                done.result(30)
            if round_ >= options.warm:
                yield Taken(name, rate)


def table(rates: Rates, names: list[str]) -> str:
    """Medians, and ratios to the peer, as Markdown."""
    ours = [name for name in names if name != PEER]
    heads = [*(f"{name}, rows/s" for name in names), *(f"{name}: ratio (of the rounds), aim" for name in ours)]
    lines = ["| figure | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for (label, size), found in rates.items():
        if len(found) < len(names):
            continue
        medians = {name: statistics.median(found[name]) for name in names}
        cells = [f"{medians[name]:,.0f}" for name in names]
        for name in ours:
            if PEER not in medians:
                cells.append("-")
                continue
            each = [mine / theirs for mine, theirs in zip(found[name], found[PEER], strict=False)]
            aim = FIGURES[label].in_python if name == IN_PYTHON else FIGURES[label].aim
            ratio = medians[name] / medians[PEER]
            cells.append(f"{ratio:.2f} ({min(each):.2f} to {max(each):.2f}), {aim:g}")
        lines.append(f"| {label}, {size} B | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=5, help="that are measured")
    parser.add_argument("--warm", type=int, default=2, help="rounds before them")
    parser.add_argument("--only", choices=FIGURES, nargs="+", default=list(FIGURES))
    options = parser.parse_args()
    begin = time.monotonic()
    rates: Rates = defaultdict(lambda: defaultdict(list))
    names: list[str] = []
    try:
        with ExitStack() as stack:
            found = sides(stack)
            names = list(found)
            for size in options.sizes:
                sources = {}
                for bootstrap in {side.bootstrap for side in found.values()}:
                    sources[bootstrap] = fresh_topic(bootstrap, PARTITIONS)
                    fill(bootstrap, sources[bootstrap], options.rows, size)
                job = Job(options.rows, size, options.warm, options.rounds)
                for label in options.only:
                    for name, rate in rounds(found, label, sources, job):
                        rates[label, size][name].append(rate)
    finally:  # what is there is worth something, though a session has ended
        print(f"{time.monotonic() - begin:.0f} s, load {os.getloadavg()[0]:.1f} at the end")
        print(table(rates, names))


if __name__ == "__main__":
    main()
