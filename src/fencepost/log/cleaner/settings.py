"""Settings of the cleaner, with Apache Kafka's names (log.cleaner. in front, dots as underscores) and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.log.cleaner.offset_map import ENTRY_BYTES
from fencepost.protocol.types import Milliseconds


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Times in milliseconds, sizes in bytes."""

    enable: bool = True
    backoff_ms: Milliseconds = Milliseconds(15_000)
    """Milliseconds to wait before looking again when nothing was to be done."""
    dedupe_buffer_size: int = 128 * 1024 * 1024
    """Memory for the newest offsets of keys; a pass over more keys than that ends early, and another one follows."""
    io_buffer_load_factor: float = 0.9
    """The part of the dedupe buffer that may get full, 0 to 1."""
    io_max_bytes_per_second: float = float("inf")
    """Bytes a second that a pass reads and writes together."""
    journal_interval_ms: Milliseconds = Milliseconds(1_000)
    """Ours: how often the coordinators' journals are looked at, which grow with every transaction."""
    unsettled_bytes: int = 4 * 1024 * 1024
    """Ours: so many bytes that wait for a checkpoint before they may be cleaned are worth one at once."""

    @property
    def capacity(self) -> int:
        """Keys that one pass takes in."""
        return int(self.dedupe_buffer_size * self.io_buffer_load_factor) // ENTRY_BYTES
