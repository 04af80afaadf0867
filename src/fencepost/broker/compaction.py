"""Compaction as a person sets it and sees it: settings and metrics of the cleaner, and the coordinators' journals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.broker.metadata.settings import Settings
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.settings import LogSettings
from fencepost.protocol.types import Milliseconds

#: A journal's newest segment is closed, and so can be cleaned, when it has as many bytes.  Twice as many
#: make half as many passes; of 50 partitions each the journals then have 7 MB at most beside what is clean, and what
#: the cleaner is behind with (`log.cleaner.pace`).
JOURNAL_ROLL_BYTES: Final = 64 * 1024
#: What fits into a segment of a journal at the least: Apache Kafka's size of theirs.
JOURNAL_SEGMENT_BYTES: Final = 100 * 1024 * 1024
#: How long tombstones and needless markers stay in a journal, unless its topic has a delete.retention.ms of its own.
#: Only the coordinator reads it, and nothing is swapped while it does; of markers there is one for every transaction.
JOURNAL_DELETE_RETENTION_MS: Final = 10_000

_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_CHOICE: Final = "kafka.log:type=LogCleanerManager,name="


def cleaner_settings(settings: Settings) -> CleanerSettings:
    """The cleaner's settings, taken from those of the broker."""
    load_factor, rate = settings["log.cleaner.io.buffer.load.factor"], settings["log.cleaner.io.max.bytes.per.second"]
    return CleanerSettings(
        enable=bool(settings["log.cleaner.enable"]),
        backoff_ms=Milliseconds(settings.number("log.cleaner.backoff.ms")),
        dedupe_buffer_size=settings.number("log.cleaner.dedupe.buffer.size"),
        io_buffer_load_factor=float(load_factor),
        io_max_bytes_per_second=float(rate),
    )


def journal_settings(settings: LogSettings, given: Mapping[str, str]) -> LogSettings:
    """The log settings of a partition of a coordinator's journal, whatever size its topic says its segments have.

    A segment must take what a coordinator writes at once, be it more than that size.
    """
    retention = settings.delete_retention_ms
    if "delete.retention.ms" not in given:
        retention = Milliseconds(min(retention, JOURNAL_DELETE_RETENTION_MS))
    return settings.with_(
        segment_bytes=max(settings.segment_bytes, JOURNAL_SEGMENT_BYTES),
        journal_roll_bytes=JOURNAL_ROLL_BYTES,
        delete_retention_ms=retention,
    )


def measured(cleaner: LogCleaner, now: Milliseconds) -> dict[str, float]:
    """The metrics of the cleaner, by bean and attribute; `now` in milliseconds."""
    found = cleaner.metrics
    return {
        f"{_CHOICE}uncleanable-partitions-count:Value": len(cleaner.uncleanable),
        f"{_CHOICE}max-dirty-percent:Value": found.max_dirty_percent,
        f"{_CHOICE}time-since-last-run-ms:Value": now - found.last_run if found.last_run >= 0 else 0,
        f"{_CLEANER}cleaner-recopy-percent:Value": found.cleaner_recopy_percent,
        f"{_CLEANER}max-clean-time-secs:Value": found.max_clean_time_secs,
        f"{_CLEANER}max-buffer-utilization-percent:Value": found.max_buffer_utilization_percent,
        f"{_CLEANER}max-compaction-delay-secs:Value": found.max_compaction_delay_secs,
        "fencepost:type=LogCleaner,name=Passes:Count": found.passes,
        "fencepost:type=LogCleaner,name=BytesRead:Count": found.bytes_read,
        "fencepost:type=LogCleaner,name=BytesWritten:Count": found.bytes_written,
    }
