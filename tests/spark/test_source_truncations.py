"""Logs that lose their end and are written on, under a stream that has read what they lost (KIP-320)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from tests.broker.metadata.test_leader_epoch import cut
from tests.ports import free_port
from tests.spark.test_source import SCHEMA, rows_of

from fencepost.broker import running_broker
from fencepost.client.blocking import Producer
from fencepost.client.errors import BrokerError
from fencepost.log.leader_epochs import assigned, end_offset_for_epoch
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.types import LeaderEpoch, Offset, TopicPartition
from fencepost.spark.asker import Asker
from fencepost.spark.committed import Verdict, judge
from fencepost.spark.losses import epochs_of, in_doubt
from fencepost.spark.options import Bound, parse
from fencepost.spark.positions import Positions
from fencepost.spark.progress import Progress
from fencepost.spark.source import Range, StreamReader

_MOST_BATCHES: Final = 200


@dataclass
class Log:
    """A partition: what stands in it, and the leader epochs that its leader knows."""

    records: list[int] = field(default_factory=list)
    epoch: int = 0
    starts: list[tuple[LeaderEpoch, Offset]] = field(default_factory=list)

    def append(self, records: Sequence[int]) -> None:
        self.starts = assigned(self.starts, LeaderEpoch(self.epoch), Offset(len(self.records)))
        self.records += records

    def copy(self) -> Log:
        """A copy of it, to put back."""
        return Log([*self.records], self.epoch, [*self.starts])

    def elect(self, end: int) -> None:
        """A new leader, which has no more than the first `end` records."""
        del self.records[end:]
        self.starts = [each for each in self.starts if each[1] < len(self.records)]
        self.epoch += 1


class Cluster:
    """Its answers, as those of `asker.Asker`."""

    def __init__(self) -> None:
        self.logs = [Log(), Log()]
        self.asked: list[Mapping[TopicPartition, int]] = []
        """Leader epochs."""

    def positions(self, bound: Bound) -> Positions:
        if bound.otherwise == EARLIEST:
            return self._positions([0, 0], {})
        epochs = {TopicPartition("t", n): log.epoch for n, log in enumerate(self.logs)}
        return self._positions([len(log.records) for log in self.logs], epochs)

    def _positions(self, offsets: Sequence[int], epochs: Mapping[TopicPartition, int]) -> Positions:
        places = {TopicPartition("t", n): offset for n, offset in enumerate(offsets)}
        return Positions(places, "c", {"t": "id"}, epochs=epochs)

    def ends_behind(self, known: Positions) -> Positions:  # noqa: ARG002
        return self.positions(Bound(-1))

    def parted(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        self.asked.append(epochs)
        for at, epoch in epochs.items():
            log = self.logs[at.partition]
            found[at] = end_offset_for_epoch(
                LeaderEpoch(epoch), LeaderEpoch(log.epoch), log.starts, Offset(0), Offset(len(log.records))
            )[1]
        return {at: end for at, end in found.items() if end >= 0}

    def close(self) -> None:
        """Nothing is open."""


class Query:
    """What Spark does: it writes down where a micro-batch ends, then has it read; after a restart it reads it again."""

    def __init__(self, cluster: Cluster, fails: bool, most: int | None) -> None:
        self.cluster, self.fails = cluster, fails
        self._limit: ReadLimit = ReadAllAvailable() if most is None else ReadMaxRows(most)
        self.log: list[dict[str, Any]] = []
        self.rows: dict[int, list[int]] = {}
        """Of each micro-batch, as it came last."""
        self.furthest = [0, 0]
        """Up to where each partition was planned."""
        self.restart()

    def restart(self) -> None:
        given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "startingOffsets": "earliest"}
        options = parse(given | {"failOnDataLoss": str(self.fails)}, streaming=True)
        self._reader = StreamReader(options, SCHEMA)
        self._reader._asker_ = self.cluster  # type: ignore[assignment]
        self._initial = self._reader.initialOffset()

    def plan(self) -> bool:
        """Whether there is something to read, or was planned and not read."""
        if len(self.log) > len(self.rows):
            return True
        start = self.log[-1] if self.log else self._initial
        end = json.loads(json.dumps(self._reader.latestOffset(start, self._limit)))
        if end == start:
            return False
        self.log.append(end)
        self.furthest = [max(each, end["t"][str(n)]) for n, each in enumerate(self.furthest)]
        return True

    def read(self) -> None:
        """What was planned, as the log has it by now."""
        if len(self.log) == len(self.rows):
            return
        rows: list[int] = []
        for part in self._reader.partitions(self.log[-2] if len(self.log) > 1 else self._initial, self.log[-1]):
            assert isinstance(part, Range)
            log = self.cluster.logs[part.at.partition].records
            if self.fails and len(log) < part.end:
                raise BrokerError(1, "records are gone")
            rows += log[part.start : part.end]
        self.rows[len(self.log)] = rows

    def drain(self) -> None:
        for _ in range(_MOST_BATCHES):
            if not self.plan():
                return
            self.read()
        raise AssertionError("it plans micro-batches without end")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 6)),
        st.tuples(st.just("elect"), st.integers(0, 1), st.integers(0, 6)),
        st.tuples(st.sampled_from(["plan", "read", "restart"]), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=400)
@given(STEPS, st.booleans(), st.sampled_from([None, 3]))
def test_what_was_written_where_a_log_was_truncated_is_read_or_the_loss_is_named(
    steps: list[tuple[str, int, int]], fails: bool, most: int | None
) -> None:
    cluster, number, lost = Cluster(), 0, False
    query = Query(cluster, fails, most)
    try:
        for step, which, count in steps:
            log = cluster.logs[which]
            if step == "append":
                log.append(range(number, number + count))
                number += count
            elif step == "elect":
                log.elect(max(len(log.records) - count, 0))
                lost = lost or len(log.records) < query.furthest[which]
            else:
                getattr(query, step)()
        # What a truncated log was given since may be less than it lost: then that is seen by its end.
        query.drain()
    except BrokerError:
        assert fails and lost
        return
    rows = [row for batch in query.rows.values() for row in batch]
    there = [row for log in cluster.logs for row in log.records]
    if not lost:
        assert sorted(rows) == sorted(there)
    assert set(there) <= set(rows)
    assert not (fails and lost)


@pytest.mark.parametrize("end", [2, 5])
def test_a_micro_batch_that_was_planned_before_a_truncation_is_not_read_after_a_restart(end: int) -> None:
    """Whether what it begins at is gone, or only some of it: other rows would be written."""
    cluster = Cluster()
    query = Query(cluster, True, None)
    cluster.logs[0].append(range(3))
    query.drain()
    cluster.logs[0].append(range(3, 6))
    assert query.plan()
    cluster.logs[0].elect(end)
    cluster.logs[0].append(range(6, 16))
    query.restart()
    with pytest.raises(BrokerError, match=f"lost its records from {end} on since"):
        query.read()


def test_a_position_keeps_its_leader_epoch_while_nobody_looks_it_up() -> None:
    """As one of a partition that is not read for a while."""
    one, two, untold = (TopicPartition("t", number) for number in range(3))
    before = Positions({one: 3, two: 4, untold: 3}, epochs={one: 1, two: 1, untold: 1})
    ends = Positions({one: 9, untold: 9}, epochs={one: 2, TopicPartition("u", 0): 2})
    after = Positions({one: 5, two: 4, untold: 9})
    assert epochs_of(after, before, ends) == {one: 2, two: 1}, "a leader that tells none leaves none"


def test_a_leader_that_lost_nothing_is_no_loss_and_makes_no_micro_batch() -> None:
    cluster = Cluster()
    query = Query(cluster, True, None)
    cluster.logs[0].append([1, 2])
    query.drain()
    batches = len(query.log)
    cluster.logs[0].elect(2)
    query.restart()
    query.drain()
    assert len(query.log) == batches


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_node_that_lost_the_end_of_a_log_and_was_written_to_since(
    tmp_path: Path, fails: bool, restarted: bool
) -> None:
    def write(address: str, values: str) -> None:
        with Producer(address) as producer:
            for value in values:
                producer.send("t", value.encode(), partition=0).result()

    address = f"127.0.0.1:{free_port()}"
    with running_broker(data=tmp_path / "data", flush="os", listen=address):
        given = {"kafka.bootstrap.servers": address, "subscribe": "t", "startingOffsets": "earliest"}
        options = given | {"failOnDataLoss": str(fails)}
        write(address, "abcd")
        reader = StreamReader(parse(options, streaming=True), SCHEMA)
        start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        shutil.copytree(tmp_path / "data", tmp_path / "left")
    cut(tmp_path / "left", "t", 2)
    with running_broker(data=tmp_path / "left", flush="os", listen=address):
        write(address, "CDEF")
        if restarted:
            reader.stop()
            reader = StreamReader(parse(options, streaming=True), SCHEMA)
        if fails:
            with pytest.raises(BrokerError, match="t-0 was read to offset 4, but lost its records from 2 on since"):
                reader.latestOffset(start, ReadAllAvailable())
        else:
            there = reader.latestOffset(start, ReadAllAvailable())
            parts = reader.partitions(there, reader.latestOffset(there, ReadAllAvailable()))
            assert [row.value for row in rows_of(reader, parts, "t")] == [b"C", b"D", b"E", b"F"]
        reader.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_was_put_back_and_is_longer_by_now_is_a_loss(fails: bool) -> None:
    """Its leader epoch goes back, too, and tells nothing of where it was put back."""
    cluster = Cluster()
    query = Query(cluster, fails, None)
    cluster.logs[0].append(range(3))
    copy = cluster.logs[0].copy()
    cluster.logs[0].elect(3)
    cluster.logs[0].append(range(3, 6))
    query.drain()
    cluster.logs[0] = copy
    copy.append(range(6, 16))
    if fails:
        with pytest.raises(BrokerError, match="t-0 was read under leader epoch 1, and its leader knows earlier ones"):
            query.plan()
    else:
        query.drain()
        assert query.log[-1]["@epochs"] == {"t": {"0": 0, "1": 0}}


def test_a_leader_is_asked_for_some_time_whether_it_knows_of_a_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.offsets._CATCHES_UP_WITHIN_MS", 100)
    with running_broker(flush="os") as broker:
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("t", b"a", partition=0).result()
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        asker, at = Asker(parse(given, streaming=True)), TopicPartition("t", 0)
        assert asker.positions(Bound(-1)).epochs == {at: 0}
        assert (asker.parted({at: 0}), asker.parted({at: 1})) == ({at: 1}, {})
        asker.close()


def test_a_leader_that_leads_no_more_is_asked_again_and_then_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    at, answers = TopicPartition("t", 0), [{}, {}, {TopicPartition("t", 0): 7}]

    async def told(*_: Any) -> dict[TopicPartition, int]:
        return answers.pop(0)

    monkeypatch.setattr("fencepost.spark.offsets.ends_of_epochs", told)
    asker = Asker(parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, streaming=True))
    assert asker.parted({at: 3}) == {at: 7}
    asker.close()


class Elected(Cluster):
    """Another leader is elected between two questions; of t-0 no more than `shown` may be read at first."""

    def __init__(self, shown: int) -> None:
        super().__init__()
        self._shown = shown

    def positions(self, bound: Bound) -> Positions:
        found = super().positions(bound)
        return found._replace(offsets={**found.offsets, TopicPartition("t", 0): self._shown})

    def ends_behind(self, known: Positions) -> Positions:
        for log in self.logs:
            log.elect(len(log.records))
        return super().positions(Bound(LATEST)) if known else known


def test_a_position_has_the_leader_epoch_under_which_its_end_was_seen() -> None:
    cluster = Elected(3)
    cluster.logs[0].append(range(5))
    cluster.logs[1].append(range(9))
    query = Query(cluster, True, None)
    start = Positions({TopicPartition("t", 0): 5, TopicPartition("t", 1): 2}, "c", {"t": "id"}).encode()
    after = query._reader.latestOffset(start, ReadAllAvailable())
    assert (after["t"], after["@epochs"]) == ({"0": 5, "1": 9}, {"t": {"0": 1, "1": 0}})


@pytest.mark.parametrize("fails", [True, False])
def test_a_query_that_goes_on_from_a_committed_batch_is_told_what_was_lost_since(fails: bool) -> None:
    cluster = Cluster()
    cluster.logs[0].append(range(5))
    ended = cluster.positions(Bound(LATEST))
    cluster.logs[0].elect(3)
    cluster.logs[0].append(range(5, 15))
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "failOnDataLoss": str(fails)}
    reader = StreamReader(parse(given | {"startingOffsets": json.dumps(ended.encode())}, streaming=True), SCHEMA)
    reader._asker_ = cluster  # type: ignore[assignment]
    if fails:
        with pytest.raises(BrokerError, match="t-0 was read to offset 5, but lost its records from 3 on since"):
            reader.initialOffset()
    else:
        assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["t"] == {"0": 3, "1": 0}


def test_a_topic_that_was_made_anew_is_named_as_that_whatever_its_leader_epochs_say() -> None:
    known = Positions({TopicPartition("t", 0): 5}, "c", {"t": "old"}, epochs={TopicPartition("t", 0): 3})
    now = Positions({TopicPartition("t", 0): 9}, "c", {"t": "new"}, epochs={TopicPartition("t", 0): 1})
    assert in_doubt(known, now) == {}


def test_where_a_query_began_has_no_leader_epoch_if_it_was_kept_from_an_earlier_start() -> None:
    """Other leaders may have been elected since that was seen."""
    with running_broker(flush="os") as broker:
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("t", b"a", partition=0).result()
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", "startingOffsets": "latest"}
        reader = StreamReader(parse(given | {"applicationId": "pinned"}, streaming=True), SCHEMA)
        assert "@epochs" not in reader.initialOffset()
        reader.stop()


def test_the_error_says_where_the_log_was_truncated_and_how_to_go_on() -> None:
    cluster = Cluster()
    query = Query(cluster, True, None)
    cluster.logs[0].append(range(8))
    query.drain()
    cluster.logs[0].elect(5)
    cluster.logs[0].append(range(8, 20))
    said = 't-0 was read to offset 8, but lost its records from 5 on since.*"failOnDataLoss", "false".*to go on from 5'
    with pytest.raises(BrokerError, match=said):
        query.plan()


@given(st.dictionaries(st.integers(0, 3), st.integers(0, 5)), st.dictionaries(st.integers(0, 3), st.integers(0, 5)))
def test_a_checkpoint_of_a_version_before_epochs_is_read_and_one_with_them_by_that(
    offsets: dict[int, int], epochs: dict[int, int]
) -> None:
    """What they mean besides is the same."""
    old = Positions({TopicPartition("t", n): offset for n, offset in offsets.items()}, "c", {"t": "id"})
    new = old._replace(epochs={TopicPartition("t", n): epoch for n, epoch in epochs.items()})
    assert Positions.decode(old.encode()) == old and Positions.decode(new.encode()) == new
    assert {name: field for name, field in new.encode().items() if name != "@epochs"} == old.encode()


@pytest.mark.parametrize(("before", "now"), [(0, 1), (1, 0), (None, 1), (1, None)])
def test_a_micro_batch_is_known_by_its_offsets_whichever_leader_they_were_seen_under(
    before: int | None, now: int | None
) -> None:
    """As it was planned twice: the checkpoint lost its last files, and another leader was elected."""

    def end(offset: int, epoch: int | None) -> dict[str, Any]:
        at = TopicPartition("t", 0)
        began = Positions({at: 0}, "c", epochs={} if epoch is None else {at: epoch})
        return began._replace(offsets={at: offset}, began=began).encode()

    def batch(number: int, ends: Any, starts: Any = ()) -> Progress:
        return Progress.of("q", number, ends, starts)

    last = batch(0, [end(5, before)])
    assert judge("a", last, batch(0, [end(5, now)]), False).verdict is Verdict.SKIP
    assert judge("a", last, batch(0, [end(6, now)]), False).verdict is Verdict.REFUSE
    assert judge("a", last, batch(1, [end(9, now)], [end(5, now)]), False).verdict is Verdict.WRITE
    assert judge("a", last, batch(1, [end(9, now)], [end(4, now)]), False).verdict is Verdict.REFUSE
    goes_on = Progress.of("another", 0, [end(9, now) | {"@began": end(5, now)}])
    ended = batch(3, [{name: field for name, field in end(5, before).items() if name != "@began"}])
    assert judge("a", ended, goes_on, False, resume=True).verdict is Verdict.WRITE
