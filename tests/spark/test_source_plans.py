"""What the source plans for topics that it sees for the first time, also when it plans again, and beyond the end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.spark.test_source import SCHEMA, Row, Topic, rows_of

from fencepost.broker import Broker, running_broker
from fencepost.client.errors import BrokerError
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions
from fencepost.spark.source import BatchReader, Range, StreamReader


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        yield broker


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.offsets._CATCHES_UP_WITHIN_MS", 100)


class Pattern:
    """A stream of the topics whose names begin alike, and a second one that comes when its first batch is done."""

    def __init__(self, broker: Broker, name: str, stack: ExitStack, **options: object) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": f"{name}-.*"}
        given |= {"startingOffsets": "earliest"} | {option: str(value) for option, value in options.items()}
        self.known = Topic(broker, f"{name}-known", random.Random(name), stack)
        self.known.write(2)
        self._options = given
        self.reader = self._new(stack)
        self.start = self.reader.latestOffset(self.reader.initialOffset(), ReadAllAvailable())
        self.later = Topic(broker, f"{name}-later", random.Random(name), stack)
        self.later.write(20)
        self.again = self._new(stack)
        """The same query after a restart."""

    def _new(self, stack: ExitStack) -> StreamReader:
        reader = StreamReader(parse(self._options, streaming=True), SCHEMA)
        stack.callback(reader.stop)
        return reader


def rows(reader: StreamReader, start: dict[str, object], end: dict[str, object], topic: Topic) -> list[Row]:
    parts = [part for part in reader.partitions(start, end) if isinstance(part, Range)]
    assert {part.at.topic for part in parts} == {topic.name}
    return rows_of(reader, parts, topic.name)


@pytest.mark.parametrize("most", [None, 7])
def test_a_batch_that_is_planned_again_reads_a_new_topic_from_where_it_began_then(
    broker: Broker, most: int | None
) -> None:
    """It may begin anywhere where it is first seen; by the second time records that were to be read are gone."""
    for fails in (True, False):
        with ExitStack() as stack:
            stream = Pattern(broker, f"first-{most}-{fails}", stack, failOnDataLoss=fails)
            topic = stream.later
            one = min(row for row in topic.shown() if row.offset > 0)
            topic.delete_before(one.partition, one.offset)
            left = [row for row in topic.shown() if row.partition != one.partition or row.offset >= one.offset]
            limit = ReadAllAvailable() if most is None else ReadMaxRows(most)
            end = stream.reader.latestOffset(stream.start, limit)
            stops = Positions.decode(end).offsets
            wanted = [row for row in left if row.offset < stops[topic.name, row.partition]]  # type: ignore[index]
            for reader in (stream.reader, stream.again):
                assert rows(reader, stream.start, end, topic) == wanted
            stream.known.write(1)
            assert Positions.decode(stream.again.latestOffset(end, ReadAllAvailable())).firsts == {}
            last = max(row for row in wanted if row.partition == one.partition)
            topic.delete_before(last.partition, last.offset)
            if fails:
                with pytest.raises(BrokerError, match=f"from offset {one.offset}, but begins at {last.offset}"):
                    rows(stream.again, stream.start, end, topic)
            else:
                kept = [row for row in wanted if row.partition != last.partition or row == last]
                assert rows(stream.again, stream.start, end, topic) == kept


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_new_topic_that_is_deleted_before_a_batch_is_planned_again_is_a_loss(
    broker: Broker, fails: bool, noted: bool
) -> None:
    """`noted`: the checkpoint says where the topic began, which it did not in earlier versions."""
    with ExitStack() as stack:
        stream = Pattern(broker, f"gone-{fails}-{noted}", stack, failOnDataLoss=fails)
        stream.known.write(2)
        end = stream.reader.latestOffset(stream.start, ReadAllAvailable())
        if not noted:
            del end["@firsts"]
        stream.later.delete()

        def planned() -> list[Row]:
            parts = stream.again.partitions(stream.start, end)
            return [row for part in parts for row in rows_of(stream.again, [part], part.at.topic)]  # type: ignore[attr-defined]

        if fails:
            with pytest.raises(BrokerError, match=f"topic '{stream.later.name}' was deleted"):
                planned()
        else:
            before = Positions.decode(stream.start).offsets
            new = [row for row in stream.known.shown() if row.offset >= before[stream.known.name, row.partition]]  # type: ignore[index]
            assert sorted(planned()) == new


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_batch_that_is_to_begin_or_end_behind_the_end_is_told_so(broker: Broker, option: str) -> None:
    """Nobody waits for what may never come; where losses are accepted it has what is there."""
    with ExitStack() as stack:
        topic = Topic(broker, f"beyond-{option}", random.Random(option), stack)
        topic.partitions = 1
        topic.write(4)
        wanted = f'{{"{topic.name}": {{"0": %d}}}}'
        assigned = {"kafka.bootstrap.servers": topic.servers, "assign": f'{{"{topic.name}": [0]}}'}

        def read(offset: int, **more: str) -> list[Row]:
            reader = BatchReader(parse(assigned | {option: wanted % offset} | more, streaming=False), SCHEMA)
            return rows_of(reader, reader.partitions(), topic.name)

        whole = topic.shown() if option == "endingOffsets" else []
        ends = Positions.decode(StreamReader(parse(assigned, streaming=True), SCHEMA).reportLatestOffset())
        end = ends.offsets[topic.name, 0]  # type: ignore[index]
        assert read(end) == whole
        for beyond in (end + 1, 2**63 - 1):
            with pytest.raises(BrokerError, match=f"{option} has {topic.name}-0 at {beyond}, but it ends at {end}"):
                read(beyond)
            assert read(beyond, failOnDataLoss="false") == whole
