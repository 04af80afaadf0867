"""What a request and an answer say is found by the names of their fields, whichever API it is."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost.protocol.codec import encode_request, encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    FetchResponse,
    InitProducerIdResponse,
    MetadataResponse,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from fencepost.protocol.messages.metadata import MetadataResponseTopic
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId
from fencepost.simulation.history.events import Batch
from fencepost.simulation.history.messages import frames, read_answer, read_request

DATA = encode_batch(
    [(1, None, b"one", ()), (1, None, None, ())], producer_id=ProducerId(7), producer_epoch=Epoch(2), base_sequence=5
)
ID = UUID(int=99)


def test_a_produce_says_what_it_brings_and_its_answer_where_that_is() -> None:
    partition = PartitionProduceData(index=1, records=DATA)
    request = ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="left", partition_data=[partition])],
    )
    (frame,) = frames(encode_request(request, 9, 4, "client"))
    header, said = read_request(frame, {})
    assert (header.api, header.version, header.correlation_id, header.client_id) == (0, 9, 4, "client")
    assert said.transactional_id == "t"
    assert said.batches == [Batch("left-1", ProducerId(7), Epoch(2), 5, 2, False, ("one", "null"))]
    answers = [
        PartitionProduceResponse(index=1, error_code=0, base_offset=12, log_start_offset=0),
        PartitionProduceResponse(index=2, error_code=ErrorCode.INVALID_PRODUCER_EPOCH, base_offset=-1),
    ]
    response = ProduceResponse(responses=[TopicProduceResponse(name="left", partition_responses=answers)])
    said = read_answer(encode_response(response, 9, 4)[4:], 0, 9, {})
    assert said.errors == ["left-2: INVALID_PRODUCER_EPOCH"]
    assert said.offsets == ["left-1: base_offset 12"]


def test_who_asks_for_what_is_found() -> None:
    request = EndTxnRequest(transactional_id="t", producer_id=7, producer_epoch=2, committed=False)
    _, said = read_request(encode_request(request, 3, 1, None)[4:], {})
    assert (said.transactional_id, said.producer_id, said.producer_epoch) == ("t", 7, 2)
    assert said.detail == "committed=False"
    topics = [AddPartitionsToTxnTopic(name="left", partitions=[0, 2])]
    added = AddPartitionsToTxnRequest(transactional_id="t", producer_id=7, producer_epoch=2, topics=topics)
    _, said = read_request(encode_request(added, 3, 1, None)[4:], {})
    assert said.partitions == ["left-0", "left-2"]
    answer = InitProducerIdResponse(error_code=0, producer_id=8, producer_epoch=0)
    said = read_answer(encode_response(answer, 4, 1)[4:], 22, 4, {})
    assert (said.errors, said.producer_id, said.producer_epoch) == ([], 8, 0)


def test_a_topic_that_is_known_by_its_id_has_the_name_that_somebody_told() -> None:
    topics: dict[str, str] = {}
    partition = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=1)
    topic = FetchTopic(topic_id=ID, partitions=[partition])
    request = FetchRequest(max_wait_ms=1, min_bytes=1, isolation_level=1, topics=[topic])
    frame = encode_request(request, 13, 1, None)[4:]
    assert read_request(frame, topics)[1].offsets == [f"{ID}-0: fetch_offset 3"]
    told = MetadataResponse(
        brokers=[],
        controller_id=0,
        topics=[MetadataResponseTopic(error_code=0, name="left", topic_id=ID, partitions=[])],
    )
    read_answer(encode_response(told, 12, 1)[4:], 3, 12, topics)
    _, said = read_request(frame, topics)
    assert (said.partitions, said.offsets) == (["left-0"], ["left-0: fetch_offset 3"])
    assert said.detail == "isolation_level=1"
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    shown = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=5,
        last_stable_offset=4,
        aborted_transactions=aborted,
        records=DATA,
    )
    response = FetchResponse(error_code=0, responses=[FetchableTopicResponse(topic_id=ID, partitions=[shown])])
    said = read_answer(encode_response(response, 13, 1)[4:], 1, 13, topics)
    assert said.offsets == ["left-0: high_watermark 5", "left-0: last_stable_offset 4"]
    assert [batch.values for batch in said.batches] == [("one", "null")]
    assert said.producer_id == -1, "an aborted transaction is nobody who asks"


@pytest.mark.parametrize("api", [0, 9, 999])
def test_what_cannot_be_read_is_said_to_be_so(api: int) -> None:
    assert read_answer(b"\0\0\0\1\xff", api, 3, {}).detail == "it cannot be read"


def test_an_error_of_a_group_is_found() -> None:
    said = read_answer(encode_response(OffsetFetchResponse(topics=[], error_code=16), 7, 1)[4:], 9, 7, {})
    assert said.errors == ["NOT_COORDINATOR"]
