"""Two-phase commit end to end (KIP-939): prepared here, a restart in between, ended by a successor."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.wire import (
    SETTINGS,
    Client,
    batch,
    end,
    fetch,
    find_coordinator,
    killed_copy,
    new_topic,
    produce,
    values,
)

from fencepost.broker import running_broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)
from fencepost.protocol.types import ProducerIdAndEpoch

TWO_PHASE = {**SETTINGS, "transaction.two.phase.commit.enable": True}


def claim(client: Client, *, keep: bool) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id="id", transaction_timeout_ms=1, enable2_pc=True, keep_prepared_txn=keep
    )
    answer: InitProducerIdResponse = client.ask(request, 6)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_waits_for_its_successor(tmp_path: Path, killed: bool, commits: bool) -> None:
    data = tmp_path / "one"
    with running_broker(data=data, settings=TWO_PHASE) as broker:
        client = Client(broker)
        topic = new_topic(client)
        find_coordinator(client, "id")
        first = claim(client, keep=False)
        pair = ProducerIdAndEpoch.of(first.producer_id, first.producer_epoch)
        written = produce(client, topic, batch("prepared", pair=pair, sequence=0, transactional=True), "id", version=12)
        assert written.error_code == ErrorCode.NONE
        client.close()
        if killed:
            data = killed_copy(broker, tmp_path / "two")
    with running_broker(data=data, settings=TWO_PHASE) as broker:
        client = Client(broker)
        find_coordinator(client, "id")
        listed = client.ask(ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]), 2)
        assert [found.transactional_id for found in listed.transaction_states] == ["id"]
        described = client.ask(DescribeTransactionsRequest(transactional_ids=["id"]), 0).transaction_states[0]
        assert described.transaction_timeout_ms == 2**31 - 1, "it never times out"
        successor = claim(client, keep=True)
        assert (successor.ongoing_txn_producer_id, successor.ongoing_txn_producer_epoch) == pair
        assert values(fetch(client, topic)) == []
        assert end(client, "id", pair, commit=commits).error_code == ErrorCode.PRODUCER_FENCED
        now = ProducerIdAndEpoch.of(successor.producer_id, successor.producer_epoch)
        assert end(client, "id", now, commit=commits).error_code == ErrorCode.NONE
        assert values(fetch(client, topic)) == (["prepared"] if commits else [])
        client.close()
