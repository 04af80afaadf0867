"""Requests of clients are lost, answered in vain, late or too late, API by API, and no promise is broken.

For each kind of fault there is a mutant, a bug put in on purpose, that the simulation finds only because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.simulation.mutants import OF_THE_TEST

from fencepost.client.errors import ConnectionLostError
from fencepost.client.transactional_id import TransactionalId
from fencepost.client.transactions import Transactions
from fencepost.coordinator.transaction import end, journal
from fencepost.coordinator.transaction.end import EpochRelation
from fencepost.coordinator.transaction.state import State
from fencepost.log import producer_state
from fencepost.log.producer_state import ProducerEntry
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import EndTxnRequest
from fencepost.protocol.messages.find_coordinator import TRANSACTION
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch
from fencepost.simulation.call_faults import CallFault
from fencepost.simulation.faulty_runs import EVERY_REQUEST_FAULT, EVERYTHING, Plan, disturb
from fencepost.simulation.request_faults import RequestFault

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 24, 26, 28
INCIDENTS: Mapping[str, dict[str, Any]] = {"steady": {}, "crashes": {"crashes": 0.3}, "moves": {"moves": 0.3}}
#: Below level 2 a marker that is repeated late may end the next transaction.
UNREPEATED: Mapping[CallFault, float] = {fault: n for fault, n in EVERYTHING.items() if fault is not CallFault.REPEATED}
#: What nobody sets.
NEVER = property(lambda _: False, lambda _, __: None)


@pytest.mark.parametrize("incidents", INCIDENTS)
@pytest.mark.parametrize("level", [2, 1, 0])
def test_no_promise_is_broken(level: int, incidents: str) -> None:
    report = disturb(level, Plan(request_faults=EVERY_REQUEST_FAULT, level=level, incidents=20, **INCIDENTS[incidents]))
    assert report.faults == []
    assert len(report.outcomes.committed) > 20
    assert all(any(fault.value in line for line in report.history) for fault in RequestFault)


@pytest.mark.parametrize("incidents", INCIDENTS)
def test_neither_is_one_when_the_calls_among_nodes_go_wrong_as_well(incidents: str) -> None:
    plan = Plan(EVERYTHING, request_faults=EVERY_REQUEST_FAULT, incidents=20, **INCIDENTS[incidents])
    first, again = disturb(3, plan), disturb(3, plan)
    assert first.faults == []
    assert "\n".join(first.history).encode() == "\n".join(again.history).encode()
    assert any(fault.value in line for line in first.history for fault in CallFault)


@pytest.mark.parametrize("api", [PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT])
def test_one_api_alone_goes_wrong_often(api: int) -> None:
    report = disturb(api, Plan(request_faults=dict.fromkeys(RequestFault, 0.1), apis=(api,), level=1, crashes=0.2))
    assert report.faults == []


@pytest.mark.parametrize(
    "faults", [{"call_faults": UNREPEATED}, {"request_faults": EVERY_REQUEST_FAULT}], ids=["nodes", "clients"]
)
def test_changes_of_level_under_faults_break_none(faults: dict[str, Any]) -> None:
    for seed in range(2):
        report = disturb(seed, Plan(changes=0.4, crashes=0.2, incidents=25, **faults))
        assert report.faults == [], f"seed {seed}"
        assert len({line[-1] for line in report.history if " transaction.version " in line}) > 1


def broken_promises(fault: RequestFault, *apis: int, share: float = 0.1, **how: Any) -> list[str]:
    """Of the first seed that shows some; a run that cannot be finished is one, too."""
    for seed in range(8):
        try:
            report = disturb(seed, Plan(request_faults={fault: share}, apis=apis, **how))
        except OF_THE_TEST:
            raise
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        if report.faults:
            return report.faults
    return []


def test_going_on_at_the_epoch_of_a_late_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-17754: the end of one transaction comes late, after its repetition, and ends the next one."""
    monkeypatch.setattr(TransactionalId, "unsettled", NEVER, raising=False)
    assert "aborted" in "".join(broken_promises(RequestFault.HELD_BACK, END_TXN, level=1))


def test_going_on_at_the_epoch_of_a_late_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producer gave it up and aborted; it comes in the next transaction."""
    monkeypatch.setattr(Transactions, "_needs_new_epoch", NEVER, raising=False)
    assert broken_promises(RequestFault.LATE, PRODUCE, level=1)


def test_refusing_an_end_that_comes_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit was made and its answer lost: its producer is told that there is none."""
    known = end.OUTCOMES_BUMPING
    monkeypatch.setitem(known, (State.COMPLETE_COMMIT, True, EpochRelation.REPEATING), ErrorCode.PRODUCER_FENCED)
    assert broken_promises(RequestFault.ANSWER_LOST, END_TXN)


def test_taking_a_lost_end_for_carried_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    end_well = TransactionalId.end

    async def hopeful(self: TransactionalId, who: ProducerIdAndEpoch, commit: bool, tv2: bool) -> ProducerIdAndEpoch:
        deadline = self._cluster.deadline("EndTxn")
        node = await self._cluster.coordinator(TRANSACTION, self.name, deadline)
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=commit
        )
        try:
            answer = await self._cluster.call(node, request)
        except ConnectionLostError:
            return ProducerIdAndEpoch.of(who.producer_id, who.producer_epoch + 1)
        if answer.error_code:
            return await end_well(self, who, commit, tv2)
        return ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)

    monkeypatch.setattr(TransactionalId, "end", hopeful)
    assert "lost" in "".join(broken_promises(RequestFault.LOST, END_TXN))


@pytest.mark.parametrize("fault", [RequestFault.ANSWER_LOST, RequestFault.HELD_BACK])
def test_taking_a_record_twice_is_found(monkeypatch: pytest.MonkeyPatch, fault: RequestFault) -> None:
    monkeypatch.setattr(ProducerEntry, "duplicate_of", lambda *_: None)
    monkeypatch.setattr(producer_state, "check_sequence", lambda *_: None)
    # Seen where it is written, before it is shown.
    assert " is next" in "".join(broken_promises(fault, PRODUCE))


@pytest.mark.parametrize(("incidents", "share"), [("crashes", 0.5), ("moves", 0.9)])
def test_forgetting_whom_a_claim_was_answered_at_a_change_of_coordinator_is_found(
    monkeypatch: pytest.MonkeyPatch, incidents: str, share: float
) -> None:
    """The seed's instance epoch: the answer to InitProducerId is lost, and asked for again after a failover."""
    read = journal._transaction

    def forgetful(*stored: Any) -> Any:
        found = read(*stored)
        return found._replace(instance_epoch=found.producer_epoch, claimed=NO_PRODUCER)

    monkeypatch.setattr(journal, "_transaction", forgetful)
    request_faults = {RequestFault.ANSWER_LOST: 0.2, RequestFault.LATE: 0.05}
    how: dict[str, Any] = {incidents: share}
    plan = Plan(request_faults=request_faults, apis=(PRODUCE, INIT_PRODUCER_ID), level=1, incidents=40, **how)
    assert any("nobody had replaced" in fault for seed in range(8) for fault in disturb(seed, plan).faults)


def test_without_the_mutants_the_same_runs_are_clean() -> None:
    for fault, api, level in (
        (RequestFault.HELD_BACK, END_TXN, 1),
        (RequestFault.LATE, PRODUCE, 1),
        (RequestFault.ANSWER_LOST, END_TXN, 2),
        (RequestFault.LOST, END_TXN, 2),
        (RequestFault.ANSWER_LOST, PRODUCE, 2),
        (RequestFault.HELD_BACK, PRODUCE, 2),
    ):
        assert disturb(0, Plan(request_faults={fault: 0.1}, apis=(api,), level=level, incidents=10)).faults == []
