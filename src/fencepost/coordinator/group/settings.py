"""Settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.protocol.types import Milliseconds


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Apache Kafka's broker settings (group.*, offsets.*), with its defaults.  Times: milliseconds; sizes: bytes."""

    initial_rebalance_delay_ms: Milliseconds = Milliseconds(3000)
    min_session_timeout_ms: Milliseconds = Milliseconds(6000)
    max_session_timeout_ms: Milliseconds = Milliseconds(1_800_000)
    max_size: int = 2**31 - 1
    partitions: int = 50
    offsets_retention_ms: Milliseconds = Milliseconds(7 * 24 * 3600 * 1000)
    metadata_max_bytes: int = 4096
