"""Compaction as a person sets it and sees it."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker.compaction import JOURNAL_SEGMENT_BYTES, cleaner_settings, journal_settings, measured
from fencepost.broker.metadata.settings import Settings
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.cleaner.work import CleanerMetrics
from fencepost.protocol.types import Milliseconds


def test_the_cleaner_is_told_what_is_set() -> None:
    given = {
        "log.cleaner.enable": "false",
        "log.cleaner.backoff.ms": 11,
        "log.cleaner.dedupe.buffer.size": 22,
        "log.cleaner.io.buffer.load.factor": 0.25,
        "log.cleaner.io.max.bytes.per.second": 44.5,
    }
    wanted = CleanerSettings(
        enable=False,
        backoff_ms=Milliseconds(11),
        dedupe_buffer_size=22,
        io_buffer_load_factor=0.25,
        io_max_bytes_per_second=44.5,
    )
    assert cleaner_settings(Settings(given)) == wanted


@pytest.mark.parametrize(
    ("node_ms", "topic_ms", "kept_ms"), [(None, None, 10_000), (7, None, 7), (None, "50000", 50_000), (7, "8", 8)]
)
def test_what_a_journal_needs_no_more_goes_soon_unless_its_topic_says_otherwise(
    node_ms: int | None, topic_ms: str | None, kept_ms: int
) -> None:
    node = Settings({} if node_ms is None else {"log.cleaner.delete.retention.ms": node_ms})
    topic = {} if topic_ms is None else {"delete.retention.ms": topic_ms}
    assert journal_settings(node.log_settings(topic), topic).delete_retention_ms == kept_ms


@pytest.mark.parametrize(
    ("said", "size"),
    [(1024 * 1024, JOURNAL_SEGMENT_BYTES), (2 * JOURNAL_SEGMENT_BYTES, 2 * JOURNAL_SEGMENT_BYTES)],
)
def test_a_segment_of_a_journal_takes_what_is_written_at_once_whatever_its_topic_says(said: int, size: int) -> None:
    topic = {"segment.bytes": str(said)}
    assert journal_settings(Settings().log_settings(topic), topic).segment_bytes == size


def shown(metrics: CleanerMetrics, now: int, uncleanable: int = 0) -> dict[str, float]:
    cleaner = SimpleNamespace(metrics=metrics, uncleanable=dict.fromkeys(range(uncleanable), "damaged"))
    found = measured(cast(LogCleaner, cast(Any, cleaner)), Milliseconds(now))
    return {bean.partition("name=")[2].partition(":")[0]: value for bean, value in found.items()}


def test_since_the_last_run_no_time_has_gone_by_where_there_was_none() -> None:
    never = CleanerMetrics()
    assert shown(never, 1_700_000_000_000)["time-since-last-run-ms"] == 0
    for last, elapsed in ((0, 1500), (1000, 500)):
        assert shown(replace(never, last_run=last), 1500)["time-since-last-run-ms"] == elapsed


def test_each_figure_of_the_cleaner_is_told_as_what_it_is() -> None:
    figures = {field.name: number for number, field in enumerate(fields(CleanerMetrics), 1)}
    told = shown(CleanerMetrics(**figures), figures["last_run"] + 77, uncleanable=2)
    assert told == {
        "uncleanable-partitions-count": 2,
        "time-since-last-run-ms": 77,
        "Passes": figures["passes"],
        "BytesRead": figures["bytes_read"],
        "BytesWritten": figures["bytes_written"],
        **{
            name.replace("_", "-"): figures[name]
            for name in figures
            if name not in ("last_run", "passes", "bytes_read", "bytes_written")
        },
    }
