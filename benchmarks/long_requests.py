"""Requests that name very many things, each in one frame: works for `benchmarks.stalls`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from benchmarks.prober import produce_request
from benchmarks.stall_table import Table, create, record, served
from fencepost.protocol.messages import (
    DescribeConfigsRequest,
    FetchRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestTopic

LIST_OFFSETS_VERSION, OFFSET_FETCH_VERSION, OFFSET_COMMIT_VERSION, PRODUCE_VERSION = 7, 5, 7, 9
LISTED: Final = 100_000
WIDE: Final = 5000
NAMED: Final = 90_000
"""Nearly as many as a request may name."""


def large_requests() -> Iterator[tuple[str, Any, int]]:
    yield f"ListTransactions of {LISTED} ids", ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0
    names = [MetadataRequestTopic(name=f"nowhere-{number}") for number in range(30_000)]
    yield "Metadata of 30,000 unknown topics", MetadataRequest(topics=names, allow_auto_topic_creation=False), 12
    one = [MetadataRequestTopic(name="wide")]
    yield f"Metadata of {WIDE} partitions", MetadataRequest(topics=one, allow_auto_topic_creation=False), 12
    resources = [DescribeConfigsResource(resource_type=2, resource_name="wide", configuration_keys=None)] * 2000
    yield "DescribeConfigs of 2,000 resources", DescribeConfigsRequest(resources=resources, include_synonyms=True), 4
    latest = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(WIDE)]
    offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="wide", partitions=latest)])
    yield f"ListOffsets of {WIDE} partitions", offsets, LIST_OFFSETS_VERSION
    places = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in range(WIDE)]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="wide", partitions=places)])
    yield f"Fetch of {WIDE} partitions", fetch, 12
    wanted = [OffsetFetchRequestTopic(name="wide", partition_indexes=list(range(WIDE)))]
    yield f"OffsetFetch of {WIDE} partitions", OffsetFetchRequest(group_id="g", topics=wanted), OFFSET_FETCH_VERSION


def named(table: Table) -> None:
    """As many partitions as a request may name, of which the topic has a ninth."""
    with served("fetch.max.bytes=55000000") as (_, wire, prober):
        create(wire, "wide", NAMED // 9)
        for what, request, version in naming():
            with table.measuring(f"{what} of {NAMED} partitions", prober):
                wire.ask(request, version)


def naming() -> Iterator[tuple[str, Any, int]]:
    batch, every = record(), range(NAMED)
    yield "Produce", produce_request("wide", dict.fromkeys(every, batch)), PRODUCE_VERSION
    places = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in every]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="wide", partitions=places)])
    yield "Fetch", fetch, 12
    latest = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in every]
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="wide", partitions=latest)])
    yield "ListOffsets", asked, LIST_OFFSETS_VERSION
    positions = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=1, committed_metadata="") for n in every
    ]
    group: Any = {"group_id": "g", "topics": [OffsetCommitRequestTopic(name="wide", partitions=positions)]}
    commit = OffsetCommitRequest(generation_id_or_member_epoch=-1, member_id="", **group)
    yield "OffsetCommit", commit, OFFSET_COMMIT_VERSION
    wanted = [OffsetFetchRequestTopic(name="wide", partition_indexes=list(every))]
    yield "OffsetFetch", OffsetFetchRequest(group_id="g", topics=wanted), OFFSET_FETCH_VERSION
    names = [MetadataRequestTopic(name="wide")] * NAMED
    yield "Metadata", MetadataRequest(topics=names, allow_auto_topic_creation=False), 12
