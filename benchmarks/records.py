"""What the work on one record costs: compiled, in Python, and in aiokafka's codec.

    python -m benchmarks.records    # ns of processor time per record

Each round is two new processes, one of them with FENCEPOST_PURE=1, in turn: what others do on the machine then falls on
both.  The minimum of the rounds is the figure that says most; the median is printed beside it.
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
from collections.abc import Callable, Iterator

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from fencepost.client.records import opened
from fencepost.compiled.files import FORCE_PURE
from fencepost.compiled.in_use import IN_USE
from fencepost.protocol.batch import HEADER_SIZE, headers, read_header
from fencepost.protocol.partitioning import murmur2
from fencepost.protocol.record_columns import FIELDS, record_batches
from fencepost.protocol.record_scan import scan
from fencepost.protocol.records import BatchBuilder, encode_batch
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import TopicPartition

_NOW = 1_700_000_000_000
_BATCH_BYTES = 900_000
_TIMES = 5


def works(size: int) -> Iterator[tuple[str, Callable[[], object], int]]:
    """What is measured with values of so many bytes: its name, the work, and of how many records it is."""
    count = _BATCH_BYTES // (size + 20)
    value = b"x" * size
    keys: list[bytes | None] = [b"key%05d" % n for n in range(count)]
    values: list[bytes | None] = [value] * count
    batch = encode_batch([(_NOW + n // 7, key, value, ()) for n, key in enumerate(keys)])
    body, header, view = memoryview(batch)[HEADER_SIZE:], read_header(batch), memoryview(batch)

    def append() -> None:
        builder = BatchBuilder()
        for key in keys:
            builder.append(_NOW, key, value)

    def append_in_aiokafka() -> None:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2 * _BATCH_BYTES)
        for place, key in enumerate(keys):
            builder.append(place, _NOW, key, value, [])

    def to_columns() -> None:
        for _ in record_batches(view, list(headers(batch)), TopicPartition("t", 0), 0, count, list(FIELDS)):
            pass

    what = f"{size} B"
    yield f"read for a consumer, {what}", lambda: opened(view, None, 0)[0].records(TopicPartition("t", 0), 0), count
    yield f"read by aiokafka, {what}", lambda: list(DefaultRecordBatch(batch)), count
    yield f"read into Arrow columns for Spark, {what}", to_columns, count
    yield f"write one by one, {what}", append, count
    yield f"write one by one in aiokafka, {what}", append_in_aiokafka, count
    yield f"write together, {what}", lambda: BatchBuilder().extend(_NOW, keys, values, 2 * _BATCH_BYTES), count
    yield f"check all in a leader, {what}", lambda: finish(scan(body, header, Pace(count + 1))), count
    yield f"check 16 and all sizes in a leader, {what}", lambda: finish(scan(body, header, Pace(count + 1), 16)), count
    yield f"hash a key of {what}", lambda: [murmur2(value) for _ in keys], count


def once() -> dict[str, float]:
    """Nanoseconds per record of each work, the least of some tries."""
    found = {}
    for size in (100, 1000):
        for name, work, count in works(size):
            took = []
            for _ in range(_TIMES):
                begun = time.process_time_ns()
                work()
                took.append(time.process_time_ns() - begun)
            found[name] = min(took) / count
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--once", action="store_true", help="one round of this process, as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once()))
        return
    if IN_USE.module is None:
        sys.exit(f"there is nothing to compare: {IN_USE.why}")
    told: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(options.rounds):
        for who, environ in (("Python", {FORCE_PURE: "1"}), ("compiled", {})):
            run = [sys.executable, "-m", "benchmarks.records", "--once"]
            done = subprocess.run(run, env=os.environ | environ, capture_output=True, text=True, check=True)
            for name, took in json.loads(done.stdout).items():
                told[name][who].append(took)
    print(f"{'ns per record, least (median)':45}{'Python':>16}{'compiled':>16}{'ratio':>8}")
    for name, by in told.items():
        figures = [f"{min(by[who]):.0f} ({statistics.median(by[who]):.0f})" for who in ("Python", "compiled")]
        print(f"{name:45}{figures[0]:>16}{figures[1]:>16}{min(by['Python']) / min(by['compiled']):8.1f}")


if __name__ == "__main__":
    main()
