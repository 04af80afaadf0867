"""The settings of a producer, checked before any of them is used; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from fencepost.client.acknowledgements import checked_acks
from fencepost.client.lanes import checked_in_flight
from fencepost.client.settings import (
    check_counts,
    check_milliseconds,
    check_switches,
    check_texts,
    compression_named,
)
from fencepost.protocol.compression import Compression

_TEXTS: Final = ("transactional_id", "compression")
_MILLISECONDS: Final = ("transaction_timeout_ms", "linger_ms", "delivery_timeout_ms", "metadata_max_age_ms")
_SIZES: Final = ("batch_bytes", "max_request_size", "buffer_bytes")


class ForCluster(TypedDict):
    """The settings that a `Cluster` is made with, beside its addresses, its security and its runtime."""

    client_id: str
    request_timeout_ms: int
    patience_ms: int


class ForHandingOver(TypedDict):
    """The settings that a `HandingOver` is made with.  Sizes are in bytes."""

    batch_bytes: int
    max_request_size: int
    buffer_bytes: int
    compression: Compression


class ForSender(ForHandingOver):
    """The settings that a `Sender` is made with.  Times are in milliseconds."""

    linger_ms: float
    delivery_timeout_ms: int
    max_in_flight: int
    acks: int


def check_settings(given: Mapping[str, Any]) -> None:
    """`given`: all of them by name.  Raises TypeError for a value of another type, ValueError for one out of range."""
    check_texts(**{name: given[name] for name in _TEXTS})
    check_milliseconds(**{name: given[name] for name in _MILLISECONDS})
    check_counts(**{name: given[name] for name in _SIZES})
    if given["transactional_id"] == "":
        raise ValueError("transactional_id='': give it a name, or None")
    if not (given["partitioner"] is None or callable(given["partitioner"])):
        raise TypeError(f"partitioner={given['partitioner']!r}: it must be a function of topic, key and partitions")
    check_switches(transaction_two_phase_commit_enable=given["transaction_two_phase_commit_enable"])
    if given["transaction_two_phase_commit_enable"] and given["transactional_id"] is None:
        raise ValueError("transaction_two_phase_commit_enable=True needs a transactional_id: give one")
    linger, patience = given["linger_ms"], given["delivery_timeout_ms"]
    if linger and linger >= patience:
        raise ValueError(
            f"linger_ms={linger} is not less than delivery_timeout_ms={patience}: a record that waits for others to "
            "fill its batch would be given up before it is sent"
        )
    for_sender(given)


def for_cluster(given: Mapping[str, Any]) -> ForCluster:
    """The settings of the cluster, of all that were given, by name."""
    return ForCluster(
        client_id=given["client_id"],
        request_timeout_ms=given["request_timeout_ms"],
        patience_ms=given["max_block_ms"],
    )


def for_handing_over(given: Mapping[str, Any]) -> ForHandingOver:
    """The settings of `HandingOver`, of all that were given, by name.  Raises ValueError for an unknown compression."""
    return ForHandingOver(
        batch_bytes=given["batch_bytes"],
        max_request_size=given["max_request_size"],
        buffer_bytes=given["buffer_bytes"],
        compression=compression_named(given["compression"]),
    )


def for_sender(given: Mapping[str, Any]) -> ForSender:
    """The settings of the sender, of all that were given, by name.  Raises TypeError, ValueError."""
    acks = checked_acks(
        given["acks"], enable_idempotence=given["enable_idempotence"], transactional_id=given["transactional_id"]
    )
    return ForSender(
        **for_handing_over(given),
        linger_ms=given["linger_ms"],
        delivery_timeout_ms=given["delivery_timeout_ms"],
        max_in_flight=checked_in_flight(given["max_in_flight_requests_per_connection"]),
        acks=acks,
    )
