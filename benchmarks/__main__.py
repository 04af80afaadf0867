"""Run every figure against Apache Kafka in one go, side by side, and print the ratios.

Absolute times mean little on a shared machine: each figure is taken in turn on the peers, several rounds, and the
ratio of the medians is what counts.  Without Java or Maven only our own figures are printed, and a line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from benchmarks.apache_kafka import NoPeer, apache_kafka, java
from benchmarks.fencepost_node import fencepost_node, resident_megabytes
from benchmarks.spark_peer import spark_peer

JAVA_SOURCE = Path(__file__).parent / "java" / "Transactions.java"
PEER = "apache kafka"

#: figure -> (budget of the durable node as a ratio to Apache Kafka, of --flush=os)
BUDGETS = {
    "transactions/s, own client": (5.0, 10.0),
    "transactions/s, confluent-kafka": (3.0, 3.0),
    "transactions/s, aiokafka": (20.0, 20.0),
    "transactions/s, 8 Java producers": (1.5, 1.5),
    "transactions/s, 32 Java producers": (1.5, 1.5),
    "produce 1 KB msg/s, librdkafka": (1.0, 1.5),
    "consume 1 KB msg/s, librdkafka": (1.0, 1.0),
    "Spark read, rows/s": (2.0, 2.0),
    "Spark write, rows/s": (1.0, 1.0),
    "Spark topic to topic, rows/s": (1.0, 1.0),
}

Figures = dict[str, dict[str, list[float]]]


def run(command: list[str], **environment: str) -> dict[str, float]:
    """Run one program and read its line of JSON."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    if figures.get("errors"):
        raise SystemExit(f"{' '.join(command)}: {figures['errors']} producers failed:\n{done.stderr[-2000:]}")
    return figures


def program(name: str, bootstrap: str, *options: str) -> dict[str, float]:
    return run([sys.executable, "-m", f"benchmarks.{name}", "--bootstrap", bootstrap, *options])


def java_producers(bootstrap: str, producers: int, each: int, round_: int) -> dict[str, float]:
    return run(java(str(JAVA_SOURCE), bootstrap, str(producers), str(each), f"java-{producers}-{round_}"))


def spark_round(bootstrap: str, name: str, figures: Figures, scale: float) -> None:
    """Spark's figures once on one node: our source and sink, or its own connector."""
    options = ["-m", "benchmarks.spark", "--bootstrap", bootstrap, "--rows", str(int(1_000_000 * scale))]
    if name == PEER:
        python, found = spark_peer()
        done = run([str(python), *options, "--engine", "kafka", "--jars", found], PYSPARK_PYTHON=str(python))
    else:
        done = run([sys.executable, *options, "--engine", "fencepost"])
    for figure, key in (("read", "read"), ("write", "written"), ("topic to topic", "streamed")):
        figures[f"Spark {figure}, rows/s"][name].append(done[f"{key}_per_second"])
        print(f"  {name:18} {f'Spark {figure}, rows/s':36} {done[f'{key}_per_second']:12,.1f}", flush=True)


def one_round(bootstrap: str, name: str, figures: Figures, round_: int, scale: float, with_java: bool) -> None:
    """Take every figure once on one node."""

    def note(figure: str, value: float) -> None:
        figures[figure][name].append(value)
        print(f"  {name:18} {figure:36} {value:12,.1f}", flush=True)

    # Apache Kafka has no Python client that speaks its newest transactions but ours: its own Java client is the peer.
    if name == PEER:
        each = int(300 * scale)
        note("transactions/s, own client", java_producers(bootstrap, 1, each, round_)["transactions_per_second"])
    else:
        own = program("transactions", bootstrap, "--client", "fencepost", "--count", str(int(1000 * scale)))
        note("transactions/s, own client", own["transactions_per_second"])
    for client in ("confluent", "aiokafka"):
        slow = int((100 if name == PEER else 400) * scale)
        figure = "transactions/s, " + {"confluent": "confluent-kafka"}.get(client, client)
        done = program("transactions", bootstrap, "--client", client, "--count", str(slow))
        note(figure, done["transactions_per_second"])
    if with_java:
        for producers in (8, 32):
            done = java_producers(bootstrap, producers, int(200 * scale), round_)
            note(f"transactions/s, {producers} Java producers", done["transactions_per_second"])
    done = program("produce_consume", bootstrap, "--count", str(int(300_000 * scale)))
    note("produce 1 KB msg/s, librdkafka", done["produced_per_second"])
    note("consume 1 KB msg/s, librdkafka", done["consumed_per_second"])


def table(figures: Figures) -> str:
    """The medians and their ratios to the peer, as a Markdown table."""
    names = sorted({name for values in figures.values() for name in values})
    lines = ["| figure | " + " | ".join(names) + " | ratio durable | ratio os | budget |"]
    lines.append("|---" * (len(names) + 4) + "|")
    for figure, values in figures.items():
        medians = {name: statistics.median(values[name]) for name in values}

        def ratio(name: str, medians: dict[str, float] = medians) -> str:
            return f"{medians[name] / medians[PEER]:.2f}" if PEER in medians and name in medians else "-"

        budget = " / ".join(f"{b:g}" for b in BUDGETS[figure]) if figure in BUDGETS else "-"
        cells = [f"{medians[name]:,.0f}" if name in medians else "-" for name in names]
        lines.append(
            f"| {figure} | {' | '.join(cells)} | {ratio('fencepost durable')} | {ratio('fencepost os')} | {budget} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="size of each run, 1.0 as published")
    parser.add_argument("--only", choices=("clients", "spark"), help="leave the other figures out")
    options = parser.parse_args()
    figures: Figures = defaultdict(lambda: defaultdict(list))
    with ExitStack() as nodes:
        addresses: dict[str, str] = {}
        memory: dict[str, int] = {}
        for flush in ("durable", "os"):
            bootstrap, process_id, seconds = nodes.enter_context(fencepost_node(flush))
            addresses[f"fencepost {flush}"], memory[f"fencepost {flush}"] = bootstrap, process_id
            print(f"fencepost {flush}: ready in {seconds:.2f} s, {resident_megabytes(process_id):.0f} MB at rest")
        try:
            addresses[PEER], memory[PEER] = nodes.enter_context(apache_kafka())
        except NoPeer as reason:
            print(f"no ratios: {reason}")
        for round_ in range(options.rounds):
            print(f"round {round_ + 1} of {options.rounds}", flush=True)
            for name, bootstrap in addresses.items():
                if options.only != "spark":
                    one_round(bootstrap, name, figures, round_, options.scale, with_java=PEER in addresses)
                if options.only != "clients":
                    try:
                        spark_round(bootstrap, name, figures, options.scale)
                    except NoPeer as reason:
                        print(f"no Spark figures of {name}: {reason}")
        for name, process_id in memory.items():
            print(f"{name}: {resident_megabytes(process_id):.0f} MB after the load")
    print(table(figures))


if __name__ == "__main__":
    main()
