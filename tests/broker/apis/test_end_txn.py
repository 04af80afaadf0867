"""EndTxn (26), facts §3.6 to §3.10, over the wire; the coordinator's own tests hold its tables."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.group_talk import committed_offset, find_group, txn_commit
from tests.broker.wire import (
    Client,
    add,
    batch,
    clients,
    end,
    ended,
    fetch,
    init,
    new_topic,
    produce,
    serving,
    values,
    wait_until,
)

from fencepost.broker.leader import markers
from fencepost.coordinator.group import shards
from fencepost.log import partition
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsRequest
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
OLD = range(5)
EVERY = range(6)


def write(client: Client, topic: str, pair: ProducerIdAndEpoch, value: str = "v") -> None:
    data = batch(value, pair=pair, sequence=0, transactional=True)
    assert produce(client, topic, data, "t").error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_as_it_is_told(client: Client, version: int, commit: bool) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    write(client, topic, pair)
    answer = end(client, "t", pair, commit=commit, version=version)
    told = (pair.producer_id, pair.producer_epoch + 1) if version >= 5 else (-1, -1)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, *told)
    assert values(fetch(client, topic)) == (["v"] if commit else [])


@pytest.mark.promise("890.repeated-end")
@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_alike_and_another_outcome_refused(
    client: Client, version: int, commit: bool
) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    write(client, topic, pair)
    first = end(client, "t", pair, commit=commit, version=version)
    for _ in range(2):
        assert end(client, "t", pair, commit=commit, version=version) == first
    other = end(client, "t", pair, commit=not commit, version=version)
    assert other.error_code == ErrorCode.INVALID_TXN_STATE
    assert fetch(client, topic).high_watermark == 2, "one marker"


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("commit", [True, False])
def test_nothing_open_is_nothing_to_end(client: Client, version: int, commit: bool) -> None:
    pair = init(client, "t")
    answer = end(client, "t", pair, commit=commit, version=version)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE


def test_by_version_5_an_empty_abort_bumps_and_an_empty_commit_is_refused(client: Client) -> None:
    pair = init(client, "t")
    refused = end(client, "t", pair)
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
    following = ended(client, "t", pair, commit=False)
    assert following == ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1)
    assert ended(client, "t", following, commit=False).producer_epoch == pair.producer_epoch + 2


@pytest.mark.parametrize("version", EVERY)
def test_a_transaction_without_writes_may_be_committed(client: Client, version: int) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    assert end(client, "t", pair, version=version).error_code == ErrorCode.NONE
    assert (values(fetch(client, topic)), fetch(client, topic).high_watermark) == ([], 1)


@pytest.mark.parametrize("version", EVERY)
def test_who_may_end(client: Client, version: int) -> None:
    topic = new_topic(client)
    old = init(client, "t")
    pair = init(client, "t")
    write(client, topic, pair)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    for name, other, error in [
        ("t", old, fenced),
        ("t", ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 5), fenced),
        ("t", ProducerIdAndEpoch.of(pair.producer_id + 9, pair.producer_epoch), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("unknown", pair, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("", pair, ErrorCode.INVALID_REQUEST),
    ]:
        assert end(client, name, other, version=version).error_code == error, (name, other)
    assert end(client, "t", pair, version=version).error_code == ErrorCode.NONE


@pytest.mark.promise("890.delayed-end")
def test_a_delayed_end_does_not_end_the_next_transaction(client: Client) -> None:
    """KAFKA-17754."""
    topic = new_topic(client)
    pair = init(client, "t")
    write(client, topic, pair, "first")
    following = ended(client, "t", pair)
    write(client, topic, following, "second")
    for commit in (True, False):
        assert end(client, "t", pair, commit=commit).error_code == ErrorCode.PRODUCER_FENCED
    assert values(fetch(client, topic)) == ["first"]
    ended(client, "t", following)
    assert values(fetch(client, topic)) == ["first", "second"]


@pytest.mark.promise("890.bump")
def test_a_hundred_transactions_in_a_row(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    for number in range(100):
        write(client, topic, pair, f"{number}")
        pair = ended(client, "t", pair, commit=number % 3 != 0)
    assert values(fetch(client, topic)) == [f"{number}" for number in range(100) if number % 3 != 0]


@pytest.mark.parametrize("version", EVERY)
def test_after_a_time_out_the_commit_is_refused_and_the_producer_may_go_on(version: int) -> None:
    with serving() as broker:
        client = Client(broker)
        topic = new_topic(client)
        pair = init(client, "t", timeout_ms=30)
        write(client, topic, pair, "late")
        wait_until("the time-out ends the transaction", lambda: fetch(client, topic).last_stable_offset == 2)
        commit = end(client, "t", pair, version=version)
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert commit.error_code == (ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else fenced)
        assert commit.transaction_timed_out == (version >= 3)
        abort = end(client, "t", pair, commit=False, version=version)
        assert abort.error_code == ErrorCode.NONE
        assert abort.transaction_timed_out == (version >= 3)
        if version >= 5:
            following = ProducerIdAndEpoch.of(abort.producer_id, abort.producer_epoch)
            write(client, topic, following, "next")
            ended(client, "t", following)
            assert values(fetch(client, topic)) == ["next"]
        client.close()


@pytest.mark.parametrize("commit", [True, False])
def test_by_version_5_a_timed_out_end_is_answered_alike_whatever_the_software(commit: bool) -> None:
    """What is said to make older librdkafka go on would be its error where the protocol has one of its own."""
    with serving() as broker:
        client = Client(broker)
        client.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.6.0"))
        topic = new_topic(client)
        pair = init(client, "t", timeout_ms=30)
        write(client, topic, pair, "late")
        wait_until("the time-out ends the transaction", lambda: fetch(client, topic).last_stable_offset == 2)
        answer = end(client, "t", pair, commit=commit)
        assert answer.error_code == (ErrorCode.TRANSACTION_ABORTABLE if commit else ErrorCode.NONE)
        assert answer.transaction_timed_out
        client.close()


@pytest.mark.parametrize("commit", [True, False])
def test_the_marker_of_a_transaction_is_made_once_and_read_by_nobody_who_was_handed_it(
    client: Client, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(client, partitions=3)
    pair = init(client, "t")
    write(client, topic, pair)
    find_group(client)
    assert txn_commit(client, "t", pair, topic, 7) == [ErrorCode.NONE]
    made: list[bytes] = []

    def once(*what: Any) -> bytes:
        made.append(control_batch(*what))
        return made[-1]

    def read(*_: object) -> None:
        raise AssertionError("what the marker says was handed over")

    monkeypatch.setattr(markers, "control_batch", once)
    monkeypatch.setattr(partition, "read_control_record", read)
    monkeypatch.setattr(shards, "read_control_record", read)
    assert end(client, "t", pair, commit=commit).error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == (["v"] if commit else [])
    assert committed_offset(client, topic, stable=True)[0] == (7 if commit else -1)
    assert len(made) == 1
