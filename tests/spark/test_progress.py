"""The progress record is the last committed one, whatever else is open or aborted in the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.client.errors import ConnectionLostError
from fencepost.protocol.batch import stamp
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import PartitionData
from fencepost.protocol.messages.list_offsets import EARLIEST
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.spark.positions import FILES
from fencepost.spark.progress import PARTITION, RUNS, Ledger, Progress, read_progress, unfit

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 2)),
    ),
    max_size=20,
)


@example([("write", 0), ("commit", 0), ("write", 0)], 2, 3)  # behind the marker of the first, seen twice
@given(STEPS, st.integers(1, 5), st.integers(1, 3))
def test_it_is_the_last_value_whose_transaction_was_committed(
    steps: list[tuple[str, int]], window: int, portion: int
) -> None:
    """Producer 0 and 1 write for our application, one after the other; 2 writes for another one."""
    batches: list[bytearray] = []
    pending: dict[int, bytes] = {}
    expected: bytes | None = None

    def end(producer: int, commit: bool) -> None:
        nonlocal expected
        batches.append(
            bytearray(control_batch(ProducerId(producer), Epoch(0), LeaderEpoch(0), commit, Milliseconds(0)))
        )
        ended = pending.pop(producer, None)
        if ended is not None and commit:
            expected = ended

    for number, (kind, producer) in enumerate(steps):
        value = b"%d" % number
        if kind == "write":
            for other in [each for each in pending if producer != 2 and each != producer]:
                end(other, commit=False)  # it is fenced
            key = b"other" if producer == 2 else b"ours"
            record = [(0, key, value, ())]
            written = encode_batch(
                record, producer_id=ProducerId(producer), producer_epoch=Epoch(0), base_sequence=0, transactional=True
            )
            batches.append(bytearray(written))
            if producer != 2:
                pending[producer] = value
        else:
            end(producer, kind == "commit")
    for number, batch in enumerate(batches):
        stamp(batch, 0, Offset(number), LeaderEpoch(0))
    ledger, low, is_found = Ledger("ours"), len(batches), False
    while low > 0 and not is_found:
        low, high = max(low - window, 0), low
        position = low
        while position < high:  # what is fetched may go beyond the window
            position = ledger.add(memoryview(b"".join(batches[position : position + portion])), high)
        is_found = ledger.look()
    assert is_found == (expected is not None)
    assert ledger.last == expected


class Batch(NamedTuple):
    """A batch of a log: where it is, and what it holds."""

    base: int
    following: int
    data: bytes
    application: int | None
    """Whose record is in it; None: a marker."""


class Log:
    """The topic of the records, as clients of a cluster see it.  Applications have a producer each.

    `moves`: (application, what, how many records of nobody go before).  A transaction writes its record twice at most.
    """

    def __init__(self, moves: Sequence[tuple[int, str, int]]) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self.committed: dict[int, Progress] = {}
        pending: dict[int, Progress] = {}
        for application, what, before in moves:
            if what == "write":
                pending[application] = record = Progress("query", self.end, [])
                self._append_record(application, record, before)
            elif what == "plain":
                self._append_record(None, Progress("nobody", 0, []), before)
            else:
                marker = control_batch(
                    ProducerId(application), Epoch(0), LeaderEpoch(0), what == "commit", Milliseconds(0)
                )
                self._append(bytearray(marker), 1, None)
                ended = pending.pop(application, None)
                if ended is not None and what == "commit":
                    self.committed[application] = ended

    def _append_record(self, application: int | None, record: Progress, before: int) -> None:
        key = b"nobody" if application is None else b"app-%d" % application
        records = [*([(0, b"nobody", b"{}", ())] * before), (0, key, record.encode(), ())]
        batch = encode_batch(
            records,
            producer_id=ProducerId(99 if application is None else application),
            producer_epoch=Epoch(0),
            base_sequence=0,
            transactional=application is not None,
        )
        self._append(bytearray(batch), len(records), application)

    def _append(self, batch: bytearray, count: int, application: int | None) -> None:
        stamp(batch, 0, Offset(self.end), LeaderEpoch(0))
        self.batches.append(Batch(self.end, self.end + count, bytes(batch), application))
        self.end += count

    def compact(self, before: int) -> None:
        """Superseded records go, up to an offset; markers stay, as they do for a while."""
        keep = {application: record.batch_id for application, record in self.committed.items()}
        self.batches = [
            batch
            for batch in self.batches
            if batch.base >= before or batch.application is None or batch.base >= keep.get(batch.application, 0)
        ]

    def at(self, position: int, most: int) -> bytes:
        """What a fetch gives: whole batches, the first one with the position or after it."""
        return b"".join([batch.data for batch in self.batches if batch.following > position][:most])


def answer(error: ErrorCode, records: bytes) -> PartitionData:
    """The part of an answer to a fetch that is about the one partition."""
    return PartitionData(partition_index=0, error_code=error, high_watermark=0, records=records)


class Cluster:
    """Of the surroundings of a read only what it asks of them."""

    def __init__(self) -> None:
        self.pauses = self.forgotten = 0

    def deadline(self, _what: str) -> Cluster:
        return self

    async def pause(self, _because: object) -> None:
        """Which also ends a read whose time is up."""
        self.pauses += 1

    async def leader(self, *_: object) -> int:
        return 0

    def forget_topic(self, _name: str) -> None:
        self.forgotten += 1


MOVES = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from(["write", "write", "commit", "commit", "abort", "plain"]), st.integers(0, 3)
    ),
    max_size=60,
)


@given(MOVES, st.integers(0, 120), st.integers(0, 20), st.integers(1, 30), st.integers(1, 4), st.integers(0, 3))
def test_each_application_of_many_finds_its_own_in_a_compacted_log(
    moves: list[tuple[int, str, int]], compacted: int, first: int, largest: int, most: int, trouble: int
) -> None:
    """Some transactions are open, some aborted; windows begin in the middle of batches, or where nothing is left."""
    log = Log(moves)
    log.compact(compacted)
    answers = troubled = 0

    async def offsets(_cluster: Any, _partitions: Any, which: int, _isolation: Any) -> Any:
        return {PARTITION: (0 if which == EARLIEST else log.end, -1)}

    async def fetch(*given: Any, **_: Any) -> PartitionData:
        nonlocal answers, troubled
        answers += 1
        if trouble and answers % 4 == trouble:
            troubled += 1
            if trouble == 1:
                raise ConnectionLostError("cut")
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER if trouble == 2 else ErrorCode.NONE
            return answer(error, b"")
        return answer(ErrorCode.NONE, log.at(given[3], most))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fencepost.spark.progress.list_offsets", offsets)
        patch.setattr("fencepost.spark.progress.fetch_partition", fetch)
        patch.setattr("fencepost.spark.progress._FIRST_WINDOW", 1 + first)
        patch.setattr("fencepost.spark.progress._LARGEST_WINDOW", largest)
        for application in range(6):
            cluster: Any = Cluster()
            troubled = 0
            found = asyncio.run(read_progress(cluster, f"app-{application}"))
            assert found == log.committed.get(application)
            assert cluster.pauses == cluster.forgotten == troubled, "it looks for another leader, and not for ever"


@pytest.mark.parametrize(
    ("partitions", "policy", "named"),
    [
        (1, "compact", None),
        (1, None, None),
        (1, "delete", "cleanup.policy=delete"),
        (1, "compact,delete", "cleanup.policy=compact,delete"),
        (3, "compact", "has 3 partitions"),
    ],
)
def test_a_topic_that_would_lose_records_is_named(partitions: int, policy: str | None, named: str | None) -> None:
    reason = unfit(partitions, policy)
    assert (reason is None) == (named is None)
    assert named is None or named in (reason or "")


@pytest.mark.parametrize("topics", [[], ["a", "b"]])
@pytest.mark.parametrize("starts", [[], [{"topic": {"0": 2}}, None]])
def test_a_record_is_read_as_it_was_written(starts: list[Any], topics: list[str]) -> None:
    record = Progress.of("query", 7, [{"topic": {"0": 5}}, None, {"logOffset": 3, FILES: "abc"}], starts, topics)
    assert bool(record.started) == bool(starts) and bool(record.topics) == bool(topics) and record.files
    assert record.source_offsets[2] == {"logOffset": 3}, "a version that knows of no files compares these"
    assert Progress.decode(record.encode()) == record._replace(source_starts=())


def test_where_a_batch_began_and_was_written_to_takes_little_room_in_its_record() -> None:
    starts = [{f"topic-{number}": {"0": number} for number in range(1000)}]
    record = Progress.of("query", 7, [], starts, starts[0]).encode()
    assert len(record) < 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe not JSON",
        b"[]",
        b"7",
        b'{"query_id":"query","batch_id":7,"source_off',
        b'{"batch_id":7,"source_offsets":[]}',
        b'{"query_id":7,"batch_id":7,"source_offsets":[]}',
        b'{"query_id":"query","batch_id":"7","source_offsets":[]}',
        b'{"query_id":"query","batch_id":true,"source_offsets":[]}',
        b'{"query_id":"query","batch_id":7,"source_offsets":null}',
        b'{"query_id":"query","batch_id":7,"source_offsets":[],"earlier_runs":"monday"}',
        b'{"query_id":"query","batch_id":7,"source_offsets":[],"earlier_runs":[7]}',
        b'{"query_id":"query","batch_id":7,"source_offsets":[],"started":7}',
        b'{"query_id":"query","batch_id":7,"source_offsets":[],"topics":["a"]}',
        b'{"query_id":"query","batch_id":7,"source_offsets":[],"files":0}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_record_is_not_taken_for_one(data: bytes) -> None:
    """Without positions a batch would be known by its number alone."""
    with pytest.raises(ValueError, match="is no progress record"):
        Progress.decode(data)


@pytest.mark.parametrize("character", ["a", "\N{COLLISION SYMBOL}", "\0", "\udcff"])
def test_all_the_runs_that_are_remembered_have_room_in_a_record(character: str) -> None:
    """The largest record that a topic takes has 1,048,588 bytes, if nobody said otherwise."""
    runs = [f"{character * 197}{number}" for number in range(100, 101 + RUNS)]
    record = Progress(runs[0], 0, [])
    for run in runs[1:]:
        record = Progress(run, 0, []).after(record)
    assert len(record.earlier_runs) == RUNS
    assert len(record.encode()) < 700_000
    assert Progress.decode(record.encode()) == record


def test_what_a_later_version_adds_is_passed_over() -> None:
    data = b'{"query_id":"query","batch_id":7,"source_offsets":[],"colour":"red"}'
    assert Progress.decode(data) == Progress("query", 7, [])


def test_the_newest_runs_before_one_are_remembered_and_never_itself() -> None:
    runs = tuple(f"run-{number}" for number in range(RUNS + 5))
    last = Progress("last", 3, [], runs)
    for query_id in ("new", "last", runs[-1], runs[0]):
        expected = [run for run in (*runs, "last") if run != query_id][-RUNS:]
        assert Progress(query_id, 0, []).after(last).earlier_runs == tuple(expected)
    assert Progress("new", 0, []).after(None).earlier_runs == ()
