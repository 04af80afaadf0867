"""Spark pipelines: read topics with `format("fencepost")`, write them exactly once with `write_stream`."""

from fencepost.spark.java import use_java
from fencepost.spark.session import local_session
from fencepost.spark.sink import Sink, Step, WriteFailed
from fencepost.spark.streaming import foreach_batch, write_stream

__all__ = ["Sink", "Step", "WriteFailed", "foreach_batch", "local_session", "use_java", "write_stream"]
