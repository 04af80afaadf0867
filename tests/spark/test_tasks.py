"""What a task reports has the same columns everywhere."""

from __future__ import annotations

from fencepost.spark.claims import Written
from fencepost.spark.tasks import _RESULT_SCHEMA, RESULT


def test_a_report_has_the_columns_that_spark_is_told() -> None:
    assert [column.split()[0] for column in RESULT.split(",")] == list(Written._fields) == _RESULT_SCHEMA.names
