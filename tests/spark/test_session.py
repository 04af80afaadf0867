"""A session on this machine: what is missing is named."""

from __future__ import annotations

import logging
import sys

import pytest

from fencepost.spark import local_session
from fencepost.spark.session import keep_calls_of_java_out_of_logs


def test_without_pyspark_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyspark\.sql.*fencepost\[spark\]"):
        local_session("ledger")


@pytest.mark.parametrize(
    ("before", "after"),
    [(logging.NOTSET, logging.INFO), (logging.DEBUG, logging.DEBUG), (logging.ERROR, logging.ERROR)],
)
def test_calls_of_java_are_not_logged_with_passwords_unless_somebody_wants_that(before: int, after: int) -> None:
    calls = logging.getLogger("py4j")
    kept = calls.level
    try:
        calls.setLevel(before)
        keep_calls_of_java_out_of_logs()
        assert calls.level == after
    finally:
        calls.setLevel(kept)
