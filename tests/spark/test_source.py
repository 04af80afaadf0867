"""The source's readers, asked as Spark's engine asks them, against a broker; Spark itself is not there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
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
from fencepost.client.portal import Portal
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.record_columns import FIELDS
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions
from fencepost.spark.progress import TOPIC as PROGRESS
from fencepost.spark.reading import read_range
from fencepost.spark.source import BatchReader, StreamReader

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


def group_of(topic: Topic, group_id: str) -> dict[TopicPartition, int]:
    with Consumer(bootstrap_servers=topic.servers, group_id=group_id) as consumer:
        found = consumer.committed([TopicPartition(topic.name, number) for number in range(topic.partitions)])
    return {at: stored.offset for at, stored in found.items() if stored is not None}


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
