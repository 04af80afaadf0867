"""A request for one partition, and what is made of an answer that has nothing of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost.client.fetch_requests import fetch_partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FetchResponse
from fencepost.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from fencepost.protocol.types import Isolation, TopicPartition


class Cluster:
    """Answers with what it is given."""

    def __init__(self, answer: FetchResponse) -> None:
        self._answer = answer

    async def call(self, _node: int, _request: Any, **_how: Any) -> FetchResponse:
        return self._answer


def fetched(answer: FetchResponse) -> PartitionData:
    cluster: Any = Cluster(answer)
    work = fetch_partition(cluster, 1, TopicPartition("in", 3), 7, Isolation.READ_COMMITTED, max_bytes=1000)
    return asyncio.run(work)


@pytest.mark.parametrize("topics", [[], [FetchableTopicResponse(topic="in", partitions=[])]])
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_answer_without_the_partition_has_no_records(code: ErrorCode, topics: list[FetchableTopicResponse]) -> None:
    """As of a broker that throttles the client, or refuses all that it asks for."""
    found = fetched(FetchResponse(throttle_time_ms=900, error_code=code, responses=topics))
    assert (found.partition_index, found.error_code, found.records) == (3, code, None)


def test_the_part_of_the_answer_is_given_as_it_is() -> None:
    part = PartitionData(partition_index=3, error_code=0, high_watermark=9, records=b"some")
    assert fetched(FetchResponse(responses=[FetchableTopicResponse(topic="in", partitions=[part])])) is part
