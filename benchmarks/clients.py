"""What our client is worth beside others on one node: transactions of one record, and what importing it takes.

    python -m benchmarks.clients --rounds 3

Transactions are one after the other, of one producer; every measurement is a process of its own, in turn, on each of
three nodes: Fencepost `durable`, Fencepost `os`, and Apache Kafka where there is Java (a line says so where not).  An
import is a process that does nothing else: its processor time and most memory, less those of `import asyncio`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from contextlib import ExitStack

from benchmarks.__main__ import program, run
from benchmarks.apache_kafka import NoPeer, apache_kafka
from benchmarks.fencepost_node import fencepost_node

CLIENTS = ("fencepost", "confluent", "aiokafka")
#: Apache Kafka makes some of them wait long after each transaction.
TRANSACTIONS = {"Fencepost durable": 1000, "Fencepost os": 1000, "Apache Kafka": 200}
IMPORTS = ("asyncio", "fencepost", "fencepost.client", "confluent_kafka", "aiokafka")

_IMPORT = """
import json, resource
import asyncio, {module}
used = resource.getrusage(resource.RUSAGE_SELF)
megabytes = used.ru_maxrss * 1024 / 1e6
print(json.dumps({{"cpu_ms": (used.ru_utime + used.ru_stime) * 1e3, "megabytes": megabytes}}))
"""


def transactions(rounds: int) -> None:
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as up:
        nodes = {
            "Fencepost durable": up.enter_context(fencepost_node("durable"))[0],
            "Fencepost os": up.enter_context(fencepost_node("os"))[0],
        }
        try:
            nodes["Apache Kafka"] = up.enter_context(apache_kafka())[0]
        except NoPeer as reason:
            print(f"without Apache Kafka: {reason}")
        for _ in range(rounds):
            for node, bootstrap in nodes.items():
                for client in CLIENTS:
                    count = str(TRANSACTIONS[node])
                    taken = program("transactions", bootstrap, "--client", client, "--count", count)
                    rates[node, client].append(taken["transactions_per_second"])
    for (node, client), all_ in rates.items():
        ratio = statistics.median(rates[node, "fencepost"]) / statistics.median(all_)
        print(f"{node:18} {client:10} {statistics.median(all_):8,.0f}/s (most {max(all_):8,.0f})  {ratio:6.2f}")


def imports(rounds: int) -> None:
    cpu: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for module in IMPORTS:
            # An empty value: what was compiled once is kept, as where a client is installed, whoever calls this.
            taken = run([sys.executable, "-c", _IMPORT.format(module=module)], PYTHONDONTWRITEBYTECODE="")
            if number == 0:
                continue  # what compiles is not what imports
            cpu[module].append(taken["cpu_ms"])
            memory[module].append(taken["megabytes"])
    for module in IMPORTS[1:]:
        milliseconds = statistics.median(cpu[module]) - statistics.median(cpu["asyncio"])
        megabytes = statistics.median(memory[module]) - statistics.median(memory["asyncio"])
        print(f"import {module:18} {milliseconds:6.0f} ms of a processor  {megabytes:5.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    imports(3 * options.rounds)
    transactions(options.rounds)


if __name__ == "__main__":
    main()
