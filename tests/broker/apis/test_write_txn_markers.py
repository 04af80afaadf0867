"""WriteTxnMarkers (27), facts §5.3 and §5.4, and what DescribeProducers (61) shows of it."""

from __future__ import annotations

import pytest
from tests.broker.wire import Client, batch, clients, fetch, init, new_topic, produce, values

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeProducersRequest, WriteTxnMarkersRequest
from fencepost.protocol.messages.describe_producers import ProducerState, TopicRequest
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
EVERY = [1, 2]


def marker(
    topic: str,
    pair: tuple[int, int],
    *partitions: int,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=pair[0],
        producer_epoch=pair[1],
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions or (0,)))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


def write(client: Client, *markers: WritableTxnMarker, version: int = 2) -> list[list[int]]:
    answer = client.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    assert [each.producer_id for each in answer.markers] == list(dict.fromkeys(each.producer_id for each in markers))
    return [[one.error_code for topic in each.topics for one in topic.partitions] for each in answer.markers]


def opened(client: Client, topic: str) -> ProducerIdAndEpoch:
    pair = init(client, "t")
    data = batch("v", pair=pair, sequence=0, transactional=True)
    assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
    return pair


def producers(client: Client, topic: str) -> list[ProducerState]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    described = client.ask(request).topics[0].partitions[0]
    assert described.error_code == ErrorCode.NONE
    found: list[ProducerState] = described.active_producers
    return found


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("commit", [True, False])
def test_an_admin_ends_a_hanging_transaction(client: Client, version: int, commit: bool) -> None:
    topic = new_topic(client)
    pair = opened(client, topic)
    (hanging,) = producers(client, topic)
    assert (hanging.current_txn_start_offset, hanging.coordinator_epoch, hanging.last_sequence) == (0, -1, 0)
    assert write(client, marker(topic, pair, commit=commit), version=version) == [[ErrorCode.NONE]]
    assert values(fetch(client, topic)) == (["v"] if commit else [])
    (ended,) = producers(client, topic)
    told = (ended.current_txn_start_offset, ended.coordinator_epoch, ended.last_sequence)
    assert told == (-1, 0, 0), "an equal epoch keeps its sequence"


@pytest.mark.parametrize("version", EVERY)
def test_every_partition_is_answered(client: Client, version: int) -> None:
    topic = new_topic(client, 2)
    pair = opened(client, topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    markers = [marker(topic, pair, 0, 1, 2), marker("unknown", (77, 0))]
    assert write(client, *markers, version=version) == [[0, 0, unknown], [unknown]]
    assert write(client, version=version) == []


def test_epochs_of_markers_that_do_not_bump(client: Client) -> None:
    topic = new_topic(client)
    for epoch, error in [(3, 0), (3, 0), (2, ErrorCode.INVALID_PRODUCER_EPOCH), (5, 0)]:
        assert write(client, marker(topic, (50, epoch))) == [[error]], f"epoch {epoch}"


def test_epochs_of_markers_that_bump(client: Client) -> None:
    """Greater than the stored one; equal only if nothing is open (facts §5.3)."""
    topic = new_topic(client)
    pid, epoch = pair = opened(client, topic)
    for marked, error in [
        (epoch, ErrorCode.INVALID_PRODUCER_EPOCH),
        (epoch + 1, ErrorCode.NONE),
        (epoch + 1, ErrorCode.NONE),
        (epoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    ]:
        assert write(client, marker(topic, (pid, marked), transaction_version=2)) == [[error]], f"epoch {marked}"
    late = produce(client, topic, batch("w", pair=pair, sequence=1, transactional=True), "t")
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_older_coordinator_is_fenced(client: Client) -> None:
    topic = new_topic(client)
    for coordinator, error in [(3, 0), (2, ErrorCode.TRANSACTION_COORDINATOR_FENCED), (3, 0), (4, 0)]:
        assert write(client, marker(topic, (50, 1), coordinator_epoch=coordinator)) == [[error]], coordinator


@pytest.mark.parametrize("pair", [(-1, 0), (50, -1), (-2, -1)])
def test_a_marker_of_nobody_is_not_written(client: Client, pair: tuple[int, int]) -> None:
    topic = new_topic(client)
    assert write(client, marker(topic, pair)) == [[ErrorCode.UNKNOWN_SERVER_ERROR]]
    assert fetch(client, topic).high_watermark == 0


@pytest.mark.parametrize("version", EVERY)
def test_a_marker_of_a_producer_id_below_minus_1_is_written(client: Client, version: int) -> None:
    topic = new_topic(client)
    assert write(client, marker(topic, (-2, 0)), version=version) == [[0]]
    assert fetch(client, topic).high_watermark == 1
    assert producers(client, topic) == []


def test_two_markers_of_one_producer_have_one_result(client: Client) -> None:
    one, two = new_topic(client), new_topic(client)
    assert write(client, marker(one, (50, 1)), marker(two, (50, 1))) == [[0, 0]]
    assert [fetch(client, topic).high_watermark for topic in (one, two)] == [1, 1]


def test_of_two_markers_for_one_place_the_last_answer_is_told(client: Client) -> None:
    topic = new_topic(client)
    assert write(client, marker(topic, (50, 1)), marker(topic, (50, 0))) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]


def test_a_marker_for_no_partition_is_left_out_of_the_answer(client: Client) -> None:
    nowhere = marker(new_topic(client), (50, 1))
    nowhere.topics = []
    assert client.ask(WriteTxnMarkersRequest(markers=[nowhere])).markers == []


def test_a_partition_named_twice_is_marked_once(client: Client) -> None:
    topic = new_topic(client)
    assert write(client, marker(topic, (50, 1), 0, 0)) == [[0]]
    assert fetch(client, topic).high_watermark == 1


def test_a_transaction_version_of_minus_1_is_an_error_where_there_is_a_partition(client: Client) -> None:
    topic = new_topic(client)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for pair, error in [((50, 1), ErrorCode.UNKNOWN_SERVER_ERROR), ((-2, 0), 0)]:
        assert write(client, marker(topic, pair, 0, 1, transaction_version=-1)) == [[error, unknown]]
    assert fetch(client, topic).high_watermark == 1


def test_any_other_transaction_version_below_2_goes_by_the_older_rule(client: Client) -> None:
    topic = new_topic(client)
    for version in (-2, 0, 1):
        assert write(client, marker(topic, (50, 1), transaction_version=version)) == [[0]]


def test_unknown_partitions_have_no_producers(client: Client) -> None:
    topic = new_topic(client)
    asked = [TopicRequest(name=topic, partition_indexes=[0, 1]), TopicRequest(name="no", partition_indexes=[0])]
    answer = client.ask(DescribeProducersRequest(topics=asked))
    errors = [[one.error_code for one in each.partitions] for each in answer.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [[0, unknown], [unknown]]


def test_idempotent_producers_are_shown_too(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a", "b", pair=(40, 2), sequence=0))
    (found,) = producers(client, topic)
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (40, 2, 1)
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, -1)


def test_a_partition_that_is_named_again_is_described_once(client: Client) -> None:
    """Or a short request would cost an answer of gigabytes."""
    topic = new_topic(client, partitions=2)
    produce(client, topic, batch("a", pair=(40, 2), sequence=0))
    asked = [
        TopicRequest(name=topic, partition_indexes=[0, 0, 1, 0]),
        TopicRequest(name=topic, partition_indexes=[1, 0]),
    ]
    answer = client.ask(DescribeProducersRequest(topics=asked))
    assert [[one.partition_index for one in each.partitions] for each in answer.topics] == [[0, 1], []]
    assert [len(one.active_producers) for one in answer.topics[0].partitions] == [1, 0]
