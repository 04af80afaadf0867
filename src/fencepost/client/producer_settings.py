"""The settings of a producer: those that make no sense are named before anything is done with them; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.acknowledgements import checked_acks
from fencepost.client.lanes import checked_in_flight
from fencepost.client.settings import (
    check_counts,
    check_milliseconds,
    check_switches,
    check_texts,
    compression_named,
)

_TEXTS: Final = ("transactional_id", "compression")
_MILLISECONDS: Final = ("transaction_timeout_ms", "linger_ms", "delivery_timeout_ms", "metadata_max_age_ms")
_SIZES: Final = ("batch_bytes", "max_request_size", "buffer_bytes")


def check_settings(given: Mapping[str, Any]) -> None:
    """`given`: all of them by name.  Raises TypeError for what is of another kind, ValueError else."""
    check_texts(**{name: given[name] for name in _TEXTS})
    check_milliseconds(**{name: given[name] for name in _MILLISECONDS})
    check_counts(**{name: given[name] for name in _SIZES})
    check_switches(transaction_two_phase_commit_enable=given["transaction_two_phase_commit_enable"])
    if given["transaction_two_phase_commit_enable"] and given["transactional_id"] is None:
        raise ValueError("transaction_two_phase_commit_enable=True needs a transactional_id: give one")
    for_sender(given)


def for_cluster(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a `Cluster` is made with, beside its addresses and its security."""
    names = ("client_id", "runtime", "request_timeout_ms")
    return {**{name: given[name] for name in names}, "patience_ms": given["max_block_ms"]}


def for_handing_over(given: Mapping[str, Any]) -> dict[str, Any]:
    """What `HandingOver` is made with."""
    return {**{name: given[name] for name in _SIZES}, "compression": compression_named(given["compression"])}


def for_sender(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a `Sender` is made with.  Raises TypeError, ValueError."""
    acks = checked_acks(
        given["acks"], enable_idempotence=given["enable_idempotence"], transactional_id=given["transactional_id"]
    )
    return {
        **for_handing_over(given),
        "linger_ms": given["linger_ms"],
        "delivery_timeout_ms": given["delivery_timeout_ms"],
        "max_in_flight": checked_in_flight(given["max_in_flight_requests_per_connection"]),
        "acks": acks,
    }
