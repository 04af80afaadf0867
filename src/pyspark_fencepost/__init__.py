"""Spark looks for data sources in modules whose names begin so: this one makes `format("fencepost")` known."""

from fencepost.spark.source import FencepostDataSource as DefaultSource

__all__ = ["DefaultSource"]
