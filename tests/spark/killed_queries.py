"""Queries with state whose process is killed again and again, and what is in their topic in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.spark.stateful_query import LATE, SOURCE, TARGET, WINDOW

from fencepost.broker import running_broker
from fencepost.client import TopicPartition
from fencepost.client.blocking import Admin, Consumer, Producer

#: Event times of the first record and the last, in seconds since 1970; each second has a value that comes twice.
FIRST, COUNT = 1_700_000_000, 100
#: Of the target.
PARTITIONS: Final = 3
_PATIENCE: Final = 240.0


def make_source(servers: str, source: str = SOURCE) -> None:
    with Admin(servers) as admin:
        # Its records are as old as they say: a run that takes minutes would see them removed.
        admin.create_topic(source, partitions=1, config={"retention.ms": "-1"})


def feed(servers: str, numbers: range, source: str = SOURCE) -> None:
    with Producer(servers) as producer:
        for number in numbers:
            for _ in range(2):
                producer.send(source, b"%d" % (number % 7), timestamp=(FIRST + number) * 1000)
        producer.flush()


def fill(servers: str, source: str = SOURCE) -> None:
    make_source(servers, source)
    feed(servers, range(COUNT), source)


def expected(plan: str, fed: int = COUNT) -> list[str]:
    """What the query is to have written when it was fed so many numbers, whatever befell it."""
    if plan != "windows":
        total = Counter(number % 7 for number in range(fed) for _ in range(2))
        return sorted(f"{value}:{n}" for value, count in total.items() for n in range(1, count + 1))
    starts = Counter((FIRST + number) // WINDOW * WINDOW for number in range(fed))
    watermark = FIRST + fed - 1 - LATE
    return sorted(f"{start}:{count}" for start, count in starts.items() if start + WINDOW <= watermark)


def live(plan: str, store: str, servers: str, checkpoint: Path, deed: str | None) -> list[str]:
    """One process until it is done or kills itself; the steps it came to."""
    words = [plan, store, servers, str(checkpoint), *([] if deed is None else [deed])]
    command = [sys.executable, "-m", "tests.spark.stateful_query", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PATIENCE, start_new_session=True, check=False
    )
    assert done.returncode == (0 if deed is None else -signal.SIGKILL), done.stderr[-3000:]
    return [line.removeprefix("step ") for line in done.stdout.splitlines() if line.startswith("step ")]


def written(servers: str, target: str = TARGET) -> list[str]:
    with Consumer(bootstrap_servers=servers) as consumer:
        places = [TopicPartition(target, n) for n in range(PARTITIONS)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found = [(record.value or b"").decode() for record in consumer.poll(1000)]
        while any(consumer.position(at) < ends[at] for at in places):
            found += [(record.value or b"").decode() for record in consumer.poll(1000)]
    return sorted(found)


def killed_at(deeds: Sequence[str], plan: str, store: str, folder: Path) -> list[list[str]]:
    """Run it, killed at each of these steps and started again, then to its end; the steps of every life.

    Asserts that its topic has what it is to have.
    """
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        servers = broker.bootstrap_servers
        fill(servers)
        with Admin(servers) as admin:
            admin.create_topic(TARGET, partitions=PARTITIONS)
        lives = [live(plan, store, servers, folder / "checkpoint", deed) for deed in (*deeds, None)]
        assert written(servers) == expected(plan)
    return lives
