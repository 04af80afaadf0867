"""The source's readers, asked as Spark's engine asks them, against a broker; Spark itself is not there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from fencepost.broker import Broker, running_broker
from fencepost.client import RecordMetadata
from fencepost.client.blocking import Admin, Consumer, Delivery, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.client.portal import Portal
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.list_offsets import EARLIEST
from fencepost.protocol.record_columns import FIELDS
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark.options import Bound, parse
from fencepost.spark.positions import Positions
from fencepost.spark.progress import TOPIC as PROGRESS
from fencepost.spark.reading import read_range
from fencepost.spark.source import BatchReader, Range, StreamReader

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A row as the source gives it; the timestamp in milliseconds since 1970."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        yield broker


class Topic:
    """A topic, those who write to it, and what a reader of committed records is to be shown."""

    def __init__(self, broker: Broker, name: str, chance: random.Random, stack: ExitStack) -> None:
        self.servers, self.name, self.chance = broker.bootstrap_servers, name, chance
        self.partitions = chance.randint(1, 3)
        self.committed: list[Row] = []
        self.number = 0
        self._admin = stack.enter_context(Admin(self.servers))
        self._admin.create_topic(name, partitions=self.partitions)
        codec = chance.choice(("none", "gzip", "lz4"))
        # What is sent before a flush is one batch.
        self._plain = stack.enter_context(Producer(self.servers, linger_ms=60_000, compression=codec))
        self._transactional = [
            stack.enter_context(Producer(self.servers, transactional_id=f"{name}-{n}", linger_ms=60_000))
            for n in range(2)
        ]
        for producer in self._transactional:
            producer.init_transactions()

    def write(self, steps: int) -> None:
        for _ in range(steps):
            dice = self.chance.random()
            if dice < 0.4:
                self._known(self._send(self._plain))
                continue
            producer = self.chance.choice(self._transactional)
            producer.begin_transaction()
            sent = self._send(producer)
            producer.flush()
            if dice < 0.6:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                self._known(sent)

    def _send(self, producer: Producer) -> list[tuple[Delivery[RecordMetadata], Row]]:
        sent = []
        for _ in range(self.chance.randint(1, 5)):
            self.number += 1
            row = Row(
                self.chance.randrange(self.partitions),
                -1,
                self.chance.choice((None, b"", b"key")),
                self.chance.choice((None, b"", b"%d" % self.number)),
                SystemClock().now() - self.chance.randrange(100_000),
                self.chance.choice(((), (("name", b"value"), ("none", None)))),
            )
            delivery = producer.send(
                self.name,
                row.value,
                key=row.key,
                partition=row.partition,
                timestamp=row.timestamp,
                headers=row.headers,
            )
            sent.append((delivery, row))
        producer.flush()
        return sent

    def _known(self, sent: Sequence[tuple[Delivery[RecordMetadata], Row]]) -> None:
        self.committed += [row._replace(offset=delivery.result().offset) for delivery, row in sent]

    def grow(self) -> None:
        self.partitions += 1
        self._admin.create_partitions(self.name, self.partitions)

    def make_anew(self) -> None:
        self._admin.delete_topic(self.name)
        self._admin.create_topic(self.name, partitions=self.partitions)
        self.committed.clear()

    def delete(self) -> None:
        self._admin.delete_topic(self.name)
        self.committed.clear()

    def delete_before(self, partition: int, offset: int) -> None:
        portal, cluster = Portal(), Cluster(self.servers)
        wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=self.name, partitions=wanted)], timeout_ms=1000)

        async def ask() -> None:
            await cluster.call_controller(request, deadline=cluster.deadline("deleting"))
            await cluster.close()

        portal.call(ask())
        portal.close()

    def shown(self) -> list[Row]:
        return sorted(self.committed, key=lambda row: row[:2])

    def options(self, **more: object) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name, "includeHeaders": "true"}
        return given | {name: str(value) for name, value in more.items()}


#: Only the names count.
SCHEMA = StructType([StructField(name, BinaryType()) for name in FIELDS])


def rows_of(reader: BatchReader | StreamReader, parts: Sequence[Any], topic: str) -> list[Row]:
    """What the tasks of a read give, one after the other."""
    found = []
    for part in parts:
        for batch in reader.read(part):
            assert isinstance(batch, pa.RecordBatch)
            for each in batch.to_pylist():
                assert (each["topic"], each["timestampType"]) == (topic, 0)
                headers = tuple((one["key"], one["value"]) for one in each["headers"] or ())
                moment = round(each["timestamp"].timestamp() * 1000)
                found.append(Row(each["partition"], each["offset"], each["key"], each["value"], moment, headers))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_read_gives_every_committed_record_of_its_range_once_in_all_its_columns(
    broker: Broker, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that goes beyond what is there, where that is said to be no error."""
    monkeypatch.setattr("fencepost.spark.offsets._CATCHES_UP_WITHIN_MS", 100)
    chance = random.Random(f"batch {seed}")
    with ExitStack() as stack:
        topic = Topic(broker, f"batch-{seed}", chance, stack)
        topic.write(25)
        for _ in range(6):
            start = {n: chance.randrange(60) for n in range(topic.partitions) if chance.random() < 0.7}
            end = {n: chance.randrange(60) for n in range(topic.partitions) if chance.random() < 0.7}
            every = range(topic.partitions)
            options = topic.options(minPartitions=chance.randint(1, 9), failOnDataLoss=False)
            options["startingOffsets"], options["endingOffsets"] = (
                _named(topic, dict.fromkeys(every, which) | each) for which, each in ((-2, start), (-1, end))
            )
            reader = BatchReader(parse(options, streaming=False), SCHEMA)
            expected = [
                row
                for row in topic.shown()
                if start.get(row.partition, 0) <= row.offset < end.get(row.partition, 10**9)
            ]
            assert rows_of(reader, reader.partitions(), topic.name) == expected


def _named(topic: Topic, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic.name: {str(n): offset for n, offset in offsets.items()}})


class Engine:
    """What Spark does of a streaming query: it keeps offsets, asks for the next ones, and has what is between read."""

    def __init__(self, topic: Topic, options: Mapping[str, str], most: int | None) -> None:
        self._topic, self._options, self._most = topic, options, most
        self._reader = self._new()
        self.offsets: dict[str, Any] | None = None
        """Up to where batches are written down."""
        self.rows: list[Row] = []

    def _new(self) -> StreamReader:
        return StreamReader(parse(self._options, streaming=True), SCHEMA)

    def restart(self) -> None:
        self._reader.stop()
        self._reader = self._new()

    def only_what_is_there(self) -> None:
        self.restart()
        self._reader.prepareForTriggerAvailableNow()

    def begin(self) -> None:
        """Ask where to begin, and end before that is written down."""
        self._reader.initialOffset()

    def batch(self) -> bool:
        """One micro-batch; False if there is nothing to read."""
        start = self._reader.initialOffset() if self.offsets is None else self.offsets
        limit: ReadLimit = ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)
        end = self._reader.latestOffset(start, limit)
        if end == start:
            self.offsets = start
            return False
        found = rows_of(self._reader, self._reader.partitions(start, end), self._topic.name)
        assert self._most is None or len(found) <= self._most
        self.rows += found
        self.offsets = end
        return True

    def drain(self) -> None:
        while self.batch():
            pass

    def stop(self) -> None:
        self._reader.stop()


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_reads_every_committed_record_once_over_restarts_and_new_partitions(broker: Broker, seed: int) -> None:
    chance = random.Random(f"stream {seed}")
    with ExitStack() as stack:
        topic = Topic(broker, f"stream-{seed}", chance, stack)
        topic.write(chance.randint(0, 5))
        before = {row[:2] for row in topic.committed}
        options = topic.options(minPartitions=chance.randint(1, 4))
        latest = seed % 2 == 1
        options |= {"startingOffsets": "latest", "applicationId": topic.name} if latest else {}
        options |= {} if latest else {"startingOffsets": "earliest"}
        engine = Engine(topic, options, chance.choice((None, 3, 10)))
        stack.callback(engine.stop)
        engine.begin()
        for _ in range(12):
            dice = chance.random()
            if dice < 0.4:
                topic.write(chance.randint(1, 3))
            elif dice < 0.6:
                engine.restart()
            elif dice < 0.7:
                topic.grow()
            elif dice < 0.8:
                engine.only_what_is_there()
                topic_was = {row[:2] for row in topic.committed}
                topic.write(1)
                engine.drain()
                assert {row[:2] for row in engine.rows} <= topic_was
                engine.restart()
            else:
                engine.batch()
        engine.restart()
        engine.drain()
        expected = [row for row in topic.shown() if not latest or row[:2] not in before]
        assert sorted(engine.rows, key=lambda row: row[:2]) == expected
        for partition in range(topic.partitions):
            offsets = [row.offset for row in engine.rows if row.partition == partition]
            assert offsets == sorted(offsets)


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_are_gone_are_an_error_unless_it_is_said_otherwise(broker: Broker, fails: bool) -> None:
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


@pytest.mark.parametrize("count", range(1, 6))
def test_a_range_is_read_to_its_last_record_however_little_a_fetch_gives(broker: Broker, count: int) -> None:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        name = f"little-{count}"
        writer = stack.enter_context(Producer(broker.bootstrap_servers, linger_ms=0))
        stack.enter_context(Admin(broker.bootstrap_servers)).create_topic(name, partitions=1)
        for number in range(count):
            writer.send(name, b"%d" % number, partition=0).result()
        patch.setattr("fencepost.spark.reading._FETCH_BYTES", 1)
        for start, end in ((a, b) for a in range(count) for b in range(a + 1, count + 1)):
            at = TopicPartition(name, 0)
            batches = read_range(
                broker.bootstrap_servers, None, at, start, end, Isolation.READ_COMMITTED, ["value"], True
            )
            found = [value for batch in batches for value in batch.column(0).to_pylist()]
            assert found == [b"%d" % number for number in range(start, end)]


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


def test_a_topic_that_is_deleted_while_a_pattern_is_looked_at_is_left_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(*_: Any) -> list[str]:
        return ["gone-by-now", kept.name]

    with ExitStack() as stack:
        kept = Topic(broker, "still-there", random.Random("kept"), stack)
        monkeypatch.setattr("fencepost.spark.offsets._topics", listed)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": ".*"}
        reader = StreamReader(parse(options, streaming=True), SCHEMA)
        stack.callback(reader.stop)
        assert {at.topic for at in Positions.decode(reader.initialOffset()).offsets} == {kept.name}


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


def test_a_pin_that_an_older_version_left_is_released_by_the_query_that_it_is_of(broker: Broker) -> None:
    with ExitStack() as stack:
        topic = Topic(broker, "left", random.Random("left"), stack)
        topic.write(4)
        options = topic.options(startingOffsets="latest", applicationId="left")
        engine = Engine(topic, options, None)
        stack.callback(engine.stop)
        engine.begin()
        engine.offsets = {topic.name: {str(number): 0 for number in range(topic.partitions)}}
        engine.restart()
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


def group_of(topic: Topic, group_id: str) -> dict[TopicPartition, int]:
    with Consumer(bootstrap_servers=topic.servers, group_id=group_id) as consumer:
        found = consumer.committed([TopicPartition(topic.name, number) for number in range(topic.partitions)])
    return {at: stored.offset for at, stored in found.items() if stored is not None}


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


def test_a_pattern_leaves_out_topics_that_hold_no_rows(broker: Broker) -> None:
    with ExitStack() as stack:
        topic = Topic(broker, "every", random.Random("every"), stack)
        topic.write(2)
        admin = stack.enter_context(Admin(broker.bootstrap_servers))
        admin.create_topic(PROGRESS, partitions=1, exist_ok=True)
        group_of(topic, "every")  # so that there is a topic of positions
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": ".*"}
        reader = StreamReader(parse(options, streaming=True), SCHEMA)
        stack.callback(reader.stop)
        found = {at.topic for at in Positions.decode(reader.initialOffset()).offsets}
        everything = set(admin.topics())
        assert {"__consumer_offsets", PROGRESS} <= everything
        assert found == everything - {"__consumer_offsets", "__transaction_state", PROGRESS}
