"""Bugs that other leaders of partitions had (facts §13.1 to §13.3), each under its number, over the wire.

Those of the log alone are in tests/log/test_log_bugs.py, those of coordinators in tests/coordinator and in
test_coordinator_bugs.py.  What cannot happen here, because of how this is built:

KAFKA-20322, 16992   nothing is negotiated between nodes: one node leads everything and calls itself in the process
KAFKA-14055, 13727   there is no cleaner yet
KAFKA-17801, 16780   there is no tiered storage
KAFKA-13574, 17582   of clients, like KAFKA-17734 and all of facts §13.5 but KAFKA-9911 and 10687
facts §13.7, 4       an append waits for nobody, so it has no time-out
facts §13.7, 8       the coordinator is asked in the process, not by a version of a request
"""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.group_talk import find_group, txn_commit
from tests.broker.wire import (
    Client,
    add,
    batch,
    clients,
    end,
    ended,
    fetch,
    fetch_request,
    init,
    new_topic,
    on_the_loop,
    produce,
    produce_request,
    values,
    wait_until,
)

from fencepost.broker.leader.markers import LocalMarkers
from fencepost.broker.leader.registrar import Answer, Question
from fencepost.broker.network.registry import SERVED, Reply
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
FETCHES = range(4, 19)


def part_of(pair: ProducerIdAndEpoch, value: str = "v", sequence: int = 0) -> bytes:
    return batch(value, pair=pair, sequence=sequence, transactional=True)


def hold_markers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(LocalMarkers, "write", lambda _, __, partitions: dict.fromkeys(partitions, refuse))


# Hanging transactions


@pytest.mark.promise("890.late-record")
@pytest.mark.parametrize("version", [3, 10, 11])
def test_kafka_14402_a_write_that_comes_after_the_marker_opens_nothing(client: Client, version: int) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    assert end(client, "t", pair, commit=False, version=4).error_code == ErrorCode.NONE
    refused = ErrorCode.TRANSACTION_ABORTABLE if version == 11 else ErrorCode.INVALID_TXN_STATE
    assert produce(client, topic, part_of(pair), "t", version=version).error_code == refused
    shown = fetch(client, topic)
    assert (shown.last_stable_offset, shown.high_watermark) == (1, 1), "the marker is all there is"


def test_kafka_18957_old_ends_leave_nothing_in_prepare(client: Client) -> None:
    topic = new_topic(client)
    for number, version in enumerate([0, 1, 2, 3, 4] * 4):
        name = f"t{number % 3}"
        pair = init(client, name)
        assert add(client, name, pair, topic) == ErrorCode.NONE
        assert produce(client, topic, part_of(pair), name, version=11).error_code == ErrorCode.NONE
        assert end(client, name, pair, commit=number % 2 == 0, version=version).error_code == ErrorCode.NONE
    everything = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)
    found = client.ask(everything).transaction_states
    assert len(found) == 3 and {each.transaction_state for each in found} <= {"CompleteCommit", "CompleteAbort"}
    shown = fetch(client, topic)
    assert shown.last_stable_offset == shown.high_watermark == 40


def test_kafka_18227_what_began_by_the_old_protocol_and_ends_by_the_new_gets_a_new_epoch(client: Client) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    assert produce(client, topic, part_of(pair, "old"), "t", version=11).error_code == ErrorCode.NONE
    following = ended(client, "t", pair)
    assert following == ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1)
    for sequence in (0, 1):
        late = produce(client, topic, part_of(pair, "late", sequence), "t", version=12)
        assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(fetch(client, topic)) == ["old"]


# What a producer is told


COORDINATOR_ERRORS = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.mark.promise("890.older-codes")
@pytest.mark.parametrize("version", [3, 10, 11, 12, 13])
@pytest.mark.parametrize("error", COORDINATOR_ERRORS)
def test_kafka_15459_16386_a_coordinator_that_is_away_is_a_reason_to_send_again(
    client: Client, error: ErrorCode, version: int
) -> None:
    """For a producer these errors would be its end: it knows none of them from a leader."""
    topic, pair = new_topic(client), init(client, "t")

    class Away:
        def ask(self, question: Question) -> Answer:
            return Answer(dict.fromkeys(question.partitions, error))

    local, client.broker.node.registrar = client.broker.node.registrar, Away()
    told = produce(client, topic, part_of(pair), "t", version=version)
    assert told.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    client.broker.node.registrar = local
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 10, 11, 12, 13])
def test_kafka_15459_16386_codes_of_coordinators_are_not_for_producers(client: Client, version: int) -> None:
    topic = new_topic(client)
    for transactional_id in ("one", "two"):
        told = produce(client, topic, part_of(ProducerIdAndEpoch.of(5, 0)), transactional_id, version=version)
        assert told.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("version", [3, 11, 12])
def test_kafka_18042_a_stale_epoch_is_refused_before_the_coordinator_is_asked(
    client: Client, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, stale = new_topic(client), init(client, "t")
    pair = init(client, "t")
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    hold_markers_back(monkeypatch)
    ended(client, "t", pair)
    told = produce(client, topic, part_of(stale), "t", version=version)
    assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH, "not to come again: it never may"


@pytest.mark.parametrize(("version", "told"), [(11, 19), (12, 51), (13, 51)])
def test_kafka_18662_a_transaction_that_is_being_ended_is_said_to_be_so(
    client: Client, version: int, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other, pair = new_topic(client), new_topic(client), init(client, "t")
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    hold_markers_back(monkeypatch)
    following = ended(client, "t", pair)
    assert produce(client, other, part_of(following), "t", version=version).error_code == told


def test_kafka_18654_the_next_transaction_need_not_come_again(client: Client) -> None:
    """A write that is sent right behind the end of the transaction before is taken."""
    topic, pair = new_topic(client), init(client, "t")
    for _ in range(50):
        following = ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1)
        stop = EndTxnRequest(
            transactional_id="t", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, committed=True
        )
        client.send(produce_request(client, topic, [part_of(pair)], "t"))
        client.send(stop)
        client.send(produce_request(client, topic, [part_of(following)], "t"))
        first, done, second = client.receive(), client.receive(), client.receive()
        written = [each.responses[0].partition_responses[0].error_code for each in (first, second)]
        assert (written, done.error_code) == ([0, 0], 0)
        pair = ended(client, "t", following)


@pytest.mark.promise("890.first-sequence")
def test_kafka_18202_a_first_batch_that_is_not_the_first_is_refused(client: Client) -> None:
    topic, pair = new_topic(client), init(client, "t")
    lost = produce(client, topic, part_of(pair, "second", 1), "t")
    assert lost.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(client, topic, part_of(pair, "first", 0), "t").error_code == ErrorCode.NONE
    assert produce(client, topic, part_of(pair, "second", 1), "t").error_code == ErrorCode.NONE
    ended(client, "t", pair)
    assert values(fetch(client, topic)) == ["first", "second"]


def test_kafka_14916_the_batches_say_what_is_transactional_and_not_the_request(client: Client) -> None:
    topic, pair = new_topic(client, 3), init(client, "t")
    data = [part_of(pair), batch("plain"), batch("idempotent", pair=(700, 0), sequence=0)]
    answer = client.ask(produce_request(client, topic, data, "t")).responses[0]
    assert [each.error_code for each in answer.partition_responses] == [0, 0, 0]
    (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert [(each.topic, each.partitions) for each in state.topics] == [(topic, [0])]
    assert values(fetch(client, topic, partition=1)) == ["plain"]
    assert values(fetch(client, topic, partition=2)) == ["idempotent"]
    assert produce(client, topic, batch("plain"), "another id").error_code == ErrorCode.NONE


def test_kafka_15653_a_write_that_waits_for_its_verification_keeps_its_own_bytes(client: Client) -> None:
    """On the same connection nothing is read meanwhile."""
    topic, other, pair = new_topic(client), new_topic(client), init(client, "t")
    go = asyncio.Event()
    local = client.broker.node.registrar

    class Slow:
        asked = False

        async def ask(self, question: Question) -> Answer:
            self.asked = True
            await go.wait()
            answer = local.ask(question)
            assert isinstance(answer, Answer)
            return answer

    client.broker.node.registrar = slow = Slow()
    writer = Client(client.broker)
    writer.send(produce_request(client, topic, [part_of(pair, "a" * 30_000)], "t"))
    wait_until("it waits", lambda: slow.asked)
    for letter in "bcdef":
        writer.send(produce_request(client, other, [batch(letter * 30_000)]))
    assert writer.silent_for(0.05)
    on_the_loop(client.broker, go.set)
    for _ in range(6):
        assert writer.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    client.broker.node.registrar = local
    ended(client, "t", pair)
    assert values(fetch(client, topic)) == ["a" * 30_000]
    assert values(fetch(client, other)) == [letter * 30_000 for letter in "bcdef"]
    writer.close()


def test_kafka_15653_a_write_that_waits_shares_no_buffer_with_its_request(client: Client) -> None:
    """The buffer that it was read into may be used again."""
    topic, pair = new_topic(client), init(client, "t")
    local, buffer = client.broker.node.registrar, bytearray(part_of(pair, "a"))
    request = produce_request(client, topic, [None], "t")
    request.topic_data[0].partition_data[0].records = memoryview(buffer)
    context = RequestContext(Peer(client.broker.node.authorizer, "/here"), 12, "wire")

    class Overwriting:
        async def ask(self, question: Question) -> Answer:
            buffer[:] = bytes(len(buffer))
            answer = local.ask(question)
            assert isinstance(answer, Answer)
            return answer

    async def write() -> None:
        later = SERVED[0].handler(request, context, client.broker.node)
        assert not isinstance(later, Reply), "the registrar has yet to answer"
        await later

    client.broker.node.registrar = Overwriting()
    assert client.broker.failed is not None
    asyncio.run_coroutine_threadsafe(write(), client.broker.failed.get_loop()).result(10)
    client.broker.node.registrar = local
    ended(client, "t", pair)
    assert values(fetch(client, topic)) == ["a"]


# Reading


@pytest.mark.parametrize("version", FETCHES)
def test_kafka_5376_a_fetch_that_waited_is_told_of_aborts(client: Client, version: int) -> None:
    topic, pair = new_topic(client), init(client, "t")
    reader = Client(client.broker)
    reader.send(fetch_request(client, topic, wait_ms=20_000, min_bytes=100), version=version)
    assert reader.silent_for(0.02)
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    ended(client, "t", pair, commit=False)
    shown = reader.receive().responses[0].partitions[0]
    assert [(each.producer_id, each.first_offset) for each in shown.aborted_transactions] == [(pair.producer_id, 0)]
    assert values(shown) == []
    reader.close()


@pytest.mark.parametrize("version", FETCHES)
def test_kafka_18646_records_are_never_null(client: Client, version: int) -> None:
    topic = new_topic(client)
    for offset, error in [(0, ErrorCode.NONE), (5, ErrorCode.OFFSET_OUT_OF_RANGE)]:
        shown = fetch(client, topic, offset, version=version)
        assert (shown.error_code, shown.records) == (error, b"")
    assert fetch(client, topic, partition=9, version=version).records == b""
    unknown = fetch(client, "unknown", version=version)
    assert unknown.error_code != ErrorCode.NONE and unknown.records == b""
    astray = fetch_request(client, topic, 5)
    astray.topics[0].partitions[0].last_fetched_epoch = 0
    (shown,) = client.ask(astray, version).responses[0].partitions
    assert (shown.records, shown.diverging_epoch is not None) == (b"", version >= 12)


def test_kafka_18659_produce_is_advertised_from_version_0(client: Client) -> None:
    for version in range(5):
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        served = client.ask(request, version).api_keys
        assert [each.min_version for each in served if each.api_key == 0] == [0]


# Oddities (facts §13.7)


@pytest.mark.parametrize("version", [4, 5])
def test_facts_13_7_12_an_empty_request_of_a_broker_is_answered(client: Client, version: int) -> None:
    answer = client.ask(AddPartitionsToTxnRequest(), version)
    assert (answer.error_code, answer.results_by_transaction) == (ErrorCode.NONE, [])


def test_facts_13_7_14_metadata_that_is_too_long_is_no_end_of_the_transaction(client: Client) -> None:
    find_group(client)
    topic, pair = new_topic(client), init(client, "t")
    too_long = txn_commit(client, "t", pair, topic, 1, metadata="x" * 5000)
    assert too_long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert txn_commit(client, "t", pair, topic, 2) == [ErrorCode.NONE]
    ended(client, "t", pair)


def test_facts_13_7_15_a_marker_is_dropped_only_where_the_topic_is_known_to_be_deleted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that cannot be reached now keeps its transaction waiting, until it can."""
    topic, pair = new_topic(client), init(client, "t")
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    lost = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with monkeypatch.context() as patch:
        patch.setattr(LocalMarkers, "write", lambda _, __, partitions: dict.fromkeys(partitions, lost))
        following = ended(client, "t", pair)
        assert add(client, "t", following, topic) == ErrorCode.CONCURRENT_TRANSACTIONS
    on_the_loop(client.broker, client.broker.node.transactions.retry_markers)
    assert values(fetch(client, topic)) == ["v"]
    assert add(client, "t", following, topic) == ErrorCode.NONE
