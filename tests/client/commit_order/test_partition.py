"""One partition in commit order, against a naive model, over drawn logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.commit_order.logs import STEPS, Log, Step, _batch, build
from tests.client.commit_order.reading import AT, Reader

from fencepost.client.commit_order.partition import PartitionInCommitOrder
from fencepost.client.commit_order.position import Position, position_of
from fencepost.client.errors import DamagedRecordsError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.batch import stamp
from fencepost.protocol.types import LeaderEpoch, Offset

#: Nothing, less than a batch, a few batches, everything.
LIMITS = st.sampled_from([0, 200, 1000, 10**6])
#: Bytes of an answer: one batch, a few, everything.
MOST = st.sampled_from([1, 500, 10**6])
FATE = st.sampled_from(["well", "well", "short", "failed"])
FATES: st.SearchStrategy[list[str]] = st.lists(FATE, min_size=10, max_size=60) | st.just([])
BEGINNING = OffsetAndMetadata(0)


def whole(steps: list[Step]) -> list[Step]:
    """The same without holes."""
    return [step for step in steps if step[0] not in ("gap", "emptied marker")]


@pytest.mark.promise("2014.commit-order", "2014.spill")
@given(STEPS, LIMITS, MOST, st.integers(1, 9), FATES)
def test_exactly_what_is_committed_is_delivered_each_transaction_in_one_piece_in_the_order_of_commits(
    steps: list[Step], limit: int, most: int, count: int, fates: list[str]
) -> None:
    """Under any interleaving, however much is fetched at once, whatever memory has room for, and on a bad disk."""
    log = build(steps)
    reader = Reader(log, BEGINNING, limit, most, iter(fates))
    delivered: list[int] = []
    while taken := reader.take(count):
        delivered += taken
    assert delivered == log.delivered
    oldest = min(log.open_since.values(), default=log.end)
    assert reader.next_offset() == (
        OffsetAndMetadata(oldest) if oldest == log.end else OffsetAndMetadata(oldest, f"commit-order/1 {log.end}")
    )
    reader.end()


@given(STEPS, MOST)
def test_whoever_is_always_late_gets_to_the_end(steps: list[Step], most: int) -> None:
    """Ends may have been removed meanwhile, each time anew: what is kept is read again, but not for ever."""
    log = build(steps)
    reader = Reader(log, BEGINNING, 10**6, most, iter(()), late=1)
    assert reader.take(10**6) == log.delivered
    assert len(reader.fetched) <= 20 * (len(log.batches) + 1)
    reader.end()


@given(STEPS.map(whole), MOST)
def test_where_compaction_has_removed_nothing_nothing_is_read_again(steps: list[Step], most: int) -> None:
    """Retention may have taken it meanwhile."""
    reader = Reader(build(steps), BEGINNING, 10**6, most, iter(()), late=1)
    reader.take(10**6)
    assert reader.fetched == sorted(set(reader.fetched))
    reader.end()


@pytest.mark.parametrize("left", [[("gap", 0, 2)], [("gap", 0, 1), ("emptied marker", 1, 1)]], ids=["gone", "emptied"])
def test_what_was_kept_of_a_transaction_whose_end_is_gone_is_not_part_of_the_next_one(left: list[Step]) -> None:
    reader = Reader(build([("data", 1, 1)]), BEGINNING, 10**6, 10**6, iter(()), late=1)
    assert reader.take(1) == []
    reader.log = build([*left, ("data", 1, 1), ("commit", 1, 0)])
    assert reader.take(10) == [2]
    reader.end()


def test_whoever_has_come_to_the_end_meanwhile_waits_no_longer_to_read_again() -> None:
    """It was late once before: that there is twice the time is for who does not get to the end."""
    reader = Reader(build([]), BEGINNING, 10**6, 10**6, iter(()), late=1)
    for end in range(0, 20, 4):
        reader.log = build([("gap", 0, end), ("data", 1, 1)])
        assert reader.take(10) == []
        reader.log = build([("gap", 0, end + 2), ("data", 1, 1), ("commit", 1, 0)])
        assert reader.take(10) == [end + 2], "the transaction before was aborted"
    reader.end()


@pytest.mark.parametrize("left", [("gap", 1, 2), ("emptied", 1, 2)], ids=["gone", "emptied"])
def test_whoever_goes_on_in_a_transaction_whose_rest_was_compacted_away_goes_on_behind_it(left: Step) -> None:
    """It was committed in the middle of it, and what comes then has newer values of the same keys."""
    reader = Reader(
        build([("data", 1, 2), ("data", 1, 2), ("commit", 1, 0), ("plain", 3, 1)]), BEGINNING, 0, 1, iter(())
    )
    assert reader.take(2) == [0, 1]
    log = build([("data", 1, 2), left, ("commit", 1, 0), ("plain", 3, 1)])
    again = Reader(log, reader.next_offset(), 0, 1, iter(()))
    assert again.take(10) == [5]
    assert again.next_offset() == OffsetAndMetadata(log.end)
    for each in (reader, again):
        each.end()


@pytest.mark.promise("2014.offset-pair", "2014.inside-transaction")
@given(STEPS, st.lists(st.tuples(LIMITS, MOST, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6), FATES)
def test_whoever_goes_on_from_a_committed_position_is_given_exactly_what_was_not_delivered_before_it(
    steps: list[Step], lives: list[tuple[int, int, int, int]], fates: list[str]
) -> None:
    """Also in the middle of a transaction, and however little was fetched since the last time."""
    log, fate = build(steps), iter(fates)
    committed, processed = BEGINNING, 0
    for limit, most, done, more in lives:
        reader = Reader(log, committed, limit, most, fate)
        expected = log.delivered[processed:]
        assert reader.take(done) == expected[:done]
        committed, processed = reader.next_offset(), processed + len(expected[:done])
        assert reader.take(more) == expected[done : done + more]  # not committed: it is killed then
        reader.end()
    reader = Reader(log, committed, 1000, 500, iter(()))
    assert reader.take(10**6) == log.delivered[processed:]
    reader.end()


@pytest.mark.parametrize("limit", [0, 400, 10**6])
def test_it_may_be_killed_after_every_record(limit: int) -> None:
    """Once where it committed what it had done, and once where the commit before that was the last one."""
    data: list[Step] = [("data", 0, 2), ("data", 1, 3), ("plain", 3, 2), ("bumped", 0, 1), ("data", 2, 4)]
    ends: list[Step] = [("commit", 1, 0), ("data", 0, 2), ("abort", 2, 0), ("plain", 3, 1), ("commit", 0, 0)]
    log = build([*data, *ends, *data, ("commit", 0, 0), *ends])
    for done in range(len(log.delivered) + 1):
        reader = Reader(log, BEGINNING, limit, 300, iter(()))
        positions = [reader.next_offset()]
        for offset in log.delivered[:done]:
            assert reader.take(1) == [offset]
            positions.append(reader.next_offset())
        reader.end()
        for back, position in enumerate(reversed(positions[-2:])):
            again = Reader(log, position, limit, 300, iter(()))
            assert again.take(10**6) == log.delivered[done - back :]
            again.end()


@pytest.mark.parametrize("place", [-1, 16], ids=["its last byte", "its format"])
@pytest.mark.parametrize("most", [300, 10**6])
def test_a_batch_that_was_damaged_on_its_way_is_fetched_again(most: int, place: int) -> None:
    log = build([("data", 0, 2), ("data", 1, 3), ("plain", 3, 2), ("zipped", 0, 4), ("commit", 1, 0), ("commit", 0, 0)])
    for number, (first, last, batch) in enumerate(log.batches):
        damaged = bytearray(batch)
        damaged[place] ^= 1
        log.batches[number] = (first, last, bytes(damaged))
        reader = Reader(log, BEGINNING, 200, most, iter(()))
        with pytest.raises(DamagedRecordsError, match=f"the batch at offset {first} is damaged" if place < 0 else None):
            reader.take(10**6)
        with pytest.raises(DamagedRecordsError):  # as long as it is
            reader.take(10**6)
        before = reader.next_offset()
        log.batches[number] = (first, last, batch)
        again = Reader(log, before, 200, most, iter(()))
        assert reader.take(10**6) == again.take(10**6)
        whole = Reader(log, BEGINNING, 200, most, iter(()))
        assert whole.take(10**6) == log.delivered
        for each in (reader, again, whole):
            each.end()


@given(STEPS, st.integers(0, 60), LIMITS)
def test_a_number_is_where_to_begin(steps: list[Step], begun: int, limit: int) -> None:
    """Of what is delivered from the beginning all that lies behind it; and going on from there works as ever."""
    log = build(steps)
    begun = min(begun, log.end)
    expected = [offset for piece in log.pieces for offset in piece if offset >= begun]
    reader = Reader(log, OffsetAndMetadata(begun), limit, 500, iter(()))
    half = len(expected) // 2
    assert reader.take(half) == expected[:half]
    again = Reader(log, reader.next_offset(), limit, 500, iter(()))
    assert again.take(10**6) == expected[half:]
    for each in (reader, again):
        each.end()


def cut_before_the_last(log: Log) -> Log:
    """The same while its last batch is not written yet."""
    return log._replace(batches=log.batches[:-1], end=log.batches[-1][0])


def test_who_goes_on_inside_a_transaction_keeps_its_place_until_the_marker_has_come() -> None:
    """The log lost its end, or another leader is behind."""
    log = build([("data", 0, 4), ("commit", 0, 0)])
    first = Reader(log, BEGINNING, 10**6, 10**6, iter(()))
    assert first.take(2) == [0, 1]
    inside = first.next_offset()
    second = Reader(cut_before_the_last(log), inside, 10**6, 10**6, iter(()))
    assert (second.take(9), second.next_offset()) == ([], inside)
    third = Reader(log, second.next_offset(), 10**6, 10**6, iter(()))
    assert third.take(9) == [2, 3]
    for each in (first, second, third):
        each.end()


@pytest.mark.parametrize("is_ended", [False, True])
def test_where_compaction_has_taken_what_was_delivered_the_position_is_one_still(is_ended: bool) -> None:
    data: list[Step] = [("data", 0, 2), ("commit", 0, 0)]
    first = Reader(build([("data", 0, 2), *data]), BEGINNING, 10**6, 10**6, iter(()))
    assert first.take(2) == [0, 1]
    left = build([("gap", 0, 2), *data])
    second = Reader(left if is_ended else cut_before_the_last(left), first.next_offset(), 10**6, 10**6, iter(()))
    assert second.take(0) == [] and second._fetch()
    second.followed.decode()  # it is looked at, and nothing of it handed out
    committed = second.next_offset()
    assert position_of(AT, committed) == Position(2, 4)
    third = Reader(left, committed, 10**6, 10**6, iter(()))
    assert third.take(9) == [2, 3]
    for each in (first, second, third):
        each.end()


def test_a_batch_whose_last_records_compaction_has_taken_is_behind_its_reader_as_a_whole() -> None:
    """Else nobody is ever at the end of such a log."""
    batch = bytearray(_batch([0], 0, -1, span=3))
    stamp(batch, 0, Offset(0), LeaderEpoch(0))
    reader = Reader(Log([(0, 2, bytes(batch))], [0], [[0]], 3, {}), BEGINNING, 10**6, 10**6, iter(()))
    assert (reader.take(1), reader.next_offset()) == ([0], OffsetAndMetadata(3))
    reader.end()


def test_a_batch_that_was_looked_at_before_is_not_gone_back_to() -> None:
    """A leader may answer with one that ends in front of what it was asked for."""
    log = build([("plain", 0, 2)])
    reader = Reader(log, OffsetAndMetadata(5), 10**6, 10**6, iter(()))
    order = reader.followed.in_commit_order
    assert order is not None
    order.feed(log.fetch(0, 10**6), 0.0, Offset(9))
    assert order.more() == [] and order.fetch_offset == 5
    assert order.position() == Position(5, 5)
    reader.end()


def test_a_transaction_that_is_being_delivered_is_not_told_to_be_open() -> None:
    """Its end has been read: whoever looks for one that has none would be misled."""
    reader = Reader(build([("data", 1, 3), ("data", 2, 1), ("commit", 1, 0)]), BEGINNING, 10**6, 10**6, iter(()))
    partition = reader.followed.in_commit_order
    assert partition is not None
    assert reader.take(1) == [0]
    told: list[str] = []
    for _ in range(2):
        assert [each.producer_id for each in partition.open_transactions(0)] == [2]
        told += partition.warnings(10**6, Offset(5), Offset(0), 10)
        reader.take(1)
    assert told and all("producer_id=2 " in each for each in told), "whatever there is to say, it is of the other"
    assert [each.producer_id for each in partition.open_transactions(0)] == [2]
    reader.end()


def test_who_begins_elsewhere_says_nothing_of_the_leader_epoch_there() -> None:
    """A leader would tell that the log parted, where nothing was lost."""
    log = build([("plain", 3, 1), ("plain", 3, 1), ("plain", 3, 1)])
    reader = Reader(log, BEGINNING, 10**6, 10**6, iter(()))
    partition = PartitionInCommitOrder(AT, Position(0, 0), reader.order.buffers, 1000)
    data = b""
    for first, _, batch in log.batches:
        ours = bytearray(batch)
        stamp(ours, 0, Offset(first), LeaderEpoch(7))
        data += ours
    partition.feed(data, 0.0, Offset(log.end))
    assert partition.epoch.known == 7
    partition.begin(Position(1, 1))
    assert partition.epoch.known == -1
