"""Checks of the settings of a consumer, before any of them is used; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.client.settings import (
    check_counts,
    check_milliseconds,
    check_sendable,
    check_switches,
    check_texts,
    check_topics,
)

_TEXTS: Final = (
    *("group_id", "group_instance_id", "isolation_level", "delivery", "auto_offset_reset"),
    *("group_protocol", "group_remote_assignor"),
)
_MILLISECONDS: Final = (
    *("auto_commit_interval_ms", "session_timeout_ms", "rebalance_timeout_ms", "max_poll_interval_ms"),
    *("heartbeat_interval_ms", "fetch_max_wait_ms", "metadata_max_age_ms", "open_transaction_warning_ms"),
)
_COUNTS: Final = ("fetch_max_bytes", "max_partition_fetch_bytes")
_COUNTS_FROM_ZERO: Final = ("fetch_min_bytes", "transaction_buffer_bytes")
_SENT: Final = (
    *("session_timeout_ms", "rebalance_timeout_ms", "fetch_max_wait_ms"),
    *("fetch_max_bytes", "max_partition_fetch_bytes", "fetch_min_bytes"),
)


def check_settings(topics: Sequence[object], given: Mapping[str, Any]) -> None:
    """`given`: all of them by name.  Raises TypeError for a value of another type, ValueError for one out of range."""
    check_topics(topics)
    check_texts(**{name: given[name] for name in _TEXTS})
    check_switches(auto_commit=given["auto_commit"])
    check_milliseconds(**{name: given[name] for name in _MILLISECONDS})
    check_counts(**{name: given[name] for name in _COUNTS})
    check_counts(0, **{name: given[name] for name in _COUNTS_FROM_ZERO})
    check_sendable(**{name: given[name] for name in _SENT})
    if not isinstance(given["spill_directory"], str | None):
        raise TypeError(f"spill_directory={given['spill_directory']!r}: it must be a str")
    if given["group_id"] == "":
        raise ValueError("group_id='': give it a name, or None")
    if given["group_instance_id"] == "":
        raise ValueError("group_instance_id='': give each consumer one of its own, or None")
