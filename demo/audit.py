"""What an audit in SQL says of the demo's output, aborted records and markers included, as a process of its own.

    python -m demo.audit BOOTSTRAP PREFIX

It tells what it found as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

TOPICS: Final = ("departures", "carrier_delays")
#: What is asked; docs/pipelines.md says what each answer means.
OPEN: Final = """SELECT producerId, producerEpoch, topic, partition, min(offset) AS first_offset, min(timestamp) AS since, count(*) AS records
FROM audit
WHERE outcome = 'open'
GROUP BY producerId, producerEpoch, topic, partition
ORDER BY since
"""  # noqa: E501 - as it is on that page
IN_VAIN: Final = """SELECT producerId, count_if(outcome = 'aborted') AS aborted, count(*) AS records
FROM audit
WHERE isTransactional AND controlType IS NULL
GROUP BY producerId
ORDER BY aborted DESC
"""
TORN: Final = """SELECT producerId, producerEpoch, collect_set(outcome) AS outcomes
FROM audit
WHERE isTransactional AND controlType IS NULL
GROUP BY producerId, producerEpoch
HAVING count(DISTINCT outcome) > 1
"""


class Audit(NamedTuple):
    """What was found.  `open` and `torn`: transactions, of which there must be none."""

    open: int
    torn: int
    in_vain: list[tuple[int, int, int]]
    """Producer id, records that were aborted, records in all; of producers with some that were."""


def audit(spark: Any, bootstrap: str, topics: list[str]) -> Audit:
    """Ask these questions of everything that is in these topics."""
    rows = (
        spark.read.format("fencepost")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .option("schema", "audit")
        .load()
    )
    rows.createOrReplaceTempView("audit")
    open_, in_vain, torn = (spark.sql(each).collect() for each in (OPEN, IN_VAIN, TORN))
    pairs = {(row.producerId, row.producerEpoch) for row in open_}
    return Audit(len(pairs), len(torn), [(row.producerId, row.aborted, row.records) for row in in_vain if row.aborted])


def audited(bootstrap: str, prefix: str, folder: Path) -> Audit:
    """The same in a process of its own, whose Java ends with it.  Raises CalledProcessError."""
    command = [sys.executable, "-m", "demo.audit", bootstrap, prefix]
    with (folder / "audit.log").open("w") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Audit(found["open"], found["torn"], [tuple(each) for each in found["in_vain"]])


def main() -> None:
    from fencepost.spark import local_session

    bootstrap, prefix = sys.argv[1:]
    spark = local_session("audit", 2, {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"})
    print(json.dumps(audit(spark, bootstrap, [prefix + name for name in TOPICS])._asdict()))
    spark.stop()


if __name__ == "__main__":
    main()
