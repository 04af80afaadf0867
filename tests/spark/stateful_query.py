"""A query that keeps state, as a process of its own that kills itself, and its Java, at one step of one micro-batch.

    python -m tests.spark.stateful_query PLAN STORE SERVERS CHECKPOINT [STEP:BATCH | open]

It ends by itself when all that is there is written; `open`: not before its standard input ends.  STEP is `begun`,
`written`, `committed` or `skipped`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from fencepost.spark import Step, local_session, write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

APPLICATION: Final = "stateful"
SOURCE: Final = "events"
TARGET: Final = "counts"
#: What stands for a deed where there is none, and more may come.
OPEN: Final = "open"
#: Offsets of a micro-batch.
MOST: Final = 40
#: Seconds of event time.
WINDOW, LATE = 10, 5

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORES: Final = {
    "default": {},
    "rocksdb": {"spark.sql.streaming.stateStore.providerClass": _ROCKSDB},
    "rocksdb, format 2": {
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    },
}


def windows(events: DataFrame) -> DataFrame:
    """Different values in each window: two operators with state, and a watermark."""
    from pyspark.sql import functions as sf

    seen = events.withWatermark("timestamp", f"{LATE} seconds").dropDuplicates(["value", "timestamp"])
    counted = seen.groupBy(sf.window("timestamp", f"{WINDOW} seconds")).count()
    start = sf.unix_timestamp("window.start").cast("string")
    return counted.select(start.alias("key"), sf.concat_ws(":", start, "count").alias("value"))


def running_counts(events: DataFrame) -> DataFrame:
    """How often each value came so far, by a function of the user's that keeps the count."""

    def count(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        total = state.get[0] if state.exists else 0
        more = sum(len(frame) for frame in frames)
        state.update((total + more,))
        yield pd.DataFrame({"value": [f"{key[0]}:{n}" for n in range(total + 1, total + more + 1)]})

    by_value = events.select(events.value.cast("string").alias("value")).groupBy("value")
    return by_value.applyInPandasWithState(count, "value string", "total long", "append", "NoTimeout")


def transform_with_state(events: DataFrame) -> DataFrame:
    """The same by a processor of the user's, whose state only RocksDB keeps."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Counting(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
            (total,) = self._total.get() or (0,)
            for _ in rows:
                total += 1
                yield Row(value=f"{key[0]}:{total}")
            self._total.update((total,))

        def close(self) -> None:
            """Nothing is open."""

    by_value = events.select(events.value.cast("string").alias("value")).groupBy("value")
    return by_value.transformWithState(Counting(), "value string", "Append", "None")


PLANS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "windows": windows,
    "running counts": running_counts,
    "transformWithState": transform_with_state,
}
#: Plan and store.
KEPT: Final = [
    (plan, store) for plan in PLANS for store in STORES if (plan, store) != ("transformWithState", "default")
]


def main() -> None:
    plan, store, servers, checkpoint, *deed = sys.argv[1:]
    at = deed[0] if deed else ""

    def reached(step: str, batch_id: int) -> None:
        print("step", step, batch_id, flush=True)
        if at == f"{step}:{batch_id}":
            os.killpg(0, signal.SIGKILL)

    def begun(rows: DataFrame, batch_id: int) -> DataFrame:
        reached("begun", batch_id)
        return rows

    def watch(step: Step, batch_id: int) -> None:
        reached(step.name.lower(), batch_id)

    config = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    spark = local_session("stateful", 2, config | STORES[store])
    events = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST)
        .load()
    )
    query = write_stream(
        PLANS[plan](events),
        topic=TARGET,
        application_id=APPLICATION,
        bootstrap_servers=servers,
        checkpoint_location=checkpoint,
        transform=begun,
        trigger=None if at == OPEN else {"availableNow": True},
        watch=watch,
    )
    if at == OPEN:
        while not select.select([sys.stdin], [], [], 0)[0]:
            query.awaitTermination(1)
        query.processAllAvailable()
        query.stop()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
