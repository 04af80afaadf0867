"""Apache Kafka as pipelines meet it: with transaction.version 2 and 1, and before there was such a feature."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.apache_kafka import BEFORE_TRANSACTION_VERSION, VERSION, restartable_apache_kafka
from tests.compare.nodes.two_nodes import skipped_without_kafka

#: cluster -> version of Apache Kafka and level of its feature; None: it has no such feature
CLUSTERS: Final[dict[str, tuple[str, int | None]]] = {
    "transaction.version 2": (VERSION, 2),
    "transaction.version 1": (VERSION, 1),
    BEFORE_TRANSACTION_VERSION: (BEFORE_TRANSACTION_VERSION, None),
}


@contextmanager
def kafka_cluster(name: str) -> Iterator[str]:
    """One of `CLUSTERS`, running; its bootstrap address.  Skips the test where it cannot be had."""
    version, level = CLUSTERS[name]
    features = {} if level is None else {"transaction.version": level}
    with skipped_without_kafka(), restartable_apache_kafka({}, features, version=version) as kafka:
        yield kafka.bootstrap
