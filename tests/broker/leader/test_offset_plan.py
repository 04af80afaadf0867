"""What a commit of positions in a transaction is told where its log refuses it (facts §7.2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.leader.offset_plan import OffsetPlan
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import TxnOffsetCommitRequest

STALE = ErrorCode.INVALID_PRODUCER_EPOCH


def plan(version: int, *, timed_out: bool = False, is_loading: bool = False) -> OffsetPlan:
    transactions = SimpleNamespace(timed_out=lambda *_: timed_out, is_loading=lambda _: is_loading)
    request = TxnOffsetCommitRequest(transactional_id="id", group_id="g", producer_id=7, producer_epoch=0, topics=[])
    context: Any = SimpleNamespace(version=version)
    node: Any = SimpleNamespace(transactions=transactions)
    return OffsetPlan(request, context, node)


@pytest.mark.parametrize("version", range(7))
def test_new_clients_are_told_what_became_of_their_transaction_or_that_it_is_not_known_yet(version: int) -> None:
    new = version >= 5
    assert plan(version)._of_log(STALE) == STALE
    assert plan(version, timed_out=True)._of_log(STALE) == (ErrorCode.TRANSACTION_ABORTABLE if new else STALE)
    assert plan(version, is_loading=True)._of_log(STALE) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if new else STALE)


@pytest.mark.parametrize(("errors", "told"), [([], False), ([ErrorCode.NONE], False), ([ErrorCode.NONE, STALE], True)])
def test_it_is_told_that_the_time_was_up_where_something_was_refused(errors: list[ErrorCode], told: bool) -> None:
    of = plan(5, timed_out=True)
    of.errors = {(0, number): error for number, error in enumerate(errors)}
    assert of.timed_out() is told
