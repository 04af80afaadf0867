"""What one task does with a micro-batch, as a process of its own: it prints the most memory that it had, in MB.

    python -m tests.spark.one_task write|read SERVERS MEGABYTES

`write`: rows are put into batches, and those sent, in one process, where Spark has two with a shuffle between them.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Iterator

import pyarrow as pa

from fencepost.client.cluster import Cluster
from fencepost.protocol.compression import Compression
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.attempt import claim
from fencepost.spark.driver import Driver
from fencepost.spark.encoding import Encoder
from fencepost.spark.progress import Progress
from fencepost.spark.reading import read_range
from fencepost.spark.tasks import _send

ROWS, BYTES = 4000, 1000


def given(megabytes: int) -> Iterator[pa.RecordBatch]:
    """Rows that compress well, some 4 MB at a time."""
    for number in range(megabytes * 1_000_000 // (ROWS * BYTES)):
        names = [b"%d" % row for row in range(number * ROWS, (number + 1) * ROWS)]
        columns = [pa.array(names, pa.binary()), pa.array([name.ljust(BYTES, b".") for name in names], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["key", "value"])


async def write(servers: str, megabytes: int) -> None:
    cluster = Cluster(servers, client_id="one-task")
    driver = Driver(
        cluster, f"app {megabytes}", ["out"], transaction_timeout_ms=600_000, attempts=1, compression=Compression.LZ4
    )
    await driver.take_over(Progress.of("query", 0, []), False)
    plan = await driver.begin(1)
    attempt = await claim(cluster, plan, 0, 0)
    encoded = Encoder("out", dict(plan.counts), plan.batch_bytes)(given(megabytes))
    await attempt.finish(await _send(attempt, plan, encoded))
    await attempt.close()
    await cluster.close()


def main() -> None:
    what, servers, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if what == "write":
        asyncio.run(write(servers, megabytes))
    else:
        rest = (Isolation.READ_UNCOMMITTED, ["key", "value"], True)
        count = megabytes * 1_000_000 // BYTES
        batches = read_range(servers, None, TopicPartition("out", 0), 0, count, *rest)
        assert sum(batch.num_rows for batch in batches) == count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


if __name__ == "__main__":
    main()
