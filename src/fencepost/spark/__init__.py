"""Spark pipelines: read topics with `format("fencepost")`, write exactly once with `write_stream` and `write`."""

from fencepost.spark.behind import Behind, offsets_behind_latest
from fencepost.spark.java import use_java
from fencepost.spark.report import Report
from fencepost.spark.session import local_session
from fencepost.spark.sink import Sink, Step, WriteCancelled, WriteFailed
from fencepost.spark.streaming import foreach_batch, resume_offsets, write, write_stream

__all__ = [
    "Behind",
    "Report",
    "Sink",
    "Step",
    "WriteCancelled",
    "WriteFailed",
    "foreach_batch",
    "local_session",
    "offsets_behind_latest",
    "resume_offsets",
    "use_java",
    "write",
    "write_stream",
]
