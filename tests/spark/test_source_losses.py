"""Records that a stream was to read and that are gone: removed, or of a topic that was made anew."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from tests.spark.test_source import SCHEMA, Engine, Topic, rows_of

from fencepost.broker import Broker, running_broker
from fencepost.client.errors import BrokerError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.protocol.messages.list_offsets import EARLIEST
from fencepost.protocol.types import TopicPartition
from fencepost.spark.options import Bound, parse
from fencepost.spark.positions import Positions
from fencepost.spark.source import BatchReader, Range, StreamReader


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        yield broker


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_are_gone_are_an_error_unless_it_is_said_otherwise(
    broker: Broker, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    with ExitStack() as stack:
        topic = Topic(broker, f"lost-{fails}", random.Random(f"lost {fails}"), stack)
        topic.write(20)
        options = topic.options(failOnDataLoss=fails, startingOffsets="earliest")
        engine = Engine(topic, options, None)
        stack.callback(engine.stop)
        engine.offsets = {topic.name: {str(n): 0 for n in range(topic.partitions)}}
        row = topic.shown()[len(topic.shown()) // 2]
        topic.delete_before(row.partition, row.offset)
        left = [each for each in topic.shown() if each.partition != row.partition or each.offset >= row.offset]
        assert row.offset > 0
        if fails:
            with pytest.raises(BrokerError, match=f"begins at {row.offset}: records are lost"):
                engine.drain()
        else:
            engine.drain()
            assert sorted(engine.rows, key=lambda row: row[:2]) == left
            named = re.findall(rf"left out .*: {topic.name}-{row.partition} from offset (\d+) to (\d+)", caplog.text)
            gone = [offset for first, last in named for offset in range(int(first), int(last) + 1)]
            assert gone == list(range(row.offset))


class Stub:
    """Answers of a cluster: up to where committed records are shown, and where the logs end."""

    def __init__(self, shown: int, log_end: int) -> None:
        self._shown, self._log_end = shown, log_end

    def positions(self, bound: Bound) -> Positions:  # noqa: ARG002
        return Positions({TopicPartition("t", 0): self._shown, TopicPartition("t", 1): 9})

    def ends_behind(self, known: Positions) -> Positions:  # noqa: ARG002
        return Positions({TopicPartition("t", 0): self._log_end, TopicPartition("t", 1): 9})


def stubbed(shown: int, log_end: int, **more: str) -> StreamReader:
    reader = StreamReader(parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **more}, True), SCHEMA)
    reader._asker_ = Stub(shown, log_end)  # type: ignore[assignment]
    return reader


LIMITS = (ReadAllAvailable(), ReadMaxRows(100))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("log_end", [5, 7])
def test_no_batch_ends_before_the_last_one_whatever_a_node_says(limit: ReadLimit, log_end: int) -> None:
    """One that has just started may know less of a transaction's end than the one before."""
    assert stubbed(3, log_end).latestOffset({"t": {"0": 5, "1": 5}}, limit) == {"t": {"0": 5, "1": 9}}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_log_that_ends_before_the_position_has_lost_records(limit: ReadLimit) -> None:
    start = {"t": {"0": 5, "1": 5}}
    with pytest.raises(BrokerError, match="t-0 was to be read from offset 5, but ends at 4"):
        stubbed(3, 4).latestOffset(start, limit)
    after = stubbed(3, 4, failOnDataLoss="false").latestOffset(start, limit)
    assert after == {"t": {"0": 4, "1": 9}}


def test_nothing_new_is_said_in_the_words_of_the_checkpoint() -> None:
    """Spark compares them."""
    start = {"t": {"1": 9, "0": 3}, "@began": {"t": {"0": 0}}}
    assert stubbed(3, 3).latestOffset(start, ReadAllAvailable()) is start


class Grown(Stub):
    """Partition t-0 ends at 5, and t-1 has what lies between `first` and 10."""

    def __init__(self, first: int, topic_id: str) -> None:
        self._first, self._topic_id = first, topic_id

    def positions(self, bound: Bound) -> Positions:
        places = (0, self._first) if bound.otherwise == EARLIEST else (5, 10)
        return Positions({TopicPartition("t", n): place for n, place in enumerate(places)}, "c", {"t": self._topic_id})


def grown(first: int, topic_id: str = "same", **more: str) -> StreamReader:
    reader = stubbed(0, 0, **more)
    reader._asker_ = Grown(first, topic_id)  # type: ignore[assignment]
    return reader


MARKS = {"@cluster": "c", "@topics": {"t": "same"}}
BEFORE = {"t": {"0": 5}, **MARKS}
AFTER = {"t": {"0": 5, "1": 10}, **MARKS}


@pytest.mark.parametrize("first", [0, 1, 6, 10])
def test_a_partition_that_came_later_has_lost_records_if_it_does_not_begin_at_0(first: int) -> None:
    """Nobody has read what was there before, also where the same micro-batch was planned once with it."""
    resumed = {"startingOffsets": json.dumps(BEFORE)}
    asks: list[Callable[[StreamReader], Any]] = [
        lambda reader: reader.partitions(BEFORE, AFTER),
        lambda reader: reader.partitions({}, AFTER | {"@began": BEFORE}),
        lambda reader: reader.latestOffset(BEFORE, ReadMaxRows(3)),
        lambda reader: reader.initialOffset(),
    ]
    for ask in asks:
        if first:
            with pytest.raises(BrokerError, match=f"t-1 was to be read from offset 0, but begins at {first}"):
                ask(grown(first, **resumed))
        else:
            ask(grown(first, **resumed))
        ask(grown(first, failOnDataLoss="false", **resumed))


@pytest.mark.parametrize("first", [0, 6])
def test_a_partition_that_came_later_is_read_from_its_beginning_where_losses_are_accepted(first: int) -> None:
    assert ranges(grown(first, failOnDataLoss="false"), BEFORE, AFTER) == [(1, first, 10)]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_partition_that_loses_all_its_records_while_it_is_looked_up_ends_where_it_begins(limit: ReadLimit) -> None:
    """Its end was asked for before its beginning; the next micro-batch goes on there, and is told of no loss again."""
    after = grown(12, failOnDataLoss="false").latestOffset(BEFORE, limit)
    assert (after["t"]["1"], after["@firsts"]) == (12, {"t": {"1": 12}})


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_the_query_did_not_know_may_begin_anywhere(fails: str) -> None:
    """It is the first that is seen of it, as of one that was made anew and accepted."""
    other = {"other": {"0": 5}, "@cluster": "c"}
    assert ranges(grown(6, failOnDataLoss=fails), other, AFTER) == [(0, 0, 5), (1, 6, 10)]
    anew = AFTER | {"@topics": {"t": "another"}}
    assert ranges(grown(6, "another", failOnDataLoss=fails), BEFORE, anew) == [(0, 0, 5), (1, 6, 10)]


def ranges(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    planned = [part for part in reader.partitions(start, end) if isinstance(part, Range)]
    return [(part.at.partition, part.start, part.end) for part in planned]


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("counts", [(2, 5), (5, 2), (4, 4)], ids=["more", "fewer", "as many"])
def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(
    broker: Broker, counts: tuple[int, int], restarted: bool, fails: bool
) -> None:
    with ExitStack() as stack:
        name = f"anew-{counts[0]}-{restarted}-{fails}"
        topic = Topic(broker, name, random.Random(name), stack)
        topic.write(counts[0])
        engine = Engine(topic, topic.options(failOnDataLoss=fails, startingOffsets="earliest"), None)
        stack.callback(engine.stop)
        engine.drain()
        read = list(engine.rows)
        assert read == topic.shown()
        topic.make_anew()
        topic.write(counts[1])
        if restarted:
            engine.restart()
        if fails:
            for _ in range(2):
                with pytest.raises(BrokerError, match=f"topic '{name}' was deleted and made anew"):
                    engine.drain()
            assert engine.rows == read
        else:
            engine.drain()
            assert engine.rows[len(read) :] == topic.shown()


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("counts", [(2, 6), (6, 2)], ids=["more", "fewer"])
def test_a_topic_that_is_made_anew_before_a_task_reads_it_is_named(
    broker: Broker, counts: tuple[int, int], fails: bool
) -> None:
    with ExitStack() as stack:
        name = f"between-{counts[0]}-{fails}"
        topic = Topic(broker, name, random.Random(name), stack)
        topic.write(counts[0])
        reader = BatchReader(parse(topic.options(failOnDataLoss=fails), streaming=False), SCHEMA)
        parts = reader.partitions()
        topic.make_anew()
        topic.write(counts[1])
        if fails:
            with pytest.raises(BrokerError, match=f"topic '{name}' was deleted and made anew"):
                rows_of(reader, parts, name)
        else:
            assert rows_of(reader, parts, name) == []


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("deleted_first", [True, False])
def test_a_topic_that_is_made_anew_while_a_task_reads_it_is_named(
    broker: Broker, deleted_first: bool, by_id: bool
) -> None:
    """The first fetch is made, the next one gives records of another topic, or none."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        name = f"while-{deleted_first}-{by_id}"
        if not by_id:  # as brokers before Apache Kafka 3.1
            patch.setattr("fencepost.spark.reading.TOPIC_IDS_SINCE", 99)
        topic = Topic(broker, name, random.Random(name), stack)
        topic.write(12)
        reader = BatchReader(parse(topic.options(), streaming=False), SCHEMA)
        parts = reader.partitions()
        patch.setattr("fencepost.spark.reading._FETCH_BYTES", 1)
        rows = reader.read(parts[0])
        next(rows)
        topic.make_anew()
        if not deleted_first:
            topic.write(30)
        with pytest.raises(BrokerError, match=f"topic '{name}' was deleted and made anew"):
            list(rows)


@pytest.mark.parametrize("by_id", [True, False])
def test_a_topic_that_is_made_anew_while_a_task_reads_it_gives_no_rows_of_the_new_one(
    broker: Broker, by_id: bool
) -> None:
    """Where losses are accepted: the new topic is read from its beginning later."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        topic = Topic(broker, f"accepted-{by_id}", random.Random("accepted"), stack)
        if not by_id:
            patch.setattr("fencepost.spark.reading.TOPIC_IDS_SINCE", 99)
        topic.write(12)
        old = topic.shown()
        reader = BatchReader(parse(topic.options(failOnDataLoss=False), streaming=False), SCHEMA)
        parts = reader.partitions()
        fetch = "fencepost.spark.reading.fetch_partition"
        asked: list[int] = []

        async def replaced(*given: Any, **more: Any) -> Any:
            asked.append(1)
            if len(asked) == 3:
                topic.make_anew()
                topic.write(30)
            return await fetch_partition(*given, **more)

        patch.setattr("fencepost.spark.reading._FETCH_BYTES", 1)
        patch.setattr(fetch, replaced)
        found = rows_of(reader, parts, topic.name)
        assert len(asked) > 2
        assert [row for row in found if row not in old] == []


def test_a_topic_of_a_pattern_that_was_deleted_is_a_loss(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.offsets._CATCHES_UP_WITHIN_MS", 100)
    with ExitStack() as stack:
        kept, deleted = (Topic(broker, f"some-{n}", random.Random(f"some {n}"), stack) for n in range(2))
        part_of_it_fits = Topic(broker, "some-1-old", random.Random("some 1 old"), stack)
        for topic in (kept, deleted, part_of_it_fits):
            topic.write(5)
        for fails in ("true", "false"):
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": "some-."}
            options |= {"startingOffsets": "earliest", "failOnDataLoss": fails}
            reader = StreamReader(parse(options, streaming=True), SCHEMA)
            stack.callback(reader.stop)
            if fails == "true":
                end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
                deleted.delete()
                with pytest.raises(BrokerError, match=f"topic '{deleted.name}' was deleted"):
                    reader.latestOffset(end, ReadAllAvailable())
            else:
                after = reader.latestOffset(end, ReadAllAvailable())
                parts = [part for part in reader.partitions(end, after) if isinstance(part, Range)]
                assert {part.at.topic for part in parts} == {kept.name}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_a_node_finds_late_is_read_on_from_where_the_query_stood(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """One that has just started may know of fewer topics than the one before."""
    kept, late = (TopicPartition(f"p-{name}", 0) for name in "ab")
    ids, shown = {"p-a": "1", "p-b": "2"}, [kept, late]

    def answer(*there: TopicPartition) -> Positions:
        return Positions(dict.fromkeys(there, 7), "c", {at.topic: ids[at.topic] for at in there})

    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribePattern": "p-.", "failOnDataLoss": fails}
    reader = StreamReader(parse(options, streaming=True), SCHEMA)
    cluster = SimpleNamespace(positions=lambda _: answer(*shown), ends_behind=lambda _: answer(kept, late))
    monkeypatch.setattr(reader, "_asker_", cluster)
    before = Positions({kept: 4, late: 5}, "c", ids).encode()
    shown.remove(late)
    there = reader.latestOffset(before, ReadAllAvailable())
    assert (there["p-a"], there["p-b"]) == ({"0": 7}, {"0": 5}), "how far it may be read is not known yet"
    shown.append(late)
    assert reader.latestOffset(there, ReadAllAvailable())["p-b"] == {"0": 7}


def test_a_topic_that_was_deleted_is_waited_for_once_and_again_if_it_was_there_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where its loss is accepted the query goes on at its pace."""
    there, found, waits = {"p-a", "p-b"}, 0, 0

    def positions(*_: Any) -> Positions:
        return Positions({TopicPartition(name, 0): found for name in there}, "c", dict.fromkeys(there, "id"))

    def ends_behind(*_: Any) -> Positions:
        nonlocal waits
        waits += 1
        return positions()

    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribePattern": "p-.", "failOnDataLoss": "false"}
    reader = StreamReader(parse(options, streaming=True), SCHEMA)
    monkeypatch.setattr(reader, "_asker_", SimpleNamespace(positions=positions, ends_behind=ends_behind))
    position = reader.latestOffset({}, ReadAllAvailable())
    moves: list[tuple[set[str], int, int]] = [
        ({"p-b"}, 5, 1),
        ({"p-b"}, 6, 1),
        ({"p-a", "p-b"}, 7, 1),
        ({"p-a"}, 8, 2),
        ({"p-a"}, 9, 2),
        (set(), 9, 3),
        (set(), 9, 3),
    ]
    for names, end, expected in moves:
        there, found = names, end
        position = reader.latestOffset(position, ReadAllAvailable())
        assert waits == expected
    assert (position["p-a"], position["p-b"]) == ({"0": 9}, {"0": 7})
