"""What every benchmark program shares: its command line, its clock and its one line of output."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic


def arguments(description: str, **defaults: int | str) -> argparse.Namespace:
    """--bootstrap and one option per keyword, its type taken from the default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


def report(**figures: float) -> None:
    """Print the figures as one line of JSON."""
    print(json.dumps({name: round(figure, 4) for name, figure in figures.items()}), flush=True)


def fresh_topic(bootstrap: str, partitions: int = 1) -> str:
    """Create a topic that nobody has written to, and return its name."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)
    return topic


def latencies(count: int, once: Callable[[], None]) -> dict[str, float]:
    """Call `once` count times in sequence: rate per second, median and 99th percentile in milliseconds."""
    times = []
    start = time.perf_counter()
    for _ in range(count):
        begin = time.perf_counter()
        once()
        times.append(time.perf_counter() - begin)
    return summary(times, time.perf_counter() - start)


def summary(times: list[float], seconds: float) -> dict[str, float]:
    """Rate, median and 99th percentile of single times (seconds) that took `seconds` together."""
    times.sort()
    return {
        "transactions_per_second": len(times) / seconds,
        "p50_ms": times[len(times) // 2] * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
    }
