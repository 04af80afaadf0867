"""The Spark driver as its own process, with the means to die at the worst moment.

    python -m demo.driver BOOTSTRAP CHECKPOINT PREFIX FLIGHTS_PER_BATCH [STEP:BATCH:DEED ...]

It tells every step of a micro-batch on its standard output.  A deed is what happens at a step of the first batch from
BATCH on: `die` (kill -9 of driver and JVM) or `wait` (until a line comes on standard input).
"""

from __future__ import annotations

import os
import signal
import sys

from examples.flights_pipeline import make_sink, start

from fencepost.spark import Step, local_session


def main() -> None:
    bootstrap, checkpoint, prefix, per_batch, *deeds = sys.argv[1:]
    plan: dict[str, tuple[int, str]] = {}
    for deed in deeds:
        step, batch, what = deed.split(":")
        plan[step] = int(batch), what

    sink = make_sink(bootstrap, prefix)

    def watch(step: Step, batch_id: int) -> None:
        print("step", step.name.lower(), batch_id, *sink.producer_id_and_epoch, flush=True)
        first, what = plan.get(step.name.lower(), (sys.maxsize, ""))
        if batch_id < first:
            return
        if what == "die":
            os.killpg(0, signal.SIGKILL)
        del plan[step.name.lower()]
        sys.stdin.readline()

    sink.watch = watch
    spark = local_session("flights", 2, {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"})
    print("ready", flush=True)
    query = start(spark, bootstrap, checkpoint, sink, prefix, int(per_batch))
    query.awaitTermination()
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main()
