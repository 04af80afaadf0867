"""What a reader in commit order does with each batch: every cell."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.commit_order.decisions import (
    STEPS,
    Kind,
    Step,
    due_again,
    first_wanted,
    is_surely_open,
    kind_of,
    last_hole,
)
from fencepost.client.commit_order.position import Position
from fencepost.protocol.batch import BatchHeader, read_header
from fencepost.protocol.control import ControlRecord, control_batch, read_control_record
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId


def test_there_is_a_step_for_every_cell() -> None:
    assert set(STEPS) == set(product(Kind, (False, True)))


def test_only_records_of_a_transaction_are_kept_and_only_its_own_markers_end_it() -> None:
    changes = {Step.BEGIN, Step.KEEP, Step.DELIVER_TRANSACTION, Step.DROP}
    assert {cell for cell, step in STEPS.items() if step in changes} == {
        (Kind.TRANSACTIONAL, False),
        (Kind.TRANSACTIONAL, True),
        (Kind.COMMIT_MARKER, True),
        (Kind.ABORT_MARKER, True),
    }
    assert all(STEPS[Kind.PLAIN, is_open] is Step.DELIVER for is_open in (False, True))


def header(**fields: object) -> BatchHeader:
    return read_header(encode_batch([(0, None, b"", ())], producer_id=1))._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batch", "control", "kind"),
    [
        (header(), None, Kind.PLAIN),
        (header(attributes=0x10), None, Kind.TRANSACTIONAL),
        (header(attributes=0x17), None, Kind.TRANSACTIONAL),
        (header(attributes=0x10, record_count=0), None, Kind.NOTHING),
        (header(record_count=0), None, Kind.NOTHING),
        (header(attributes=0x30), ControlRecord(1, LeaderEpoch(0)), Kind.COMMIT_MARKER),
        (header(attributes=0x30), ControlRecord(0, LeaderEpoch(0)), Kind.ABORT_MARKER),
        (header(attributes=0x20), ControlRecord(2, None), Kind.NOTHING),
        (header(attributes=0x30, record_count=0), None, Kind.NOTHING),
    ],
)
def test_what_a_batch_is(batch: BatchHeader, control: ControlRecord | None, kind: Kind) -> None:
    assert kind_of(batch, control) is kind


def at(first: int, last: int, **fields: object) -> BatchHeader:
    return header(base_offset=first, last_offset_delta=last - first, **fields)


EMPTIED: dict[str, object] = {"attributes": 0x30, "record_count": 0}


@pytest.mark.parametrize(
    ("batches", "hole"),
    [
        ([], None),
        ([at(5, 5)], None),
        ([at(3, 7), at(8, 9)], None),
        ([at(6, 6)], 6),
        ([at(5, 5), at(7, 8), at(9, 9)], 7),
        ([at(6, 6), at(8, 8)], 8),
        ([at(5, 5, **EMPTIED), at(6, 6)], 5),
        ([at(5, 5, record_count=0), at(6, 6)], None),
        ([at(5, 5, attributes=0x30), at(6, 6)], None),
    ],
)
def test_where_compaction_has_left_a_hole(batches: list[BatchHeader], hole: int | None) -> None:
    assert last_hole(batches, expected=5) == hole


@pytest.mark.parametrize("commits", [True, False])
def test_markers_as_they_are_written_are_known(commits: bool) -> None:
    marker = control_batch(ProducerId(7), Epoch(3), LeaderEpoch(0), commits, Milliseconds(0))
    kind = kind_of(read_header(marker), read_control_record(marker))
    assert kind is (Kind.COMMIT_MARKER if commits else Kind.ABORT_MARKER)


def test_of_a_transaction_that_was_delivered_in_part_the_rest_is_wanted() -> None:
    begun = Position(2, 10, 5)
    assert [first_wanted(begun, marker) for marker in (9, 10, 11)] == [None, 6, 0]
    assert [first_wanted(Position(2, 10), marker) for marker in (9, 10, 11)] == [None, 0, 0]


def test_who_is_behind_knows_only_the_oldest_transaction_to_be_open() -> None:
    assert is_surely_open(5, looked_at=10, high_watermark=Offset(20), last_stable_offset=Offset(5))
    assert not is_surely_open(5, looked_at=10, high_watermark=Offset(20), last_stable_offset=Offset(8))
    assert not is_surely_open(8, looked_at=10, high_watermark=Offset(20), last_stable_offset=Offset(5))
    assert is_surely_open(8, looked_at=20, high_watermark=Offset(20), last_stable_offset=Offset(5))


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**9), max_size=300))
def test_it_is_said_at_the_bound_and_each_time_that_doubles(bound: int, times: list[int]) -> None:
    said = 0
    for open_for in sorted(times):
        while due_again(open_for, bound, said):
            said += 1
        assert said == (open_for // bound).bit_length()
