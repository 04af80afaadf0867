"""Consumers' reads against a naive model of a log, and reads by time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_doubles import START, Node, append, append_transactional, batch, end, run

from fencepost.log.damage import FileDamaged
from fencepost.log.reading import Fetched, Reader
from fencepost.protocol.batch import BatchHeader, headers, read_header
from fencepost.protocol.control import read_control_record
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation, Milliseconds, Offset
from fencepost.simulation.disk_faults import FaultyDisk

UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED

#: producer id (None: plain), or the end of its transaction; count; size
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "write", "write", "write", "commit", "abort", "wait", "restart"]),
        st.integers(0, 3),
        st.integers(1, 3),
        st.sampled_from([0, 50, 120]),
    ),
    max_size=40,
)


class Model:
    """A list of batches: (header, state), where the state of a transactional one is "open", "commit" or "abort"."""

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, str]] = []
        self.open: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    @property
    def stable(self) -> int:
        end = self.batches[-1][0].last_offset + 1 if self.batches else 0
        return min(self.open.values(), default=end)


def visible(fetched: Fetched) -> list[int]:
    """The base offsets of what a read_committed consumer delivers (facts §8.2)."""
    assert fetched.aborted is not None
    waiting, aborting = sorted(fetched.aborted, key=lambda entry: entry[1]), set[int]()
    found: list[int] = []
    for at, header in headers(fetched.records):
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        if header.is_control:
            record = read_control_record(fetched.records, at, header)
            if record is not None and record.type == 0:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found.append(header.base_offset)
    return found


def perform(node: Node, model: Model, step: tuple[str, int, int, int]) -> None:
    what, producer_id, count, size = step
    partition = node.partition
    if what == "plain":
        appended = append(partition, batch(count, size=size))
        state = "plain"
    elif what == "write":
        sequence = model.sequences.get(producer_id, 0)
        appended = append_transactional(partition, (producer_id, 0, sequence), count, size=size)
        model.sequences[producer_id] = sequence + count
        model.open.setdefault(producer_id, appended.base_offset)
        state = "open"
    else:
        appended = end(partition, producer_id, 0, what == "commit")
        first = model.open.pop(producer_id, None)
        for number, (header, state) in enumerate(model.batches):
            if state == "open" and header.producer_id == producer_id and first is not None:
                model.batches[number] = (header, what)
        state = "marker"
    header = read_header(next(iter(partition.scan(appended.base_offset)))[1])
    model.batches.append((header, state))


def check(node: Node, model: Model, max_bytes: int) -> None:
    partition = node.partition
    end_offset = model.batches[-1][0].last_offset + 1 if model.batches else 0
    assert (partition.high_watermark, partition.last_stable_offset) == (end_offset, model.stable)
    for start in range(end_offset + 1):
        for isolation, bound in ((UNCOMMITTED, end_offset), (COMMITTED, model.stable)):
            offset, found, delivered = start, [], []
            while offset < bound:
                fetched = partition.read(Offset(offset), max_bytes, isolation)
                assert isinstance(fetched, Fetched)
                assert (fetched.high_watermark, fetched.last_stable_offset) == (end_offset, model.stable)
                got = [header for _, header in headers(fetched.records)]
                assert got, "below the bound there is something to read"
                found += [header.base_offset for header in got]
                delivered += visible(fetched) if isolation is COMMITTED else []
                offset = got[-1].last_offset + 1
            expected = [(h, s) for h, s in model.batches if h.last_offset >= start and h.last_offset < bound]
            assert found == [header.base_offset for header, _ in expected]
            if isolation is COMMITTED:
                assert delivered == [header.base_offset for header, state in expected if state in ("plain", "commit")]
            there, end = partition.reader.position_of(Offset(start)), partition.reader.position_of(Offset(bound))
            assert there is not None and end is not None
            assert (there < end) == (start < bound)


@pytest.mark.promise("2014.read-committed")
@settings(max_examples=120)
@given(STEPS, st.sampled_from([1, 150, 1000]))
def test_consumers_see_what_the_model_says(steps: list[tuple[str, int, int, int]], max_bytes: int) -> None:
    async def main() -> None:
        node, model = Node(segment_bytes=500, index_interval_bytes=100, checkpoint_bytes=2000), Model()
        for step in steps:
            if step[0] == "wait":
                await node.settled()
            elif step[0] == "restart":
                await node.settled()
                node.lose_power()
            else:
                perform(node, model, step)
                assert node.partition.high_watermark <= node.partition.log_end_offset
        await node.settled()
        check(node, model, max_bytes)

    run(main())


READS = st.lists(
    st.tuples(
        st.integers(0, 30), st.sampled_from([0, 1, 61, 150, 400, 1 << 20]), st.booleans(), st.sampled_from(Isolation)
    ),
    max_size=30,
)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 120)), min_size=1, max_size=8), READS)
@settings(max_examples=200)
def test_where_earlier_reads_ended_changes_nothing(
    batches: list[tuple[int, int]], reads: list[tuple[int, int, bool, Isolation]]
) -> None:
    """Into the middle of a batch, too, and where nothing had room."""

    async def main() -> None:
        node = Node(segment_bytes=700)
        for count, size in batches:
            append(node.partition, batch(count, size=size))
        await node.settled()
        remembering, reader = node.partition.reader, Reader(node.partition.segments, node.partition, {})
        for at, max_bytes, at_least_one, isolation in reads:
            offset = at % (node.partition.log_end_offset + 1)
            reader.forget()
            bound = node.partition.bound(isolation)
            expected, *follows = reader.batches(Offset(offset), bound, max_bytes, at_least_one)
            found, *follows_remembered = remembering.batches(Offset(offset), bound, max_bytes, at_least_one)
            assert (bytes(found), follows_remembered) == (bytes(expected), follows)

    run(main())


def test_nobody_sees_the_end_of_a_transaction_before_it_is_durable() -> None:
    async def main() -> None:
        node = Node()
        append_transactional(node.partition, (7, 0, 0))
        await node.settled()
        assert (node.partition.high_watermark, node.partition.last_stable_offset) == (1, 0)
        end(node.partition, 7, 0, False)
        assert (node.partition.high_watermark, node.partition.last_stable_offset) == (1, 0)
        await node.settled()
        fetched = node.partition.read(Offset(0), 1000, COMMITTED)
        assert isinstance(fetched, Fetched)
        assert (fetched.last_stable_offset, fetched.aborted) == (2, [(7, 0)])
        plain = node.partition.read(Offset(0), 1000, UNCOMMITTED)
        assert isinstance(plain, Fetched) and plain.aborted is None

    run(main())


def test_a_batch_larger_than_asked_for() -> None:
    async def main() -> None:
        node = Node()
        append(node.partition, batch(size=500))
        await node.settled()
        for at_least_one, count in ((True, 1), (False, 0)):
            fetched = node.partition.read(Offset(0), 100, UNCOMMITTED, at_least_one)
            assert isinstance(fetched, Fetched)
            assert len(list(headers(fetched.records))) == count
        for max_bytes, aborted in ((100, None), (0, [])):
            fetched = node.partition.read(Offset(0), max_bytes, COMMITTED, False)
            assert isinstance(fetched, Fetched)
            assert (fetched.records, fetched.aborted) == (b"", aborted), "as in Apache Kafka"

    run(main())


def test_what_a_read_costs() -> None:
    """Of the room of an answer: also the beginning of a batch that is left out, but nothing behind the bound."""

    async def main() -> None:
        node = Node(segment_bytes=2000)
        sizes = [append(node.partition, batch(size=size)).last_offset for size in (300, 300, 900, 900)]
        append_transactional(node.partition, (7, 0, 0))
        await node.settled()
        ends = [(node.partition.reader.position_of(Offset(offset)) or (0, 0))[1] for offset in (1, 2, 3)]
        assert sizes == [0, 1, 2, 3] and len(node.partition.segments) == 2
        for max_bytes, at_least_one, count, cost in (
            (100, False, 0, 0),
            (100, True, 1, ends[0]),
            (ends[0], True, 1, ends[0]),
            (ends[0] + 10, False, 1, ends[0] + 10),
            (ends[1] + 100, True, 2, ends[1] + 100),
            (10_000, True, 3, node.partition.segments[0].size),
        ):
            fetched = node.partition.read(Offset(0), max_bytes, UNCOMMITTED, at_least_one)
            assert isinstance(fetched, Fetched)
            assert (len(list(headers(fetched.records))), fetched.cost) == (count, cost)
        last = node.partition.read(Offset(3), 10_000, COMMITTED)
        assert isinstance(last, Fetched) and last.cost == len(last.records)
        for most in (len(last.records), len(last.records) + 20):
            bounded = node.partition.read(Offset(3), most, COMMITTED)
            assert isinstance(bounded, Fetched) and bounded.cost == len(last.records)
        assert node.partition.reader.position_of(Offset(4)) == (3, len(last.records))
        assert node.partition.reader.position_of(Offset(5)) == (3, node.partition.segments[-1].size)

    run(main())


@pytest.mark.parametrize("restarted", ["no", "restart", "lose_power"])
def test_by_time(restarted: str) -> None:
    async def main() -> None:
        node = Node(segment_bytes=300, index_interval_bytes=50)
        for number in range(10):
            append(node.partition, batch(2, timestamp=START + 10 * number))
        await node.settled()
        if restarted != "no":
            getattr(node, restarted)()
        reader = node.partition.reader
        for timestamp in range(START - 5, START + 100):
            offset = next((n for n in range(20) if START + 10 * (n // 2) + n % 2 >= timestamp), None)
            found = finish(reader.offset_for_timestamp(Milliseconds(timestamp), UNCOMMITTED, Pace()))
            assert (None if found is None else found.offset) == offset
        newest = finish(reader.max_timestamp_offset(UNCOMMITTED, Pace()))
        assert newest is not None and (newest.timestamp, newest.offset) == (START + 91, 19)
        append_transactional(node.partition, (7, 0, 0), timestamp=START + 500)
        await node.settled()
        assert finish(reader.offset_for_timestamp(Milliseconds(START + 200), UNCOMMITTED, Pace())) is not None
        assert finish(reader.offset_for_timestamp(Milliseconds(START + 200), COMMITTED, Pace())) is None

    run(main())


def test_the_largest_time_is_that_of_all_there_is() -> None:
    """Not of what the reader may see: if it may not see that record there is none."""

    async def main() -> None:
        node = Node(segment_bytes=300, index_interval_bytes=50)
        for timestamp in (START + 100, START + 5, START + 100, START + 7):
            append(node.partition, batch(2, timestamp=timestamp))
        await node.settled()
        reader = node.partition.reader

        def newest(isolation: Isolation = UNCOMMITTED) -> int | None:
            found = finish(reader.max_timestamp_offset(isolation, Pace()))
            return None if found is None else found.offset

        assert newest() == newest(COMMITTED) == 1, "the first one of that time"
        node.partition.delete_records(Offset(7))
        assert node.partition.segments[1].base_offset < 7
        assert newest() == 1, "its segment is still there"
        append_transactional(node.partition, (7, 0, 0), timestamp=START + 200)
        assert newest() == newest(COMMITTED) == 1, "what is not durable is not there yet"
        await node.settled()
        assert (newest(), newest(COMMITTED)) == (8, None)
        end(node.partition, 7, 0, True)
        await node.settled()
        assert newest(COMMITTED) == 8

    run(main())


def test_the_largest_time_before_what_is_not_durable_yet() -> None:
    async def main() -> None:
        for interval in (0, 100, 10_000):
            node = Node(index_interval_bytes=interval)
            for timestamp in (3, 9, 4, 9, 1):
                append(node.partition, batch(timestamp=START + timestamp))
            await node.settled()
            for timestamp in (10, 8, 11):
                append(node.partition, batch(timestamp=START + timestamp))
            found = finish(node.partition.reader.max_timestamp_offset(UNCOMMITTED, Pace()))
            assert found is not None and (found.offset, found.timestamp) == (1, START + 9)

    run(main())


def test_by_time_nothing_behind_the_last_stable_offset_within_a_batch() -> None:
    """DeleteRecords has passed the beginning of an open transaction, into the middle of its batch."""

    async def main() -> None:
        node = Node()
        append_transactional(node.partition, (7, 0, 0), 3)
        await node.settled()
        node.partition.delete_records(Offset(1))
        for timestamp in (START - 1, START + 1):
            assert (
                finish(node.partition.reader.offset_for_timestamp(Milliseconds(timestamp), COMMITTED, Pace())) is None
            )
            found = finish(node.partition.reader.offset_for_timestamp(Milliseconds(timestamp), UNCOMMITTED, Pace()))
            assert found is not None and found.offset == 1
        assert finish(node.partition.reader.max_timestamp_offset(COMMITTED, Pace())) is None

    run(main())


@pytest.mark.parametrize("flushed", [True, False])
def test_the_newest_of_a_damaged_batch_is_an_error(flushed: bool) -> None:
    """One bit of any batch that is newer than all before it, in memory or to be searched for; never another answer."""

    async def main() -> None:
        disk = FaultyDisk(Random(1))
        node = Node(disk, segment_bytes=100_000, index_interval_bytes=400)
        for number in range(30):
            append(node.partition, batch(2, size=40, timestamp=START + 10 * min(number, 20)))
        await node.settled()
        segment, path = node.partition.segments[0], node.partition.segments[0].path
        if not flushed:
            append(node.partition, batch(timestamp=START + 1000))
        whole, newest = disk.bytes_at(path), START + 201
        positions = [at for at, header in headers(whole) if header.max_timestamp == newest]
        size = read_header(whole, positions[0]).size
        for at in range(positions[0] + 16, positions[0] + size):
            disk.overwrite(path, whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with pytest.raises(FileDamaged):
                finish(node.partition.reader.max_timestamp_offset(UNCOMMITTED, Pace()))
        disk.overwrite(path, whole)
        found = finish(node.partition.reader.max_timestamp_offset(UNCOMMITTED, Pace()))
        assert found is not None and (found.timestamp, found.offset) == (newest, 41)
        assert segment is node.partition.segments[0]

    run(main())


@pytest.mark.parametrize("isolation", Isolation)
def test_nobody_reads_what_a_power_loss_could_take_back(isolation: Isolation) -> None:
    async def main() -> None:
        node = Node()
        partition = node.partition

        def read(offset: int) -> bytes:
            found = partition.read(Offset(offset), 1 << 20, isolation)
            assert isinstance(found, Fetched)
            assert found.high_watermark == partition.high_watermark
            return bytes(found.records)

        append(partition, batch(2, tag="a"))
        assert (read(0), partition.log_end_offset) == (b"", 2)
        await node.settled()
        durable = read(0)
        append(partition, batch(3, tag="b"))
        assert (read(0), read(2), partition.log_end_offset) == (durable, b"", 5)
        await node.settled()
        assert read(0) == durable + read(2) != durable

    run(main())


def test_what_is_not_durable_yet_is_not_out_of_range() -> None:
    """A consumer that was told so would begin somewhere else."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch())
        await node.settled()
        append(node.partition, batch(2))
        assert (node.partition.high_watermark, node.partition.log_end_offset) == (1, 3)
        for isolation in Isolation:
            for offset in (1, 2, 3):
                fetched = node.partition.read(Offset(offset), 1000, isolation)
                assert isinstance(fetched, Fetched) and fetched.records == b""
            assert not isinstance(node.partition.read(Offset(4), 1000, isolation), Fetched)

    run(main())


def test_a_reader_is_never_sent_back_to_before_the_start_of_the_log() -> None:
    async def main() -> None:
        node = Node()
        append_transactional(node.partition, (7, 0, 0))
        append(node.partition, batch(2))
        await node.settled()
        assert node.partition.last_stable_offset == 0
        node.partition.delete_records(Offset(2))
        assert node.partition.last_stable_offset == 2
        fetched = node.partition.read(Offset(2), 1000, COMMITTED)
        assert isinstance(fetched, Fetched)
        assert (fetched.records, fetched.last_stable_offset, fetched.log_start_offset) == (b"", 2, 2)

    run(main())
