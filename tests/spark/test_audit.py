"""An audit has everything that is in the log, and says of each record what became of it."""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from fencepost.broker import Broker, running_broker
from fencepost.client import RecordMetadata
from fencepost.client.blocking import Admin, Delivery, Producer
from fencepost.client.cluster import Cluster
from fencepost.protocol.batch import headers
from fencepost.protocol.control import control_batch
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.record_columns import FIELDS
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, ProducerId, TopicPartition
from fencepost.spark import reading
from fencepost.spark.audit import AUDIT_FIELDS, Fate, Markers, fate, sequence_of
from fencepost.spark.options import BadOption, parse
from fencepost.spark.source import AUDIT_COLUMNS, BatchReader, FencepostDataSource, Range

# Pure: a log made of batches


class Step(NamedTuple):
    """What a producer does next: `data` in its transaction, `plain` outside of any, or its end."""

    producer: int
    what: Literal["data", "plain", "commit", "abort"]
    records: int


STEPS = st.lists(
    st.builds(Step, st.integers(1, 3), st.sampled_from(("data", "data", "plain", "commit", "abort")), st.integers(1, 3))
)


def log_of(steps: Sequence[Step]) -> tuple[bytes, list[tuple[str, int | None]]]:
    """The bytes of a log, and of each offset what became of it and where its marker is; a marker is `control`."""
    parts: list[bytes] = []
    fates: list[tuple[str, int | None]] = []
    waiting: dict[int, list[int]] = defaultdict(list)
    for producer, what, count in steps:
        base = len(fates)
        if what in ("commit", "abort"):
            marker = bytearray(
                control_batch(ProducerId(producer), Epoch(0), LeaderEpoch(0), what == "commit", Milliseconds(0))
            )
            marker[:8] = base.to_bytes(8)
            parts.append(bytes(marker))
            for offset in waiting.pop(producer, []):
                fates[offset] = ("committed" if what == "commit" else "aborted", base)
            fates.append(("control", None))
            continue
        parts.append(
            encode_batch(
                [(0, None, b"x", ())] * count,
                base_offset=base,
                producer_id=ProducerId(producer),
                producer_epoch=Epoch(0),
                base_sequence=base,
                transactional=what == "data",
            )
        )
        if what == "data":
            waiting[producer] += range(base, base + count)
        fates += [("open" if what == "data" else "committed", None)] * count
    return b"".join(parts), fates


def stable_and_aborted(data: bytes, fates: Sequence[tuple[str, int | None]]) -> tuple[int, list[tuple[int, int]]]:
    """The last stable offset, and producer and first offset of every aborted transaction, as a broker tells them."""
    stable = next((offset for offset, (outcome, _) in enumerate(fates) if outcome == "open"), len(fates))
    firsts: dict[tuple[int, int | None], int] = {}
    for _, header in headers(data):
        outcome, end = fates[header.base_offset]
        if outcome == "aborted":
            firsts.setdefault((header.producer_id, end), header.base_offset)
    return stable, [(producer, first) for (producer, _), first in firsts.items()]


@given(STEPS, st.integers(0, 40), st.integers(0, 40))
def test_the_first_marker_of_its_producer_behind_a_record_says_what_became_of_it(
    steps: list[Step], start: int, length: int
) -> None:
    """Also where a range begins in the middle of a transaction, and where its marker is beyond the range."""
    data, fates = log_of(steps)
    stable, aborted = stable_and_aborted(data, fates)
    markers = Markers(start + length, stable)
    markers.add_aborted(aborted)
    offset = 0
    for place, header in headers(data):
        if header.last_offset >= start and (header.base_offset < start + length or markers.open):
            markers.add(data, place, header)
    for _, header in headers(data):
        for offset in range(max(header.base_offset, start), min(header.last_offset + 1, start + length)):
            if not header.is_control:
                assert fate(header, offset, markers) == Fate(*fates[offset])


#: Enough for one that is committed between two that are aborted.
TRANSACTIONS = st.lists(
    st.builds(Step, st.integers(1, 2), st.sampled_from(("data", "commit", "abort")), st.just(1)),
    min_size=8,
    max_size=24,
)


@settings(max_examples=1000)
@given(TRANSACTIONS, st.integers(1, 24), st.integers(0, 2**24 - 1))
def test_records_of_a_compacted_topic_whose_marker_is_gone_are_committed(
    steps: list[Step], reach: int, gone: int
) -> None:
    """Before the last stable offset a cleaner removes aborted records, then markers of which no such record is left.

    `gone` has a bit for each offset: whether a marker there is one of these.  A broker tells of no transaction then.
    """
    data, fates = log_of(steps)
    stable, aborted = stable_and_aborted(data, fates)
    cleaned = min(stable, reach)
    markers, shown = Markers(len(fates), stable), []
    ends = {first: fates[first][1] or 0 for _, first in aborted}
    markers.add_aborted((who, first) for who, first in aborted if ends[first] >= cleaned or not gone >> ends[first] & 1)
    for place, header in headers(data):
        at = header.base_offset
        outcome, end = fates[at]
        is_removed = bool(gone >> at & 1) if header.is_control else outcome == "aborted" and (end or 0) < cleaned
        if at >= cleaned or not is_removed:
            markers.add(data, place, header)
            shown += [] if header.is_control else [header]
    for header in shown:
        found = fate(header, header.base_offset, markers)
        assert found.outcome == fates[header.base_offset][0]


@pytest.mark.parametrize(
    ("base", "sequences"), [(0, [0, 1, 2]), (2**31 - 2, [2**31 - 2, 2**31 - 1, 0]), (-1, [-1] * 3)]
)
def test_sequences_count_on_and_begin_anew_where_they_end(base: int, sequences: list[int]) -> None:
    data = encode_batch(
        [(0, None, b"x", ())] * 3,
        base_offset=70,
        producer_id=ProducerId(1),
        producer_epoch=Epoch(0),
        base_sequence=base,
    )
    _, header = next(headers(data))
    assert [sequence_of(header, offset) for offset in (70, 71, 72)] == sequences


def test_the_columns_of_spark_are_those_of_arrow() -> None:
    kinds = {"long": "int64", "int": "int32", "string": "string", "boolean": "bool"}
    named = dict(column.split() for column in AUDIT_COLUMNS.split(", "))
    assert {name: kinds[kind] for name, kind in named.items()} == {n: str(kind) for n, kind in AUDIT_FIELDS.items()}


@pytest.mark.parametrize("headers_asked", [False, True])
@pytest.mark.parametrize("audit", [False, True])
def test_a_row_has_the_columns_that_are_asked_for_and_no_others(headers_asked: bool, audit: bool) -> None:
    options = {"includeHeaders": str(headers_asked).lower(), "schema": "audit" if audit else "kafka"}
    named = [column.split()[0] for column in re.split(r", (?![^<]*>)", FencepostDataSource(options).schema())]
    assert named == [name for name in FIELDS if name != "headers" or headers_asked] + list(AUDIT_FIELDS) * audit


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("audit", [False, True])
def test_a_column_that_there_is_not_is_named_before_anything_is_read(audit: bool, streaming: bool) -> None:
    """Spark lets any schema be asked for, and asks for its columns."""
    if audit and streaming:
        return
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "in", "schema": "audit"}
    source = FencepostDataSource(given if audit else {name: given[name] for name in list(given)[:2]})

    def ask(*names: str) -> None:
        schema = StructType([StructField(name, BinaryType()) for name in names])
        if streaming:
            source.streamReader(schema).partitions({}, {})
        else:
            source.reader(schema)

    for name in ("Value", "amount", *(() if audit else AUDIT_FIELDS)):
        with pytest.raises(BadOption, match=f"no column {name}: there are key, value, topic, "):
            ask("value", name)
    for known in (*FIELDS, *(AUDIT_FIELDS if audit else ())):
        ask(known, "value")


# Against a broker

#: Only the names count.
SCHEMA = StructType([StructField(name, BinaryType()) for name in (*FIELDS, *AUDIT_FIELDS)])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        yield broker


def audited(servers: str, topic: str, **more: Any) -> list[dict[str, Any]]:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "schema": "audit"}
    given = options | {name: str(value) for name, value in more.items()}
    reader = BatchReader(parse(given, streaming=False), SCHEMA)
    parts = [part for part in reader.partitions() if isinstance(part, Range)]
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(3))
def test_an_audit_agrees_with_what_producers_were_told(broker: Broker, seed: int) -> None:
    audit_what_is_written(broker.bootstrap_servers, seed)


def audit_what_is_written(servers: str, seed: int) -> None:
    """However it is cut into parts; the last transactions are open, and hold up readers of committed records."""
    chance, topic = random.Random(seed), f"audit-{seed}"
    sent: dict[int, list[tuple[str, Delivery[RecordMetadata]]]] = defaultdict(list)
    ended: dict[str, str] = {}
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=2)
    plain = Producer(servers, linger_ms=60_000)
    writers = [Producer(servers, transactional_id=f"{topic}-{n}", linger_ms=60_000) for n in range(3)]
    for writer in writers:
        writer.init_transactions()
    open_: dict[int, str] = {}
    for step in range(61):
        n = chance.randrange(4) if step < 60 else 0
        writer = plain if n == 3 else writers[n]
        if n in open_ and step < 60 and chance.random() < 0.4:
            ended[open_.pop(n)] = chance.choice(("committed", "aborted"))
            _end(writer, list(ended.values())[-1])
            continue
        if n < 3 and n not in open_:
            writer.begin_transaction()
            open_[n] = f"{n}/{step}"
        for _ in range(chance.randint(1, 4)):
            partition = chance.randrange(2)
            delivery = writer.send(topic, b"%d" % step, partition=partition)
            sent[partition].append((open_.get(n, "plain"), delivery))
        writer.flush()
    truth: dict[tuple[int, int], str] = {
        (at, delivery.result().offset): name for at, given in sent.items() for name, delivery in given
    }
    rows = audited(servers, topic, minPartitions=chance.randint(1, 12))
    _compare(rows, truth, ended)
    assert {row["outcome"] for row in rows} == {"open", "committed", "aborted"}
    for n in list(open_):
        _end(writers[n], "aborted")
        ended[open_.pop(n)] = "aborted"
    half = {str(p): chance.randrange(30) for p in range(2)}
    ends = f'{{"{topic}": {{"0": {half["0"]}, "1": {half["1"]}}}}}'
    cut = audited(servers, topic, endingOffsets=ends)
    whole = audited(servers, topic)
    _compare(whole, truth, ended)
    assert cut == [row for row in whole if row["offset"] < half[str(row["partition"])]]
    for writer in (plain, *writers):
        writer.close()


def test_an_audit_leaves_out_what_was_deleted(broker: Broker) -> None:
    """The batch that it was in is still there, as a whole."""
    servers = broker.bootstrap_servers
    with Admin(servers) as admin, Producer(servers, linger_ms=60_000) as producer:
        admin.create_topic("deleted-from", partitions=1)
        for n in range(6):
            producer.send("deleted-from", b"%d" % n, partition=0)
        producer.flush()
    delete_before(servers, TopicPartition("deleted-from", 0), 4)
    rows = audited(servers, "deleted-from", startingOffsets='{"deleted-from": {"0": 0}}', failOnDataLoss=False)
    assert [row["offset"] for row in rows] == [4, 5]


def test_a_record_without_headers_has_null_in_an_audit_as_in_a_read(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic("some-headers", partitions=1)
        for headers_sent in ([("h", b"1"), ("h", None)], []):
            producer.send("some-headers", b"v", partition=0, headers=headers_sent).result()
    rows = audited(servers, "some-headers", includeHeaders="true")
    assert [row["headers"] for row in rows] == [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]


@pytest.mark.parametrize("how", ["committed", "aborted"])
def test_a_transaction_has_the_end_that_is_behind_the_range(
    broker: Broker, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_FETCH_BYTES", 1)  # A batch at a time.
    servers, topic = broker.bootstrap_servers, f"behind-{how}"
    with Admin(servers) as admin, Producer(servers, transactional_id=topic) as producer:
        admin.create_topic(topic, partitions=1)
        producer.init_transactions()
        producer.begin_transaction()
        for n in range(3):
            producer.send(topic, b"%d" % n, partition=0)
            producer.flush()
        _end(producer, how)
    for end in (1, 2, 3):
        rows = audited(servers, topic, endingOffsets=f'{{"{topic}": {{"0": {end}}}}}')
        assert [(row["outcome"], row["endOffset"]) for row in rows] == [(how, 3)] * end


def delete_before(servers: str, at: TopicPartition, offset: int) -> None:
    async def ask() -> None:
        cluster = Cluster(servers)
        wanted = DeleteRecordsTopic(
            name=at.topic, partitions=[DeleteRecordsPartition(partition_index=at.partition, offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[wanted], timeout_ms=1000)
        await cluster.call_controller(request, deadline=cluster.deadline("deleting"))
        await cluster.close()

    asyncio.run(ask())


def _end(writer: Producer, how: str) -> None:
    if how == "committed":
        writer.commit_transaction()
    else:
        writer.abort_transaction()


def _compare(rows: list[dict[str, Any]], truth: dict[tuple[int, int], str], ended: dict[str, str]) -> None:
    """Every record once, in the order of the log; and every marker is one of a transaction of its producer."""
    markers = {(row["partition"], row["offset"]): row for row in rows if row["controlType"] is not None}
    records = [row for row in rows if row["controlType"] is None]
    assert [(row["partition"], row["offset"]) for row in records] == sorted(truth)
    sequences: dict[Any, int] = defaultdict(int)
    who: dict[str, tuple[int, int]] = {}
    used = set()
    for row in records:
        name = truth[row["partition"], row["offset"]]
        assert row["isTransactional"] == (name != "plain")
        assert who.setdefault(name, (row["producerId"], row["producerEpoch"])) == (
            row["producerId"],
            row["producerEpoch"],
        )
        assert row["sequence"] == sequences[name, row["partition"]]
        sequences[name, row["partition"]] += 1
        assert row["outcome"] == ("committed" if name == "plain" else ended.get(name, "open"))
        if name in ended:
            marker = markers[row["partition"], row["endOffset"]]
            assert marker["controlType"] == {"committed": "COMMIT", "aborted": "ABORT"}[ended[name]]
            assert (marker["producerId"], marker["outcome"]) == (row["producerId"], ended[name])
            used.add((row["partition"], row["endOffset"]))
        else:
            assert row["endOffset"] is None
    assert used == set(markers)
    assert len(set(who.values())) == len(who), "each transaction has an epoch of its own"
