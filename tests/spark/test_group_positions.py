"""Which positions of a micro-batch are its group's to commit, where that is told, and when a batch may not be written.

That they are committed with the batch, or after it, is tried in `test_driver_positions`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.test_driver import Bench, in_world

from fencepost.client import Producer
from fencepost.client.admin.offsets import alter_group_offsets
from fencepost.client.cluster import Cluster
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.world import ADDRESS
from fencepost.spark import group_positions
from fencepost.spark.group_positions import beyond, group_offsets, positions_of, topics_of
from fencepost.spark.progress import Progress

AT, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
OFFSETS = st.one_of(st.just(-2), st.just(-1), st.just(0), st.integers(1, 9))
SOURCES = st.builds(
    lambda offsets, cluster, topic_id: {
        **offsets,
        **({"@cluster": cluster} if cluster else {}),
        **({"@topics": {"in": topic_id}} if topic_id else {}),
    },
    st.dictionaries(
        st.sampled_from(["in", "elsewhere"]), st.dictionaries(st.sampled_from("01"), OFFSETS, min_size=1), min_size=1
    ),
    st.sampled_from(["", "ours", "theirs"]),
    st.sampled_from(["", "one", "another"]),
)
#: Sources that are in no topics.
OTHERS = st.sampled_from([None, 7, {"logOffset": 3, "@cluster": "ours"}])


@given(st.lists(st.one_of(SOURCES, OTHERS), max_size=4), st.sampled_from(["", "ours"]))
def test_positions_that_are_offsets_in_a_topic_that_is_known_to_be_the_clusters_are_committed(
    sources: list[Any], cluster_id: str
) -> None:
    wanted = {
        TopicPartition("in", int(number)): offset
        for source in sources
        if isinstance(source, dict)
        and "logOffset" not in source
        and source.get("@cluster", "") == cluster_id != ""
        and source.get("@topics", {}).get("in", "one") == "one"
        for number, offset in source.get("in", {}).items()
        if offset >= 0
    }
    found = group_offsets(sources, cluster_id, {"in": "one"})
    assert {at: position.offset for at, position in found.items()} == wanted


def test_positions_of_nobody_knows_which_cluster_are_nobodys_to_commit() -> None:
    """Also where the id of the cluster that would commit them is not known."""
    assert group_offsets([{"in": {"0": 5}, "@topics": {"in": "one"}}], "", {"in": "one"}) == {}


def test_every_source_in_topics_counts_whatever_the_others_are() -> None:
    sources = [None, {"a": {"0": 1}}, {"logOffset": 3}, {"b": {"0": 1, "1": 2}, "c": {"0": 0}}]
    assert topics_of(sources) == {"a", "b", "c"}


@given(
    st.dictionaries(st.sampled_from([AT, OTHER]), st.integers(0, 3)), st.tuples(st.integers(0, 3), st.integers(0, 3))
)
def test_a_batch_may_be_written_where_the_group_is_behind_no_beginning_of_it(
    committed: dict[TopicPartition, int], begins: tuple[int, int]
) -> None:
    starts = dict(zip((AT, OTHER), begins, strict=True))
    told = beyond("query", Progress.of("query", 3, []), starts, committed)
    assert (told is None) == all(offset <= starts[at] for at, offset in committed.items())
    if told is not None:
        where = json.loads(told.partition("startingOffsets='")[2].partition("'")[0])
        assert where == {"in": {str(at.partition): offset for at, offset in committed.items()}}
        assert "batch 3 of application 'query'" in told


def test_the_positions_of_the_group_are_read_and_of_partitions_that_have_none_nothing_is_told() -> None:
    async def test(bench: Bench) -> None:
        cluster = bench.cluster("reader")
        deadline = cluster.deadline("setting the positions")
        await alter_group_offsets(cluster, "query", {AT: OffsetAndMetadata(0)}, deadline)
        assert await positions_of(cluster, "query", [AT, OTHER]) == {AT: 0}
        assert await positions_of(cluster, "another", [AT, OTHER]) == {}
        await cluster.close()

    in_world(test)


@pytest.mark.parametrize(("patience_ms", "waited_ms"), [(60_000, 10_000), (2_000, 2_000)])
def test_where_the_group_cannot_be_asked_that_is_logged_before_long(
    caplog: pytest.LogCaptureFixture, patience_ms: int, waited_ms: int
) -> None:
    """What a batch may be written without is not waited for as long as the batch itself."""

    async def test(bench: Bench) -> None:
        runtime = bench.world.runtime("reader")
        cluster = Cluster(ADDRESS, runtime=runtime, patience_ms=patience_ms, request_timeout_ms=1000)
        await cluster.topic("in", cluster.deadline("looking up a topic"))
        bench.world.kill()
        with caplog.at_level(logging.WARNING, group_positions.__name__):
            assert await positions_of(cluster, "query", [AT]) == {}
        assert "application query: what was committed is not known by its group" in caplog.text
        assert f" within {waited_ms} ms" in caplog.text
        await cluster.close()

    in_world(test)


@pytest.mark.parametrize("level", [2, 1])
def test_positions_of_a_transaction_that_is_open_are_waited_for(level: int) -> None:
    async def test(bench: Bench) -> None:
        runtime = bench.world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, transactional_id="writer") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({AT: 7}, "query")
                cluster = bench.cluster("reader")
                asked = asyncio.ensure_future(positions_of(cluster, "query", [AT]))
                await asyncio.sleep(1)
                assert not asked.done()
            assert await asked == {AT: 7}
            await cluster.close()

    in_world(test, level)
