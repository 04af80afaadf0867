"""A timed-out transaction is answered to older clients by the error after which they go on (KIP-588)."""

from __future__ import annotations

import pytest
from tests.broker.wire import Client, add, batch, end, fetch, init, new_topic, produce, serving, wait_until

from fencepost.broker.authorizer import AllowEverything
from fencepost.broker.network.older_clients import LIBRDKAFKA, Call, error_for, software_name
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnRequest, ApiVersionsRequest
from fencepost.protocol.types import ProducerIdAndEpoch

#: name and version as the client says them -> its errors for Produce, a new partition, offsets, commit, abort
TOLD = {
    ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"): (59, 59, 59, 59, 59),
    ("librdkafka", "2.16.0"): (59, 59, 59, 59, 59),
    ("kgo", "v1.22.2"): (47, 59, 59, 59, 0),
    ("apache-kafka-java", "4.3.1"): (47, 90, 90, 90, 0),
    ("kafka-python", "3.0.12"): (47, 90, 90, 90, 0),
    None: (47, 90, 90, 90, 0),
}


def told(client: Client, topic: str, pair: ProducerIdAndEpoch) -> tuple[int, ...]:
    """What the five calls after a time-out are answered."""
    late = batch("too late", pair=pair, sequence=1, transactional=True)
    offsets = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id="g"
    )
    return (
        produce(client, topic, late, "t", version=10).error_code,
        add(client, "t", pair, topic, 1),
        client.ask(offsets, 3).error_code,
        end(client, "t", pair, version=4).error_code,
        end(client, "t", pair, commit=False, version=4).error_code,
    )


@pytest.mark.promise("588.older-clients")
@pytest.mark.parametrize("software", TOLD, ids=lambda of: of[0] if of else "nameless")
def test_a_client_is_told_the_error_after_which_it_goes_on(software: tuple[str, str] | None) -> None:
    with serving() as broker:
        client = Client(broker)
        if software is not None:
            name, number = software
            client.ask(ApiVersionsRequest(client_software_name=name, client_software_version=number), 3)
        topic = new_topic(client, 2)
        pair = init(client, "t", timeout_ms=30)
        produce(client, topic, batch("late", pair=pair, sequence=0, transactional=True), "t")
        wait_until("the time-out ends the transaction", lambda: fetch(client, topic).last_stable_offset == 2)
        assert told(client, topic, pair) == TOLD[software]
        assert init(client, "t", pair) == (pair.producer_id, pair.producer_epoch + 1), (
            "the pair leads to the next epoch"
        )
        client.close()


def test_a_successor_fences_whatever_the_client_is() -> None:
    with serving() as broker:
        client = Client(broker)
        client.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0"), 3)
        topic = new_topic(client, 2)
        pair = init(client, "t", timeout_ms=30)
        produce(client, topic, batch("late", pair=pair, sequence=0, transactional=True), "t")
        wait_until("the time-out ends the transaction", lambda: fetch(client, topic).last_stable_offset == 2)
        init(client, "t")
        assert told(client, topic, pair) == (47, 90, 90, 90, 90)
        client.close()


def test_nobody_is_told_that_an_open_transaction_was_timed_out() -> None:
    with serving() as broker:
        client = Client(broker)
        client.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0"), 3)
        topic = new_topic(client, 2)
        pair = init(client, "t")
        assert add(client, "t", pair, topic, 0) == ErrorCode.NONE
        assert end(client, "t", pair, commit=False, version=1).error_code == ErrorCode.NONE
        client.close()


@pytest.mark.parametrize(
    ("name", "version", "software"),
    [
        ("librdkafka", "2.16.0", "librdkafka"),
        ("confluent-kafka-go", "2.16.0-rdkafka-2.16.0", "librdkafka"),
        ("confluent-kafka-python", "2.16.1-librdkafka-2.16.1", "librdkafka"),
        ("kgo", "v1.22.2", "kgo"),
        ("", "", ""),
    ],
)
def test_what_is_built_on_librdkafka_is_known_by_it(name: str, version: str, software: str) -> None:
    assert software_name(name, version) == software


@pytest.mark.parametrize("call", Call)
def test_what_is_only_to_be_tried_again_stays_so_after_a_time_out(call: Call) -> None:
    """A producer that took it for a new epoch would begin anew while the old transaction is being aborted."""
    peer = Peer(AllowEverything(), "/here")
    peer.software = LIBRDKAFKA
    context = RequestContext(peer, 3, "c")
    for error in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        assert error_for(error, call, True, context) is error
    assert error_for(ErrorCode.PRODUCER_FENCED, call, True, context) is ErrorCode.UNKNOWN_PRODUCER_ID
