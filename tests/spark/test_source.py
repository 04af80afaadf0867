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
from fencepost.client.blocking import Admin, Delivery, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError
from fencepost.client.portal import Portal
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark.options import Bound, parse
from fencepost.spark.reading import FIELDS
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

    def _send(self, producer: Producer) -> list[tuple[Delivery, Row]]:
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

    def _known(self, sent: Sequence[tuple[Delivery, Row]]) -> None:
        self.committed += [row._replace(offset=delivery.result().offset) for delivery, row in sent]

    def grow(self) -> None:
        self.partitions += 1
        self._admin.create_partitions(self.name, self.partitions)

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
    broker: Broker, seed: int
) -> None:
    chance = random.Random(f"batch {seed}")
    with ExitStack() as stack:
        topic = Topic(broker, f"batch-{seed}", chance, stack)
        topic.write(25)
        for _ in range(6):
            start = {n: chance.randrange(60) for n in range(topic.partitions) if chance.random() < 0.7}
            end = {n: chance.randrange(60) for n in range(topic.partitions) if chance.random() < 0.7}
            options = topic.options(minPartitions=chance.randint(1, 9))
            options["startingOffsets"], options["endingOffsets"] = (_named(topic, each) for each in (start, end))
            reader = BatchReader(parse(options, streaming=False), SCHEMA)
            reader_end = _log_ends(reader)
            expected = [
                row
                for row in topic.shown()
                if start.get(row.partition, 0) <= row.offset < end.get(row.partition, 10**9)
            ]
            if any(offset > reader_end[n] for n, offset in end.items()):
                continue  # it would wait for what is yet to come
            assert rows_of(reader, reader.partitions(), topic.name) == expected


def _named(topic: Topic, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic.name: {str(n): offset for n, offset in offsets.items()}})


def _log_ends(reader: BatchReader) -> dict[int, int]:
    stream = StreamReader(reader._options, SCHEMA)
    ends = stream._asker.offsets(Bound(-1))
    stream.stop()
    return {at.partition: offset for at, offset in ends.items()}


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


def test_no_batch_ends_before_the_last_one_whatever_a_node_says() -> None:
    """One that has just started may know less of a transaction's end than the one before."""

    class Forgetful:
        def offsets(self, bound: Bound) -> dict[TopicPartition, int]:  # noqa: ARG002
            return {TopicPartition("t", 0): 3, TopicPartition("t", 1): 9}

    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    reader = StreamReader(parse(options, streaming=True), SCHEMA)
    reader._asker_ = Forgetful()  # type: ignore[assignment]
    for limit in (ReadAllAvailable(), ReadMaxRows(100)):
        assert reader.latestOffset({"t": {"0": 5, "1": 5}}, limit) == {"t": {"0": 5, "1": 9}}
