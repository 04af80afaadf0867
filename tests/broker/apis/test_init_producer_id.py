"""InitProducerId (22), facts §2, over the wire; the coordinator's own tests hold its tables."""

from __future__ import annotations

import pytest
from tests.broker.wire import (
    Client,
    add,
    batch,
    clients,
    ended,
    fetch,
    find_coordinator,
    init,
    init_answer,
    new_topic,
    produce,
    values,
)

from fencepost.broker.network.disconnections import Disconnections
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
VERSIONS = range(6)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_transactional_id_every_call_gets_a_fresh_producer(client: Client, version: int) -> None:
    answers = [init_answer(client, None, timeout_ms=-5, version=version) for _ in range(3)]
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert {answer.producer_epoch for answer in answers} == {0}
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.promise("360.new-instance")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_instance_gets_the_next_epoch(client: Client, version: int) -> None:
    find_coordinator(client, "t")
    pairs = []
    for _ in range(3):
        answer = init_answer(client, "t", version=version)
        assert answer.error_code == ErrorCode.NONE
        pairs.append((answer.producer_id, answer.producer_epoch))
    assert [epoch for _, epoch in pairs] == [0, 1, 2]
    assert len({pid for pid, _ in pairs}) == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_000, ErrorCode.NONE),
    ],
)
def test_what_is_checked_first(
    client: Client, transactional_id: str, timeout_ms: int, error: ErrorCode, version: int
) -> None:
    find_coordinator(client, "t")
    answer = init_answer(client, transactional_id, timeout_ms=timeout_ms, version=version)
    assert answer.error_code == error
    if error:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("pair", [(5, -1), (-1, 5)])
def test_half_a_pair_is_no_request(client: Client, pair: tuple[int, int]) -> None:
    find_coordinator(client, "t")
    assert init_answer(client, "t", pair).error_code == ErrorCode.INVALID_REQUEST
    assert init_answer(client, None, pair).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.promise("360.same-instance", "360.repeated")
@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_running_instance_bumps_its_epoch_and_may_ask_again(client: Client, version: int) -> None:
    pair = init(client, "t")
    for _ in range(3):
        answer = init_answer(client, "t", pair, version=version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            0,
            pair.producer_id,
            pair.producer_epoch + 1,
        )


@pytest.mark.promise("360.other-epochs")
@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_older_instance_is_fenced(client: Client, version: int) -> None:
    old = init(client, "t")
    init(client, "t")
    fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    for pair in (old, ProducerIdAndEpoch.of(old.producer_id + 100, 0), ProducerIdAndEpoch.of(old.producer_id, 30)):
        answer = init_answer(client, "t", pair, version=version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (fenced, -1, -1)


def test_a_successor_aborts_its_predecessors_open_transaction(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    data = batch("lost", pair=pair, sequence=0, transactional=True)
    assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
    assert init_answer(client, "t").error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    answer = init_answer(client, "t")
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, pair.producer_epoch + 2)
    shown = fetch(client, topic)
    assert (values(shown), shown.last_stable_offset) == ([], 2)
    following = ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)
    data = batch("kept", pair=following, sequence=0, transactional=True)
    assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
    ended(client, "t", following)
    assert values(fetch(client, topic)) == ["kept"]


def test_a_connection_holds_the_id_that_it_was_given_and_none_that_it_was_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose connection counts when it closes is who got the producer id last."""
    held: list[tuple[str, int]] = []
    monkeypatch.setattr(Disconnections, "claimed", lambda *claim: held.append((claim[1], claim[3])))
    pair = init(client, "t")
    assert init_answer(client, "t", timeout_ms=0).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert init_answer(client, None).error_code == ErrorCode.NONE
    assert held == [("t", pair.producer_id)]
