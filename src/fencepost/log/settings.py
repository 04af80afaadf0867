"""Settings of a log, with Apache Kafka's names (dots as underscores) and defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fencepost.protocol.compression import Compression
from fencepost.protocol.types import Milliseconds

LONG = 2**63 - 1
"""Stands for no limit where Kafka has no -1."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of one log.  Times in milliseconds, sizes in bytes; -1 means without limit."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: Milliseconds = Milliseconds(7 * 24 * 3600 * 1000)
    retention_ms: Milliseconds = Milliseconds(7 * 24 * 3600 * 1000)
    retention_bytes: int = -1
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    compression: Compression | None = None
    """The codec that batches are kept in; None (compression.type=producer): the one that they came in."""
    compression_level: int | None = None
    """The level of that codec, where it has levels; None: the usual one."""
    message_timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: Milliseconds = Milliseconds(LONG)
    timestamp_after_max_ms: Milliseconds = Milliseconds(3600 * 1000)
    cleanup_policy: str = "delete"
    file_delete_delay_ms: Milliseconds = Milliseconds(60_000)
    delete_retention_ms: Milliseconds = Milliseconds(24 * 3600 * 1000)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: Milliseconds = Milliseconds(0)
    max_compaction_lag_ms: Milliseconds = Milliseconds(LONG)
    journal_roll_bytes: int = -1
    """Ours: the cleaner begins a new segment when a journal's active one has as many bytes; -1 for other logs."""
    producer_id_expiration_ms: Milliseconds = Milliseconds(24 * 3600 * 1000)
    verification_enabled: bool = True
    check_max_records: int = 2**31 - 1
    """Ours: how many records of a client's batch are looked at one by one."""
    check_max_bytes: int = 2**31 - 1
    """Ours: compressed batches of so many bytes or less are unfolded and looked at whole, however many records."""
    checkpoint_bytes: int = 64 * 1024 * 1024
    """Ours: the commit log is checkpointed when it has grown by this much; it bounds the work of a restart."""

    # What follows from the others, worked out once: every append asks for it.
    is_compacted: bool = field(init=False, repr=False)
    longest_segment_ms: Milliseconds = field(init=False, repr=False)
    """After how long a segment is closed by the next append; compaction may not wait longer."""

    def __post_init__(self) -> None:
        compacted, longest = "compact" in self.cleanup_policy, self.segment_ms
        object.__setattr__(self, "is_compacted", compacted)
        object.__setattr__(
            self, "longest_segment_ms", min(longest, self.max_compaction_lag_ms) if compacted else longest
        )

    def with_(self, **changes: Any) -> LogSettings:
        """A copy with some settings changed."""
        return replace(self, **changes)
