"""The rules of what stays, cell by cell."""

from __future__ import annotations

from itertools import product

import pytest

from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.cleaner.retention import LastBatch, Transactions, Verdict, delete_horizon, judge, stays
from fencepost.log.transaction_index import AbortedTransaction
from fencepost.protocol.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL, BatchHeader
from fencepost.protocol.control import ABORT, COMMIT
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId

NOW = Milliseconds(10_000)


def header(
    base: int = 10, last: int = 12, producer: int = 7, epoch: int = 3, attributes: int = 0, horizon: int | None = None
) -> BatchHeader:
    if horizon is not None:
        attributes |= DELETE_HORIZON
    return BatchHeader(
        Offset(base),
        60,
        LeaderEpoch(0),
        2,
        0,
        attributes,
        last - base,
        Milliseconds(horizon or 0),
        Milliseconds(0),
        ProducerId(producer),
        Epoch(epoch),
        5,
        3,
    )


@pytest.mark.parametrize(
    ("control", "discardable", "horizon"), list(product((False, True), (False, True), (None, NOW + 1, NOW, NOW - 1)))
)
def test_aborted_data_goes_at_once_and_a_marker_when_its_horizon_has_passed(
    control: bool, discardable: bool, horizon: int | None
) -> None:
    batch = header(attributes=CONTROL if control else 0, horizon=horizon)
    goes = discardable and (not control or (horizon is not None and horizon <= NOW))
    assert judge(batch, discardable, None, Offset(99), NOW) == Verdict(goes, False, discardable and control)


@pytest.mark.parametrize(
    ("last", "control", "upper_bound", "stays_empty"),
    [
        (None, False, 99, False),
        (None, False, 13, True),
        (None, False, 12, False),
        (LastBatch(Offset(12), Epoch(3)), False, 99, True),
        (LastBatch(Offset(11), Epoch(3)), False, 99, False),
        (LastBatch(Offset(12), Epoch(4)), False, 99, True),
        (LastBatch(None, Epoch(3)), False, 99, False),
        (LastBatch(None, Epoch(3)), True, 99, True),
        (LastBatch(None, Epoch(4)), True, 99, False),
        (LastBatch(Offset(500), Epoch(3)), True, 99, False),
    ],
)
def test_the_last_batch_of_a_producer_and_of_a_pass_stay_as_headers(
    last: LastBatch | None, control: bool, upper_bound: int, stays_empty: bool
) -> None:
    batch = header(attributes=CONTROL if control else 0)
    assert judge(batch, False, last, Offset(upper_bound), NOW).keep_empty is stays_empty


def test_a_record_stays_as_the_table_says() -> None:
    newest = OffsetMap(Offset(0), 10)
    newest.put(b"k", Offset(7))
    newest.latest = Offset(9)
    for offset, tombstone, horizon in product((6, 7, 8, 10), (False, True), (None, NOW + 1, NOW, NOW - 1)):
        due = tombstone and horizon is not None and horizon <= NOW
        assert stays(Offset(offset), b"k", tombstone, newest, horizon, NOW) is (offset > 9 or (offset >= 7 and not due))
    assert stays(Offset(8), b"unknown", False, newest, None, NOW)
    assert not stays(Offset(8), None, False, newest, None, NOW), "without a key"
    assert stays(Offset(10), None, False, newest, None, NOW), "but not behind what is known"


def test_the_base_timestamp_is_a_horizon_only_where_the_bit_says_so() -> None:
    assert delete_horizon(header(horizon=77)) == 77
    assert delete_horizon(header()) is None


def transaction(base: int, producer: int = 7) -> BatchHeader:
    return header(base, base, producer, attributes=TRANSACTIONAL)


def end(base: int, producer: int = 7) -> BatchHeader:
    return header(base, base, producer, attributes=TRANSACTIONAL | CONTROL)


def test_a_transaction_is_aborted_between_its_first_record_and_its_marker() -> None:
    met, entry = Transactions(), AbortedTransaction(ProducerId(7), Offset(10), Offset(20), Offset(21))
    met.announce([entry])
    met.announce([entry])
    assert not met.is_aborted(transaction(9))
    assert met.is_aborted(transaction(10))
    met.announce([entry])  # it goes on in the next segment
    assert not met.is_aborted(transaction(11, producer=8)), "somebody else's"
    assert not met.is_aborted(header(12, 12)), "not transactional"
    assert met.end(end(20), ABORT) == (False, entry)
    assert not met.is_aborted(transaction(21))


def test_a_marker_is_needless_once_nothing_of_its_transaction_is_left() -> None:
    met = Transactions()
    met.announce([AbortedTransaction(ProducerId(7), Offset(10), Offset(20), Offset(21))])
    assert met.end(end(20), ABORT) == (True, None), "its data went in an earlier pass"
    assert met.end(end(21, 8), COMMIT) == (True, None)
    met.is_aborted(transaction(22, 8))
    assert met.end(end(23, 8), COMMIT) == (False, None)
    assert met.end(end(24, 8), COMMIT) == (True, None)
    met.announce([AbortedTransaction(ProducerId(8), Offset(30), Offset(32), Offset(33))])
    assert met.is_aborted(transaction(30, 8))
    met.end(end(32, 8), ABORT)
    assert met.end(end(33, 8), COMMIT) == (True, None), "what was aborted is none of its data"


@pytest.mark.parametrize("is_there", [True, False])
def test_of_an_aborted_transaction_nothing_is_remembered_behind_its_marker(is_there: bool) -> None:
    """Also where all of its data has gone before: what its producer commits next is not aborted."""
    transactions = Transactions()
    transactions.announce([AbortedTransaction(ProducerId(7), Offset(10), Offset(13), Offset(14))])
    if is_there:
        assert transactions.is_aborted(header(10, 12, attributes=TRANSACTIONAL))
    needless, _ = transactions.end(header(13, 13, attributes=CONTROL | TRANSACTIONAL), ABORT)
    assert needless != is_there
    assert not transactions.is_aborted(header(14, 16, attributes=TRANSACTIONAL))
