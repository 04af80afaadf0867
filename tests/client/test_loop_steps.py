"""For each phase of a loop and each way in which it may end the table says what follows, and nothing it may not."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from fencepost.client import errors
from fencepost.client.errors import (
    BrokerError,
    ClosedError,
    CommitInDoubtError,
    DeliveryError,
    FencedInstanceIdError,
    MisuseError,
    OutcomeUnknownError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimedOutError,
)
from fencepost.client.loop_steps import STEPS, Ending, Next, Phase, ending_of
from fencepost.protocol.types import TopicPartition

CELLS = list(product(Phase, Ending))
#: What hands the records out again, to this loop or to the next.
PUTS_BACK = (Next.RETRY, Next.GIVE_UP, Next.PUT_BACK)
#: What raises nothing, as long as the loop is patient.
SILENT = (Next.GO_ON, Next.AGAIN, Next.RETRY)


@pytest.mark.parametrize(("phase", "ending"), CELLS)
def test_every_cell_keeps_the_rules(phase: Phase, ending: Ending) -> None:
    follows = STEPS[phase][ending]
    assert (follows is Next.GO_ON) == (ending is Ending.DONE)
    if ending in (Ending.CANCELLED, Ending.FAILED, Ending.FENCED, Ending.IN_DOUBT):
        assert follows not in SILENT, "whoever asked is told"
    if ending is Ending.TRANSIENT:
        assert follows in SILENT, "another try may mend it"
    if phase is Phase.COMMIT and ending is not Ending.ABORTABLE:
        assert follows not in PUTS_BACK, "it may be committed: nothing is processed again before that is known"
    if phase in (Phase.BLOCK, Phase.SEND_OFFSETS) and ending is not Ending.DONE:
        assert follows in (Next.RETRY, Next.GIVE_UP), "what is open is aborted, and read again"
    if phase is Phase.BEGIN and ending is not Ending.DONE:
        assert follows in (Next.AGAIN, Next.PUT_BACK), "nothing is open, and the records are read again"
    if phase in (Phase.INIT, Phase.POLL, Phase.ABORT) and ending is not Ending.DONE:
        assert follows in (Next.AGAIN, Next.STOP), "nothing is handed out that could be put back"
    if follows is Next.SETTLE:
        assert (phase, ending) == (Phase.COMMIT, Ending.CANCELLED)


def test_the_table_is_whole() -> None:
    assert [(phase, ending) for phase, row in STEPS.items() for ending in row] == CELLS


#: error -> how a step ended that raised it
ENDINGS = {
    ProducerFencedError("x"): Ending.FENCED,
    FencedInstanceIdError("x"): Ending.FENCED,
    CommitInDoubtError("x"): Ending.IN_DOUBT,
    OutcomeUnknownError("x"): Ending.UNKNOWN,
    TransactionAbortableError("x"): Ending.ABORTABLE,
    TransactionTimedOutError("x"): Ending.ABORTABLE,
    TransactionAbortedError("x"): Ending.ABORTABLE,
    TimedOutError("x"): Ending.TRANSIENT,
    errors.OffsetsMissingError("x", [], {}): Ending.TRANSIENT,
    errors.ConnectionLostError("x"): Ending.TRANSIENT,
    errors.UnreachableError("x"): Ending.TRANSIENT,
    BrokerError(3, "x"): Ending.FAILED,
    ClosedError("x"): Ending.FAILED,
    MisuseError("x"): Ending.FAILED,
    DeliveryError("x"): Ending.FAILED,
    errors.RecordTooLargeError("x"): Ending.FAILED,
    errors.NoOffsetError("x"): Ending.FAILED,
    errors.LogTruncatedError(TopicPartition("t", 0), 2, 1): Ending.FAILED,
    errors.CommitFailedError("x"): Ending.FAILED,
    errors.UnsupportedByBrokerError("x"): Ending.FAILED,
    errors.ClientError("x"): Ending.FAILED,
    errors.TransactionError("x"): Ending.FAILED,
    errors.AuthenticationError("x"): Ending.FAILED,
    errors.PositionMetadataError("x"): Ending.FAILED,
    errors.SpillError("x"): Ending.FAILED,
    errors.DamagedRecordsError(TopicPartition("x", 0), 5, ValueError("y")): Ending.FAILED,
    errors.RetriableError("x"): Ending.FAILED,
    errors.AbortableError("x"): Ending.FAILED,
    errors.ApplicationRecoverableError("x"): Ending.FAILED,
    errors.FatalError("x"): Ending.FAILED,
    BrokerError(31, "x"): Ending.FAILED,
    BrokerError(48, "x"): Ending.FAILED,
    BrokerError(22, "x"): Ending.FAILED,
    errors.PartlyRefusedError({"a": BrokerError(40, "x")}, {}): Ending.FAILED,
    TimeoutError(): Ending.FAILED,
    ZeroDivisionError(): Ending.FAILED,
    asyncio.CancelledError(): Ending.CANCELLED,
    KeyboardInterrupt(): Ending.CANCELLED,
    SystemExit(): Ending.CANCELLED,
}


@pytest.mark.parametrize("error", ENDINGS, ids=lambda error: type(error).__name__)
def test_every_error_is_some_ending(error: BaseException) -> None:
    assert ending_of(error) is ENDINGS[error]
    assert ending_of(None) is Ending.DONE


def test_every_error_of_the_clients_is_looked_at() -> None:
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ClientError)}
    # A BrokerError is one of its kinds.
    assert known - {type(error) for error in ENDINGS} == {BrokerError}


def test_of_errors_that_were_raised_together_the_one_that_allows_least_counts() -> None:
    for one, other in product(ENDINGS, ENDINGS):
        both = BaseExceptionGroup("both", [one, BaseExceptionGroup("inner", [other])])
        assert ending_of(both).value == max(ENDINGS[one].value, ENDINGS[other].value)
