"""Requests that are long work: others are answered meanwhile, and each client in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.interrupted import decoding_held, held
from tests.broker.wire import (
    NOW,
    Client,
    batch,
    clients,
    connections_of,
    fetch,
    list_offset,
    new_topic,
    on_the_loop,
    produce,
    produce_request,
    values,
    wait_until,
)

from fencepost.broker.apis.produce import produce as produce_api
from fencepost.broker.network import connection
from fencepost.broker.network.registry import Reply
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.broker.network.unfolding import Unfolding
from fencepost.protocol.codec import begin_response
from fencepost.protocol.compression import Compression
from fencepost.protocol.decoding import STEP as STEP_OF_ENCODING
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeTransactionsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    MetadataRequest,
)
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.records import decode_batch, encode_batch, seal
from fencepost.protocol.steps import STEP
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Slices, Work

client = clients()
MANY = 3 * STEP
METADATA = 3


def large(first: int = 0, compression: Compression = Compression.ZSTD, **options: Any) -> bytes:
    records = [(NOW + n, b"k", b"%d" % (first + n), ()) for n in range(MANY)]
    return encode_batch(records, compression=compression, **options)


def search(topic: str, timestamp: int) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


def test_a_batch_of_many_records_lets_others_go_first(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(client, 2, cleanup_policy="compact")
    other = Client(client.broker)
    with held(client.broker, monkeypatch) as interrupted:
        client.send(produce_request(client, topic, [large(), batch("b")]))
        client.send(produce_request(client, topic, [batch("last")]))
        interrupted(1)
        assert other.ask(MetadataRequest(topics=[])).brokers
        assert produce(other, topic, batch("first")).base_offset == 0
    told = [client.receive().responses[0].partition_responses for _ in range(2)]
    assert [one.base_offset for one in told[0]] == [1, 0]
    assert [one.base_offset for one in told[1]] == [MANY + 1], "what a client sent later comes later"
    other.close()


def test_what_is_written_is_what_was_sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what came into the buffer meanwhile."""
    topic = new_topic(client, cleanup_policy="compact")
    with held(client.broker, monkeypatch) as interrupted:
        client.send(produce_request(client, topic, [large(compression=Compression.NONE)]))
        client.send(*[produce_request(client, topic, [batch("x" * 900)]) for _ in range(200)])
        interrupted(1)
    for number in range(201):
        (told,) = client.receive().responses[0].partition_responses
        assert told.base_offset == (MANY + number - 1 if number else 0)
    stored = fetch(client, topic, max_bytes=1).records
    assert stored is not None
    assert [record.value for record in decode_batch(stored)] == [b"%d" % n for n in range(MANY)]


def test_a_partition_may_be_deleted_while_its_batch_is_checked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, other = new_topic(client, cleanup_policy="compact"), Client(client.broker)
    produce(client, topic, large())
    with held(client.broker, monkeypatch) as interrupted:
        client.send(produce_request(client, topic, [large()]))
        searching = Client(client.broker)
        searching.send(search(topic, NOW + MANY - 1))
        interrupted(2)
        deleted = other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000))
        assert deleted.responses[0].error_code == ErrorCode.NONE
    (told,) = client.receive().responses[0].partition_responses
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (found,) = searching.receive().topics[0].partitions
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_of_the_batches_that_unfold_to_much_one_waits_for_the_other_and_small_ones_for_none(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, node = new_topic(client, cleanup_policy="compact"), client.broker.node
    monkeypatch.setattr(node, "unfolding", Unfolding(1))
    unfolded = encode_batch([(NOW + n, b"k", bytes(100), ()) for n in range(MANY)], compression=Compression.ZSTD)
    others = [Client(client.broker) for _ in range(3)]
    with held(client.broker, monkeypatch) as interrupted:
        client.send(produce_request(client, topic, [unfolded]))
        interrupted(1)
        most = node.unfolding.used
        assert MANY * 100 < most < 2 * MANY * 100, "what was not needed is given back"
        for other in others:
            other.send(produce_request(other, topic, [unfolded]))
        wait_until("they wait", lambda: len(node.unfolding._waiting) == len(others))
        small = encode_batch([(NOW, b"k", bytes(1000), ())], compression=Compression.ZSTD)
        assert produce(Client(client.broker), topic, small).base_offset == 0
        others.pop(0).close()
        interrupted(1)
        assert node.unfolding.used == most
    assert [told.base_offset for told in client.receive().responses[0].partition_responses] == [1]
    for number, other in enumerate(others, 1):
        (told,) = other.receive().responses[0].partition_responses
        assert told.base_offset in {1 + number * MANY, 1 + (number + 1) * MANY}, "the one that left may be written"
        other.close()
    wait_until("all is given back", lambda: node.unfolding.used == 0)


def test_settings_may_change_while_a_batch_is_checked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those hold that are there when it is written."""
    topic = new_topic(client, cleanup_policy="compact")
    partition = client.broker.node.storage.partition(topic, 0)
    assert partition is not None
    smaller = partition.settings.with_(max_message_bytes=1000)
    with held(client.broker, monkeypatch) as interrupted:
        client.send(produce_request(client, topic, [large()]))
        interrupted(1)

        def change() -> None:
            partition.settings = smaller

        on_the_loop(client.broker, change)
    assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_is_its_own_once_it_is_waited_for(client: Client) -> None:
    """The buffer that it came in may be used again (KAFKA-15653)."""
    topic = new_topic(client, 2, cleanup_policy="compact")
    first, second = (bytearray(large(n, Compression.NONE)) for n in (0, 7))
    request = produce_request(client, topic, [None, None])
    for data, came in zip(request.topic_data[0].partition_data, (first, second), strict=True):
        data.records = memoryview(came)
    context = RequestContext(Peer(client.broker.node.authorizer, "here"), 13, None)

    async def write() -> Any:
        later = produce_api(request, context, client.broker.node)
        assert not isinstance(later, Reply), "it is checked in steps"
        first[:], second[:] = bytes(len(first)), bytes(len(second))
        return await later

    assert client.broker.failed is not None
    answer = asyncio.run_coroutine_threadsafe(write(), client.broker.failed.get_loop()).result(20)
    assert [one.error_code for one in answer.response.responses[0].partition_responses] == [ErrorCode.NONE] * 2
    for partition, begins in ((0, 0), (1, 7)):
        wait_until("it is durable", lambda: bool(fetch(client, topic, partition=partition).records))  # noqa: B023
        stored = fetch(client, topic, max_bytes=1, partition=partition).records
        assert stored is not None
        assert [record.value for record in decode_batch(stored)] == [b"%d" % (begins + n) for n in range(MANY)]


def test_a_batch_is_compressed_anew_in_another_thread(client: Client) -> None:
    topic = new_topic(client, compression_type="gzip")
    sent = [encode_batch([(NOW, None, b"%d" % n * 200_000, ())] * 3, compression=Compression.ZSTD) for n in range(3)]
    client.send(*[produce_request(client, topic, [each]) for each in sent])
    assert [client.receive().responses[0].partition_responses[0].base_offset for _ in sent] == [0, 3, 6]
    assert values(fetch(client, topic, max_bytes=10_000_000)) == [f"{n}" * 200_000 for n in range(3) for _ in range(3)]


def test_a_producer_that_is_gone_has_written_all_the_same(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(client, cleanup_policy="compact")
    with held(client.broker, monkeypatch) as interrupted:
        gone = Client(client.broker)
        gone.send(produce_request(client, topic, [large()]))
        interrupted(1)
        gone.close()
        assert list_offset(client, topic, -1).offset == 0
    wait_until("it is written", lambda: list_offset(client, topic, -1).offset == MANY)


def test_a_search_by_time_lets_others_go_first(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(client)
    produce(client, topic, large())
    other = Client(client.broker)
    with held(client.broker, monkeypatch) as interrupted:
        client.send(search(topic, NOW + MANY - 1), search(topic, -3))
        client.send(search(topic, -1), version=3)
        interrupted(1)
        assert other.ask(MetadataRequest(topics=[])).brokers
    answers = [client.receive().topics[0].partitions[0] for _ in range(3)]
    assert [(found.offset, found.timestamp) for found in answers] == [
        (MANY - 1, NOW + MANY - 1),
        (MANY - 1, NOW + MANY - 1),
        (MANY, -1),
    ]
    other.close()


def test_a_search_in_very_many_partitions_lets_others_go_first(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, other = new_topic(client), Client(client.broker)
    request = search(topic, -1)
    request.topics[0].partitions = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(MANY)]
    with held(client.broker, monkeypatch) as interrupted:
        client.send(request)
        interrupted(1)
        assert other.ask(MetadataRequest(topics=[])).brokers
    found, *others = client.receive().topics[0].partitions
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 0)
    assert {each.error_code for each in others} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} and len(others) == MANY - 1
    other.close()


def test_a_few_bytes_that_unfold_to_millions_of_records_are_refused(client: Client) -> None:
    """The largest timestamp lies ahead, which is a reason to look."""
    one = encode_batch([(NOW, None, None, ())])[61:]
    for compression in (Compression.ZSTD, Compression.GZIP, Compression.LZ4):
        bomb = seal(one * (3 << 20), 3 << 20, Milliseconds(NOW), Milliseconds(2**60), compression=compression)
        refused = produce(client, new_topic(client), bomb)
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        less = seal(one * (1 << 20), 1 << 20, Milliseconds(NOW), Milliseconds(2**60), compression=compression)
        assert produce(client, new_topic(client), less).error_code == ErrorCode.INVALID_RECORD, "not numbered"


def test_while_a_long_answer_is_encoded_others_get_their_turns_and_the_order_stays(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[int] = []
    turns = 0

    def noted(*response: Any) -> Any:
        begun = begin_response(*response)
        return begun if isinstance(begun, bytes) else noting(begun)

    def noting(steps: Work[bytearray]) -> Work[bytearray]:
        while True:
            ticks.append(turns)
            try:
                next(steps)
            except StopIteration as done:
                data: bytearray = done.value
                return data
            yield

    def tick() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(tick)

    monkeypatch.setattr(connection, "begin_response", noted)
    monkeypatch.setattr(client.broker.node, "slices", Slices(steps=1))
    on_the_loop(client.broker, tick)
    names = [MetadataRequestTopic(name=f"nowhere-{number}") for number in range(4 * STEP_OF_ENCODING)]
    client.send(MetadataRequest(topics=names, allow_auto_topic_creation=False))
    client.send(DescribeTransactionsRequest(transactional_ids=["nobody"]))
    client.send(MetadataRequest(topics=[]))
    assert [topic.name for topic in client.receive().topics] == [topic.name for topic in names]
    assert len(client.receive().transaction_states) == 1
    assert client.receive().topics == []
    assert len(ticks) >= 4 and len(set(ticks)) == len(ticks), "one step in each turn"


def test_a_client_that_goes_while_its_answer_is_encoded_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = 0

    def endless(response: Any, version: int, correlation_id: int) -> Any:
        begun = begin_response(response, version, correlation_id)
        return begun if not isinstance(response, ListTransactionsResponse) else never()

    def never() -> Work[bytes]:
        nonlocal encoded
        while True:
            encoded += 1
            yield

    monkeypatch.setattr(connection, "begin_response", endless)
    other = Client(client.broker)
    other.send(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    wait_until("the answer is being encoded", lambda: encoded > 10)
    other.close()
    assert client.ask(MetadataRequest(topics=[])).brokers
    wait_until("one connection is left", lambda: len(client.broker.node.connections) == 1)
    before = on_the_loop(client.broker, lambda: encoded)
    assert client.ask(MetadataRequest(topics=[])).brokers
    assert on_the_loop(client.broker, lambda: encoded) == before


def many_names() -> MetadataRequest:
    names = [MetadataRequestTopic(name=f"nowhere-{number:04}") for number in range(4 * STEP_OF_ENCODING)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


def test_while_a_large_request_is_decoded_others_are_served_and_the_order_stays(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = new_topic(client), Client(client.broker)
    request = many_names()
    with decoding_held(client.broker, monkeypatch) as tried:
        client.send(produce_request(client, topic, [batch("before")]), request)
        client.send(produce_request(client, topic, [batch("behind")]))
        wait_until("it is being decoded", lambda: tried() > 10)
        assert other.ask(MetadataRequest(topics=[])).brokers
        assert produce(other, topic, batch("meanwhile")).base_offset == 1
    assert client.receive().responses[0].partition_responses[0].base_offset == 0
    assert [topic.name for topic in client.receive().topics] == [topic.name for topic in request.topics or []]
    assert client.receive().responses[0].partition_responses[0].base_offset == 2
    other.close()


def test_a_large_write_whose_batch_is_looked_at_for_long_keeps_its_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its request was decoded in steps: what decoded it is over then, and the write is not."""
    topic = new_topic(client, 1, cleanup_policy="compact")
    with held(client.broker, monkeypatch) as interrupted:
        with decoding_held(client.broker, monkeypatch) as tried:
            client.send(produce_request(client, topic, [large()]))
            client.send(produce_request(client, topic, [batch("behind")]))
            wait_until("it is being decoded", lambda: tried() > 10)
        interrupted(1)
    assert client.receive().responses[0].partition_responses[0].base_offset == 0
    assert client.receive().responses[0].partition_responses[0].base_offset == MANY


def test_a_connection_that_ends_while_its_request_is_decoded_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.ask(MetadataRequest(topics=[])).brokers
    (mine,) = connections_of(client.broker)
    other = Client(client.broker)
    with decoding_held(client.broker, monkeypatch) as tried:
        other.send(many_names())
        wait_until("it is being decoded", lambda: tried() > 10)
        (theirs,) = [each for each in connections_of(client.broker) if each is not mine]
        on_the_loop(client.broker, theirs.abort)
        wait_until("one connection is left", lambda: connections_of(client.broker) == [mine])
        before = tried()
        assert client.ask(MetadataRequest(topics=[])).brokers
        assert tried() == before
    assert client.broker.node.counters.requests[METADATA] == 2, "the other was not handled"
    other.close()


def test_a_large_request_that_is_malformed_at_its_end_ends_its_connection_alone(client: Client) -> None:
    other = Client(client.broker)
    frame = bytearray(other.frame(many_names()))
    frame[-20:] = b"\xff" * 20
    other.send_bytes(bytes(frame))
    assert other.is_closed()
    assert client.ask(MetadataRequest(topics=[])).brokers


def test_an_answer_that_fails_in_a_later_step_is_an_error_of_its_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> Work[bytes]:
        yield
        raise TypeError("this field may not be None")

    def begin(response: Any, version: int, correlation_id: int) -> Any:
        begun = begin_response(response, version, correlation_id)
        return failing() if isinstance(response, ListTransactionsResponse) else begun

    monkeypatch.setattr(connection, "begin_response", begin)
    client.send(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), MetadataRequest(topics=[]))
    assert client.receive().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.receive().brokers


def test_many_resources_are_described_in_steps(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(client)
    pauses: list[None] = []
    pause = Slices.pause

    async def counted(slices: Slices) -> None:
        pauses.append(None)
        await pause(slices)

    monkeypatch.setattr(Slices, "pause", counted)
    asked = [
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=["retention.ms"])
        for name in [topic, "nowhere"] * 50
    ]
    found = client.ask(DescribeConfigsRequest(resources=asked)).results
    assert [result.resource_name for result in found] == [one.resource_name for one in asked]
    assert [len(result.configs) for result in found] == [1, 0] * 50
    assert len(pauses) >= len(asked)
