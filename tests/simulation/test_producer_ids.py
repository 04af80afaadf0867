"""A producer id and epoch belong to one producer: what breaks that is told, what the protocol allows is not."""

from __future__ import annotations

import pytest

from fencepost.broker.metadata.producer_ids import StoredProducerIds
from fencepost.coordinator.transaction import initialize
from fencepost.protocol.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from fencepost.protocol.types import ProducerIdAndEpoch
from fencepost.simulation.cast import Window
from fencepost.simulation.checkers.producer_ids import Handed, ProducerIds, handed
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.troubles import Trouble

INIT_PRODUCER_ID, END_TXN, PRODUCE = 22, 26, 0


def claim(name: str | None, producer_id: int, epoch: int) -> Handed:
    return Handed(name, None, ProducerIdAndEpoch.of(producer_id, epoch))


def following(name: str, known: tuple[int, int], producer_id: int, epoch: int) -> Handed:
    return Handed(name, ProducerIdAndEpoch.of(*known), ProducerIdAndEpoch.of(producer_id, epoch))


def wrong(*answers: Handed) -> list[str]:
    ids = ProducerIds()
    return [told for each in answers if (told := ids.add(each)) is not None]


@pytest.mark.parametrize(
    "answers",
    [
        [claim("a", 1, 0), claim("a", 1, 1), claim("b", 2, 0), claim(None, 3, 0)],
        [claim("a", 1, 0), following("a", (1, 0), 1, 1), following("a", (1, 0), 1, 1)],  # its end, and that once more
        [claim("a", 1, 0), following("a", (1, 0), 4, 0), following("a", (4, 0), 4, 1)],  # the last epoch was reached
        [following("a", (9, 9), 9, 10), following("b", (9, 9), 9, 10)],  # of what nobody was given
    ],
)
def test_what_the_protocol_allows_is_allowed(answers: list[Handed]) -> None:
    assert wrong(*answers) == []


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([claim("a", 1, 0), claim("a", 1, 0)], "is given to a, and another producer has it"),
        ([claim("a", 1, 0), claim("b", 1, 1)], "is given to b, and the id is another one's"),
        ([claim(None, 1, 0), claim("b", 1, 1)], "the id is another one's"),
        ([claim(None, 1, 0), claim(None, 1, 0)], "is given to a producer without transactions"),
        ([claim("a", 1, 0), claim("a", 1, 1), following("a", (1, 0), 1, 1)], "another producer has it"),
        ([claim("a", 1, 0), following("a", (1, 0), 1, 1), claim("a", 1, 1)], "another producer has it"),
    ],
)
def test_what_it_forbids_is_told(answers: list[Handed], says: str) -> None:
    (told,) = wrong(*answers)
    assert says in told


def test_what_an_answer_hands_out_is_read_from_it() -> None:
    claiming = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1)
    again = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1, producer_id=1, producer_epoch=2)
    given = InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=3)
    assert handed(INIT_PRODUCER_ID, claiming, given) == claim("a", 1, 3)
    assert handed(INIT_PRODUCER_ID, again, given) == following("a", (1, 2), 1, 3)
    assert handed(INIT_PRODUCER_ID, claiming, InitProducerIdResponse(error_code=51, producer_epoch=-1)) is None
    end = EndTxnRequest(transactional_id="a", producer_id=1, producer_epoch=2, committed=True)
    assert handed(END_TXN, end, EndTxnResponse(error_code=0, producer_id=1, producer_epoch=3)) == following(
        "a", (1, 2), 1, 3
    )
    assert handed(END_TXN, end, EndTxnResponse(error_code=0)) is None  # before version 5
    assert handed(PRODUCE, None, None) is None


def faults() -> str:
    """Of a node that is killed, after which other producers come."""
    given = Circumstances(troubles=(Trouble.KILLED,), between=0.2)
    clients = {"producer-0": Window(), "single-0": Window(), "single-1": Window(0.6), "producer-1": Window(0.6)}
    return " ".join(carry_out(Plan(1, 1, given, clients)).faults)


def test_over_a_start_they_are_not_given_out_again() -> None:
    assert faults() == ""


def test_ids_that_begin_anew_after_a_start_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredProducerIds, "allocate", lambda _self, _count: 0)
    assert "is given to" in faults()


def test_a_claim_that_does_not_take_another_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialize, "_next_pair", lambda current, _fresh: current)
    assert "another producer has it" in faults()
