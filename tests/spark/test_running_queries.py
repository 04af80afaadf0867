"""What befalls the topics and the clusters of a query of Spark while it runs: rows, or the name of what is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.ports import free_port
from tests.spark.places import ROWS, Place

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Admin
from fencepost.spark import Step, write_stream
from fencepost.spark.progress import TOPIC as PROGRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_PATIENCE = 120.0


def running(rows: DataFrame, place: Place, to: Place | None = None, **options: Any) -> StreamingQuery:
    there = to or place
    return write_stream(
        rows,
        topic=there.target,
        application_id=there.application,
        bootstrap_servers=there.servers,
        checkpoint_location=place.checkpoint,
        **options,
    )


def wait_for(query: StreamingQuery, place: Place, values: Iterable[int]) -> None:
    """Until these are shown, and no others."""
    expected, until = sorted(values), time.monotonic() + _PATIENCE
    while (found := place.shown()) != expected:
        assert query.isActive, query.exception()
        assert time.monotonic() < until, (len(found), len(expected))
        time.sleep(0.2)


def failure(query: StreamingQuery) -> str:
    """What it ended of."""
    with suppress(Exception):
        query.awaitTermination(int(_PATIENCE))
    assert not query.isActive
    return str(query.exception())


class Node:
    """A broker that may go away and come back, with what it has, to where it was."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._stack = ExitStack()
        self._listen = f"127.0.0.1:{free_port()}"
        self.broker = self.start()

    def start(self) -> Broker:
        settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
        running = running_broker(data=self._data, listen=self._listen, settings=settings)
        self.broker = self._stack.enter_context(running)
        return self.broker

    def stop(self) -> None:
        self._stack.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([(["here"], ["here"]), (["there"], ["there"])], id="one"),
        pytest.param([(["here", "there"], ["here", "there"]), (["there", "here"], ["there", "here"])], id="both"),
    ],
)
def test_from_one_cluster_to_another_while_they_go_away_in_turn(
    spark: Any, tmp_path: Path, turns: list[tuple[list[str], list[str]]]
) -> None:
    """Each row is written once; positions are where the source is alone, the record of progress where the sink is.

    The sink's cluster has a topic of the source's name, with rows of its own.
    """
    here, there = Node(tmp_path / "here"), Node(tmp_path / "there")
    place = Place(here.broker, tmp_path)
    other = Place(there.broker, tmp_path, place)
    other.fill(0, 7, other.source)
    query = running(place.stream(spark, group=place.application), place, other)
    wait_for(query, other, range(ROWS))
    nodes = {"here": here, "there": there}
    for number, (gone, back) in enumerate(turns):
        for name in gone:
            nodes[name].stop()
        time.sleep(1)
        for name in back:
            nodes[name].start()
        place.fill(ROWS + 10 * number, 10)
        wait_for(query, other, range(ROWS + 10 * number + 10))
    query.stop()
    last = running(place.stream(spark, group=place.application), place, other, trigger={"availableNow": True})
    last.awaitTermination()
    assert (place.read_by_the_group(), other.read_by_the_group()) == (ROWS + 10 * len(turns), None)
    for node, has_progress in ((here, False), (there, True)):
        with Admin(node.broker.bootstrap_servers) as admin:
            assert (PROGRESS in admin.topics()) is has_progress
        node.stop()


def test_a_query_whose_cluster_is_gone_is_stopped_and_goes_on_when_that_is_back(spark: Any, tmp_path: Path) -> None:
    """It is stopped while it waits for the answer to its commit, and ends as one that was stopped, not of an error."""
    node, gone = Node(tmp_path / "node"), threading.Event()
    place = Place(node.broker, tmp_path)

    def go_away(step: Step, _: int) -> None:
        if step is Step.WRITTEN:
            node.stop()
            gone.set()

    query = running(place.stream(spark), place, watch=go_away)
    assert gone.wait(_PATIENCE)
    query.stop()
    assert query.exception() is None
    node.start()
    place.run(spark)
    assert place.shown() == list(range(ROWS))
    node.stop()


def test_a_topic_that_grows_and_is_made_anew_under_a_query(spark: Any, place: Place) -> None:
    """New partitions are read from their beginning; then the query ends, and names what is lost."""
    query = running(place.stream(spark), place)
    wait_for(query, place, range(ROWS))
    with Admin(place.servers) as admin:
        admin.create_partitions(place.source, 5)
        for first, partition in ((ROWS, 4), (ROWS + 50, 0)):
            place.fill(first, 50, partition=partition)
        wait_for(query, place, range(ROWS + 100))
        admin.delete_topic(place.source)
        admin.create_topic(place.source, partitions=3)
    place.fill(10**6, 2 * ROWS)
    said = failure(query)
    name = f"topic '{place.source}'"
    assert f"{name} was deleted and made anew" in said or f"there is no {name} to read" in said, said
    assert place.shown() == list(range(ROWS + 100))


def test_a_topic_that_is_made_anew_under_a_query_that_accepts_losses(spark: Any, place: Place) -> None:
    """It has more rows, or fewer, than the one before; for a while there was none."""
    more = {"failOnDataLoss": "false", "subscribePattern": f"in-{place.name}"}
    query = running(place.stream(spark, more=more, topic=None), place)
    wait_for(query, place, range(ROWS))
    shown = set(range(ROWS))
    for count in (2 * ROWS, 20):
        with Admin(place.servers) as admin:
            admin.delete_topic(place.source)
            time.sleep(0.5)
            admin.create_topic(place.source, partitions=3)
        first = max(shown) + 1
        place.fill(first, count)
        shown |= set(range(first, first + count))
        wait_for(query, place, shown)
    query.stop()
