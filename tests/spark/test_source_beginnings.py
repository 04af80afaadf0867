"""Where a query begins that has no checkpoint yet, or another one, and what it tells its group."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.broker.wire import on_the_loop, wait_until
from tests.spark.test_source import SCHEMA, Engine, Row, Topic, group_of, rows_of

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Consumer
from fencepost.client.errors import BrokerError
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions
from fencepost.spark.source import StreamReader


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        yield broker


def where_a_query_ended(topic: Topic, stack: ExitStack) -> tuple[Positions, list[Row]]:
    """Where one that has read everything stands, as its last batch is recorded, and what it read."""
    topic.write(6)
    engine = Engine(topic, topic.options(startingOffsets="earliest"), None)
    stack.callback(engine.stop)
    engine.drain()
    assert engine.offsets is not None
    return Positions.decode(engine.offsets)._replace(began=None), engine.rows


@pytest.mark.parametrize("seed", range(2))
def test_a_new_query_that_accepts_losses_goes_on_where_a_committed_batch_ended(broker: Broker, seed: int) -> None:
    """Its sink lets it in only if it says that it began there, though the topic was made anew."""
    with ExitStack() as stack:
        topic = Topic(broker, f"accepts-{seed}", random.Random(f"accepts {seed}"), stack)
        ended, _ = where_a_query_ended(topic, stack)
        topic.make_anew()
        topic.write(12)
        options = topic.options(startingOffsets=json.dumps(ended.encode()), failOnDataLoss=False)
        newer = Engine(topic, options, None)
        stack.callback(newer.stop)
        newer.drain()
        assert newer.offsets is not None
        assert Positions.decode(newer.offsets).began == ended
        assert sorted(newer.rows, key=lambda row: row[:2]) == topic.shown()


def test_a_first_batch_that_is_run_again_begins_where_it_began(broker: Broker) -> None:
    """Its end is in the checkpoint, its beginning was asked for: the answer may be another one by now."""
    with ExitStack() as stack:
        topic = Topic(broker, "again", random.Random("again"), stack)
        topic.write(5)
        reader = StreamReader(parse(topic.options(startingOffsets="latest"), streaming=True), SCHEMA)
        stack.callback(reader.stop)
        start = reader.initialOffset()
        before = {row[:2] for row in topic.committed}
        topic.write(8)
        end = reader.latestOffset(start, ReadAllAvailable())
        planned = rows_of(reader, reader.partitions(start, end), topic.name)
        assert planned == [row for row in topic.shown() if row[:2] not in before]
        topic.write(5)
        reader.stop()
        later = reader.initialOffset()
        assert later != start
        assert rows_of(reader, reader.partitions(later, end), topic.name) == planned
        following = reader.latestOffset(end, ReadAllAvailable())
        rest = rows_of(reader, reader.partitions(end, following), topic.name)
        assert sorted(planned + rest) == [row for row in topic.shown() if row[:2] not in before]


def test_a_query_with_another_checkpoint_begins_where_it_is_told(broker: Broker) -> None:
    """Not where an older one of the same application was pinned, once that has planned a batch."""
    with ExitStack() as stack:
        topic = Topic(broker, "pinned", random.Random("pinned"), stack)
        topic.write(4)
        options = topic.options(startingOffsets="latest", applicationId="pinned")
        begun = {row[:2] for row in topic.committed}
        older = Engine(topic, options, None)
        stack.callback(older.stop)
        older.begin()
        topic.write(4)
        older.restart()
        older.drain()
        assert {row[:2] for row in older.rows} == {row[:2] for row in topic.committed} - begun
        for _ in range(2):
            seen = {row[:2] for row in topic.committed}
            newer = Engine(topic, options, None)
            stack.callback(newer.stop)
            newer.begin()
            topic.write(4)
            newer.restart()
            newer.drain()
            assert {row[:2] for row in newer.rows} == {row[:2] for row in topic.committed} - seen


def test_a_query_that_ends_before_its_first_batch_is_written_down_begins_there_again(broker: Broker) -> None:
    """Spark asked how far that goes, and was gone before it wrote the answer into the checkpoint."""
    with ExitStack() as stack:
        topic = Topic(broker, "unwritten", random.Random("unwritten"), stack)
        topic.write(4)
        options = parse(topic.options(startingOffsets="latest", applicationId="unwritten"), streaming=True)
        older, newer = StreamReader(options, SCHEMA), StreamReader(options, SCHEMA)
        stack.callback(newer.stop)
        begun = older.initialOffset()
        topic.write(4)
        assert older.latestOffset(begun, ReadAllAvailable()) != begun
        older.stop()
        assert newer.initialOffset() == begun


def test_a_query_of_one_batch_is_over_for_the_next_one_when_that_batch_is_planned(broker: Broker) -> None:
    """As with a trigger of once, where nothing is asked for after it."""
    with ExitStack() as stack:
        topic = Topic(broker, "once", random.Random("once"), stack)
        options = topic.options(startingOffsets="latest", applicationId="once")
        older, newer = (Engine(topic, options, None) for _ in range(2))
        stack.callback(older.stop)
        stack.callback(newer.stop)
        older.begin()
        topic.write(4)
        assert older.batch()
        topic.write(3)
        newer.drain()
        assert newer.rows == []


@pytest.mark.parametrize("is_there_more", [True, False])
def test_a_pin_that_an_older_version_left_is_released_by_the_query_that_it_is_of(
    broker: Broker, is_there_more: bool
) -> None:
    with ExitStack() as stack:
        name = f"left-{is_there_more}"
        topic = Topic(broker, name, random.Random("left"), stack)
        topic.write(4)
        options = topic.options(startingOffsets="latest", applicationId=name)
        engine, ahead = Engine(topic, options, None), Engine(topic, topic.options(startingOffsets="earliest"), None)
        stack.callback(engine.stop)
        stack.callback(ahead.stop)
        engine.begin()
        ahead.drain()
        engine.offsets = {topic.name: {str(number): 0 for number in range(topic.partitions)}}
        if not is_there_more:
            engine.offsets = ahead.offsets
        engine.restart()
        assert engine.batch() is is_there_more
        engine.drain()
        topic.write(3)
        newer = Engine(topic, options, None)
        stack.callback(newer.stop)
        newer.drain()
        assert newer.rows == []


def test_a_new_query_goes_on_where_a_committed_batch_ended(broker: Broker) -> None:
    """Also in partitions that came later; but not in a topic that was made anew."""
    with ExitStack() as stack:
        topic = Topic(broker, "resumed", random.Random("resumed"), stack)
        ended, rows = where_a_query_ended(topic, stack)
        topic.grow()
        topic.write(12)
        options = topic.options(startingOffsets=json.dumps(ended.encode()))
        newer = Engine(topic, options, None)
        stack.callback(newer.stop)
        newer.batch()
        assert sorted(rows + newer.rows) == topic.shown()
        assert newer.offsets is not None
        began = Positions.decode(newer.offsets).began
        assert began is not None and ended.offsets.items() <= began.offsets.items()
        assert (began.cluster_id, began.topic_ids) == (ended.cluster_id, ended.topic_ids)
        topic.make_anew()
        with pytest.raises(BrokerError, match="made anew"):
            Engine(topic, options, None).batch()


def test_a_query_that_goes_on_begins_where_it_is_told_whatever_an_older_one_was_pinned_to(broker: Broker) -> None:
    with ExitStack() as stack:
        topic = Topic(broker, "goes-on", random.Random("goes on"), stack)
        ended, rows = where_a_query_ended(topic, stack)
        topic.write(6)
        pinned = Engine(topic, topic.options(startingOffsets="latest", applicationId="goes-on"), None)
        stack.callback(pinned.stop)
        pinned.begin()
        topic.write(6)
        options = topic.options(startingOffsets=json.dumps(ended.encode()), applicationId="goes-on")
        newer = Engine(topic, options, None)
        stack.callback(newer.stop)
        newer.batch()
        assert sorted(rows + newer.rows) == topic.shown()


def test_a_reader_that_is_stopped_keeps_no_connection(broker: Broker) -> None:
    with ExitStack() as stack:
        topic = Topic(broker, "stopped", random.Random("stopped"), stack)
        topic.write(3)
        before = on_the_loop(broker, lambda: len(broker.node.connections))
        engine = Engine(topic, topic.options(startingOffsets="earliest"), None)
        engine.drain()
        assert on_the_loop(broker, lambda: len(broker.node.connections)) > before
        engine.stop()
        engine.stop()
        wait_until("it is gone", lambda: on_the_loop(broker, lambda: len(broker.node.connections)) <= before)


def test_a_stream_tells_its_group_what_is_done(broker: Broker) -> None:
    with ExitStack() as stack:
        topic = Topic(broker, "told", random.Random("told"), stack)
        topic.write(6)
        options = {"startingOffsets": "earliest", "kafka.group.id": "told"}
        engine = Engine(topic, topic.options(**options), 3)
        stack.callback(engine.stop)
        for _ in range(4):
            done = engine.offsets
            engine.batch()
            assert group_of(topic, "told") == ({} if done is None else Positions.decode(done).offsets)
        engine.restart()
        engine.drain()
        assert engine.offsets is not None
        assert group_of(topic, "told") == Positions.decode(engine.offsets).offsets


def test_a_group_that_takes_no_position_disturbs_nobody(broker: Broker) -> None:
    """It has a member, that alone may commit."""
    with ExitStack() as stack:
        topic = Topic(broker, "taken", random.Random("taken"), stack)
        topic.write(6)
        member = stack.enter_context(Consumer(bootstrap_servers=topic.servers, group_id="taken"))
        member.subscribe(topic.name)
        while not member.assignment():
            member.poll(100)
        options = {"startingOffsets": "earliest", "kafka.group.id": "taken"}
        engine = Engine(topic, topic.options(**options), 3)
        stack.callback(engine.stop)
        engine.drain()
        assert sorted(engine.rows, key=lambda row: row[:2]) == topic.shown()
        assert sum(group_of(topic, "taken").values()) == 0 < sum(Positions.decode(engine.offsets).offsets.values())


def test_a_reader_that_has_asked_the_cluster_goes_to_another_process_and_plans_there_as_here(broker: Broker) -> None:
    """Spark sends it on as bytes; its connections and their thread are of the process in which they were made."""
    with ExitStack() as stack:
        topic = Topic(broker, "sent-on", random.Random("sent on"), stack)
        topic.write(5)
        reader = StreamReader(parse(topic.options(startingOffsets="earliest"), streaming=True), SCHEMA)
        stack.callback(reader.stop)
        start = reader.initialOffset()
        copy = pickle.loads(pickle.dumps(reader))
        stack.callback(copy.stop)
        end = reader.latestOffset(start, ReadAllAvailable())
        assert copy.latestOffset(start, ReadAllAvailable()) == end
        planned = [rows_of(each, each.partitions(start, end), topic.name) for each in (reader, copy)]
        assert planned[0] == planned[1] == topic.shown()
