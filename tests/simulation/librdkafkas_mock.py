"""librdkafka's mock cluster, in this process, and how our clients are made to put up with it.

It answers the flexible versions of ApiVersions and Metadata in a way that only librdkafka reads, and its markers have
no checksum.  Here clients ask it for older versions, and look at no checksum of a marker; all the rest is as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost.client import records
from fencepost.client.connection import Connection
from fencepost.protocol import batch
from fencepost.protocol.messages import ApiVersionsRequest

_METADATA, _END_TXN = 3, 26
_NEWEST_METADATA = 8


@contextmanager
def mock_cluster() -> Iterator[str]:
    """The address of a mock cluster of one broker.  Skips the test where there is none, or one without transactions."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    try:
        owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = owner.list_topics(timeout=10).brokers.values()
    except (confluent_kafka.KafkaException, ValueError) as reason:
        pytest.skip(f"librdkafka {confluent_kafka.libversion()[0]} has no mock cluster here: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "ask_what_is_served", _ask_what_is_served)
        matches = batch.crc_matches
        patch.setattr(records, "crc_matches", lambda data, at, header: header.is_control or matches(data, at, header))
        yield f"{broker.host}:{broker.port}"
    del owner


async def _ask_what_is_served(self: Connection) -> None:
    """In the first version."""
    answer: Any = await self.request(ApiVersionsRequest(), 0)
    self.ranges = {served.api_key: (served.min_version, served.max_version) for served in answer.api_keys}
    self.ranges[_METADATA] = (0, _NEWEST_METADATA)
    if _END_TXN not in self.ranges:
        pytest.skip("this librdkafka's mock cluster serves no transactions")
