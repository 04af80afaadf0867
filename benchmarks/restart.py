"""Seconds from kill -9 to serving again, with so many MB of log."""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

from demo.node import Node

from benchmarks.measure import fresh_topic, report
from benchmarks.produce_consume import produce


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent / ".bench"
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        node = Node(Path(folder) / "data", Path(folder) / "log")
        node.start()
        topic = fresh_topic(node.address)
        produce(node.address, topic, options.megabytes * 1000, 1000)
        node.stop(signal.SIGKILL)
        begin = time.perf_counter()
        node.start()
        fresh_topic(node.address)
        seconds = time.perf_counter() - begin
        node.stop()
    report(seconds=seconds)


if __name__ == "__main__":
    main()
