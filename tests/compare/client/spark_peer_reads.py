"""Batch reads by Spark's own Kafka source, for the environment that has it: what each set of options gives.

    python spark_peer_reads.py JARS OPTIONS

OPTIONS is a JSON list of mappings; a line of JSON for each: [[partition, offset], ...], or null if it is refused.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    jars, wanted = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for options in json.loads(wanted):
        try:
            rows = spark.read.format("kafka").options(**options).load().select("partition", "offset").collect()
            print("read", json.dumps(sorted([row.partition, row.offset] for row in rows)), flush=True)
        except Exception:
            print("read null", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
