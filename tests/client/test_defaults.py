"""What a client does where nothing is said: as Apache Kafka's clients in Java do, but for what is listed and why."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pytest

from fencepost.client import Admin, Consumer, ExactlyOnce, Producer
from fencepost.client.group_choice import CLASSIC_DEFAULTS

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
#: Setting -> Apache Kafka's default, by facts §9.8 and its ProducerConfig, ConsumerConfig and AdminClientConfig (4.3).
OF_ALL: Final[dict[str, Any]] = {"request_timeout_ms": 30_000, "max_block_ms": 60_000}
PRODUCER: Final[dict[str, Any]] = {
    **OF_ALL,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "transaction_two_phase_commit_enable": False,
    "max_request_size": MEBIBYTE,
    "buffer_bytes": 32 * MEBIBYTE,
    "compression": "none",
    "acks": "all",
    "enable_idempotence": True,
    "max_in_flight_requests_per_connection": 5,
    "delivery_timeout_ms": 120_000,
    "metadata_max_age_ms": 300_000,
    "partitioner": None,
    "interceptors": (),
}
CONSUMER: Final[dict[str, Any]] = {
    **OF_ALL,
    "group_id": None,
    "group_instance_id": None,
    "auto_commit": True,
    "auto_commit_interval_ms": 5000,
    "group_protocol": "classic",
    "group_remote_assignor": None,
    "max_poll_interval_ms": 300_000,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 50 * MEBIBYTE,
    "max_partition_fetch_bytes": MEBIBYTE,
    "metadata_max_age_ms": 300_000,
}
#: Setting -> our default, and why it is not Apache Kafka's.
OURS: Final[dict[type, dict[str, tuple[Any, str]]]] = {
    Producer: {
        "linger_ms": (0, "5 there: here what comes while a request is out goes with the next one, without a pause"),
        "batch_bytes": (256 * KIBIBYTE, "16 KiB there: a batch costs Python more than memory"),
        "client_id": ("fencepost-producer", "numbered there"),
    },
    Consumer: {
        "isolation_level": ("read_committed", "read_uncommitted there: shows what was never committed"),
        "auto_offset_reset": ("earliest", "latest there: leaves out what came before the first look"),
        "rebalance_timeout_ms": (300_000, "it is max.poll.interval.ms there"),
        "delivery": ("offset_order", "there is no other"),
        "transaction_buffer_bytes": (64 * MEBIBYTE, "of commit order, which is not there"),
        "spill_directory": (None, "of commit order"),
        "open_transaction_warning_ms": (900_000, "of commit order: transaction.max.timeout.ms of a broker"),
        "client_id": ("fencepost-consumer", "numbered there"),
    },
    Admin: {"client_id": ("fencepost-admin", "numbered there")},
    ExactlyOnce: {
        "max_records": (500, "max.poll.records of a consumer"),
        "linger_ms": (0, "there is no such loop"),
        "retry_timeout_ms": (300_000, "there is no such loop"),
    },
}
THEIRS: Final[dict[type, dict[str, Any]]] = {
    Producer: PRODUCER,
    Consumer: {**CONSUMER, **dict.fromkeys(CLASSIC_DEFAULTS)},
    Admin: OF_ALL,
    ExactlyOnce: {},
}


@pytest.mark.parametrize("client", THEIRS, ids=lambda client: client.__name__)
def test_every_setting_that_is_not_given_is_as_it_is_in_apache_kafka_or_as_listed(client: type) -> None:
    settings = {
        name: parameter.default
        for name, parameter in inspect.signature(client).parameters.items()
        if parameter.default is not inspect.Parameter.empty and name != "runtime"
    }
    assert settings == THEIRS[client] | {name: value for name, (value, _) in OURS[client].items()}
