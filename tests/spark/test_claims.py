"""Only the claim that is exactly the next one may write, and only what adds up is committed."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.types import Epoch, ProducerId, ProducerIdAndEpoch
from fencepost.spark.claims import Written, follows, is_slot_name, refusal, slot_name

EPOCHS = (0, 1, 2, 3, 100, 32765, 32766, 32767)
CLAIMS = [ProducerIdAndEpoch.of(producer_id, epoch) for producer_id in range(3) for epoch in EPOCHS]


@given(st.text(), st.integers(0, 10**6))
def test_the_name_of_every_slot_is_known_for_one(application_id: str, slot: int) -> None:
    assert is_slot_name(slot_name(application_id, slot))


@pytest.mark.parametrize(
    "name", ["orders", "orders/slot", "orders/slot/", "orders/slot/x", "slot/1", "a/slot/0/b", "5"]
)
def test_other_names_are_none_of_a_slot(name: str) -> None:
    assert not is_slot_name(name)


def test_a_claim_follows_only_its_predecessor() -> None:
    """A new producer id is given out only where the epochs of the one before are used up."""
    for known, claimed in product([None, *CLAIMS], CLAIMS):
        expected = (
            claimed.producer_epoch == 0
            if known is None
            else claimed == ProducerIdAndEpoch.of(known.producer_id, known.producer_epoch + 1)
            or (
                claimed.producer_id != known.producer_id
                and claimed.producer_epoch == 0
                and known.producer_epoch >= 32766
            )
        )
        assert follows(claimed, known) == expected, (known, claimed)


@given(st.integers(2, 6), st.integers(0, 5))
def test_of_several_claims_one_after_the_other_only_the_first_follows(count: int, epoch: int) -> None:
    known = ProducerIdAndEpoch.of(7, epoch)
    claims = [ProducerIdAndEpoch.of(7, epoch + 1 + n) for n in range(count)]
    assert [follows(claim, known) for claim in claims] == [True] + [False] * (count - 1)
    assert all(follows(later, earlier) for earlier, later in pairwise(claims))


BEFORE = {0: ProducerIdAndEpoch.of(7, 3), 1: None, 2: ProducerIdAndEpoch.of(8, 0)}
AFTER = {0: ProducerIdAndEpoch.of(7, 4), 1: ProducerIdAndEpoch.of(9, 0), 2: ProducerIdAndEpoch.of(8, 0)}
"""Slot 2 has no rows, and its task was not started."""
REPORTS = [
    Written(0, ProducerId(7), Epoch(4), 5, "out", 0, 3, 10, 12),
    Written(0, ProducerId(7), Epoch(4), 5, "out", 2, 2, 0, 5),
    Written(1, ProducerId(9), Epoch(0), 1, "out", 1, 1, 4, 4),
]


def test_what_every_slot_reports_once_may_be_committed() -> None:
    assert refusal(BEFORE, REPORTS, AFTER) is None
    assert refusal({0: None}, [Written(0, ProducerId(7), Epoch(0), 0)], {0: ProducerIdAndEpoch.of(7, 0)}) is None
    assert refusal(BEFORE, [], BEFORE) is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (REPORTS[0]._replace(rows=6), "slot 0 was given 6 rows, and 5 are acknowledged"),
        (REPORTS[0]._replace(records=2), "slot 0 was given 5 rows, and 4 are acknowledged"),
        (REPORTS[0]._replace(records=4), "4 records of slot 0 are said to be in out-0 from offset 10 to 12"),
        (REPORTS[0]._replace(first_offset=-1), "from offset -1"),
        (REPORTS[0]._replace(partition=1), "out-1 was written by two tasks"),
        (REPORTS[0]._replace(slot=5), "slot 5, which is none"),
        (REPORTS[0]._replace(epoch=Epoch(5)), "two attempts reported for slot 0"),
        (REPORTS[0]._replace(slot=2), "two attempts reported for slot 2"),
    ],
)
def test_a_report_that_does_not_add_up_is_refused(wrong: Written, named: str) -> None:
    others = REPORTS[1:] if "slot 2" not in named else [*REPORTS, Written(2, ProducerId(8), Epoch(1), 0)]
    assert named in (refusal(BEFORE, [wrong, *others], AFTER) or "")


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_a_slot_that_somebody_else_claimed_as_well_is_refused(slot: int) -> None:
    """Before, or after the attempt that reported; or nobody reported at all."""
    claimed = AFTER[slot] or ProducerIdAndEpoch.of(1, 0)
    more = {**AFTER, slot: ProducerIdAndEpoch.of(claimed.producer_id, claimed.producer_epoch + 1)}
    assert refusal(BEFORE, REPORTS, more) == f"slot {slot} was claimed by more than one attempt"
    if slot == 0:
        earlier = {**BEFORE, 0: ProducerIdAndEpoch.of(7, 2)}
        assert refusal(earlier, REPORTS, AFTER) == "slot 0 was claimed by more than one attempt"
        silent = [report for report in REPORTS if report.slot != 0]
        assert refusal(BEFORE, silent, AFTER) == "slot 0 was claimed by more than one attempt"


@pytest.mark.parametrize("slot", [0, 1])
def test_a_slot_that_does_not_have_the_claim_that_was_reported_is_refused(slot: int) -> None:
    """Be it as it was before, which without a report is one whose task was not started."""
    assert (
        refusal(BEFORE, REPORTS, {**AFTER, slot: BEFORE[slot]}) == f"slot {slot} was claimed by more than one attempt"
    )


def test_a_slot_that_is_forgotten_meanwhile_is_refused() -> None:
    """Somebody may have claimed it in between, as the first one."""
    assert refusal(BEFORE, REPORTS, {**AFTER, 2: None}) == "slot 2 was claimed by more than one attempt"


def test_each_row_counts_for_its_own_slot() -> None:
    """What one has too few of does not make up for what another has too many of."""
    swapped = [REPORTS[0]._replace(rows=6), REPORTS[1]._replace(rows=6), REPORTS[2]._replace(rows=0)]
    assert "6 rows" in (refusal(BEFORE, swapped, AFTER) or "")
