"""The settings that a write makes in the session of its rows, where Spark looks while it plans the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKSUMS: Final = tuple(
    f"spark.sql.shuffle.orderIndependentChecksum.{name}" for name in ("enabled", "enableFullRetryOnMismatch")
)
MOST_AT_ONCE: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
AT_ONCE: Final = 1024 * 1024
"""Bytes of rows that Spark hands to Python together.

For more of them, as 10,000 rows of 1 KB are, it takes memory anew each time, which costs more than they do.
"""


def notice_other_rows(spark: SparkSession) -> None:
    """Have Spark compare checksums of rows that it computes again, after shuffled ones were lost, with those before.

    Where it differs Spark tries all tasks that read it again, or fails the job: either way the batch is run again.
    Else rows of tasks that are done come a second time, from others, or never.  It is Spark's default.
    """
    for name in _CHECKSUMS:
        spark.conf.set(name, "true")


@contextmanager
def little_at_once(spark: SparkSession) -> Iterator[None]:
    """Have Spark hand rows to Python in pieces that it has memory for, unless the session says how large they are.

    Where two writes of one session end at different times, one of them may go without it, and is slower by that.
    """
    if spark.conf.get(MOST_AT_ONCE, None) is not None:
        yield
        return
    try:
        spark.conf.set(MOST_AT_ONCE, str(AT_ONCE))
        yield
    finally:
        with suppress(Exception):  # of a session that is no more: what ended the tasks is what counts
            if spark.conf.get(MOST_AT_ONCE, None) == str(AT_ONCE):  # else somebody has set it meanwhile
                spark.conf.unset(MOST_AT_ONCE)
