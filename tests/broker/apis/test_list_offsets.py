"""ListOffsets (2), facts §8.3."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from tests.broker.wire import MEGABYTE, NOW, Client, batch, clients, ended, init, list_offset, new_topic, produce

from fencepost.broker.apis.list_offsets import _while_it_is_there
from fencepost.protocol.compression import Compression, TooLarge
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteRecordsRequest, ListOffsetsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
)
from fencepost.protocol.records import encode_batch
from fencepost.protocol.steps import Steps, elsewhere

client = clients()
VERSIONS = range(1, 12)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ends(client: Client, version: int) -> None:
    topic = new_topic(client)
    for committed in (True, False):
        assert list_offset(client, topic, LATEST, committed=committed, version=version).offset == 0
    produce(client, topic, batch("a", "b"))
    pair = init(client, "t")
    produce(client, topic, batch("c", pair=pair, sequence=0, transactional=True), "t")
    stable = list_offset(client, topic, LATEST, version=version)
    assert (stable.timestamp, stable.offset) == (-1, 2 if version >= 2 else 3)
    assert list_offset(client, topic, LATEST, committed=False, version=version).offset == 3
    assert list_offset(client, topic, EARLIEST, version=version).offset == 0
    ended(client, "t", pair)
    assert list_offset(client, topic, LATEST, version=version).offset == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_by_time(client: Client, version: int) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a", "b", "c"))
    produce(client, topic, batch("d", timestamp=NOW + 10))
    for timestamp, offset, found_at in [(0, 0, NOW), (NOW + 1, 1, NOW + 1), (NOW + 5, 3, NOW + 10)]:
        found = list_offset(client, topic, timestamp, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_at)
    nothing = list_offset(client, topic, NOW + 11, version=version)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (ErrorCode.NONE, -1, -1)


def test_by_time_no_further_than_the_last_stable_offset(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a"))
    pair = init(client, "t")
    open_one = batch("b", pair=pair, sequence=0, transactional=True, timestamp=NOW + 10)
    produce(client, topic, open_one, "t")
    hidden = list_offset(client, topic, NOW + 5)
    assert (hidden.error_code, hidden.offset, hidden.timestamp) == (ErrorCode.NONE, -1, -1)
    assert list_offset(client, topic, NOW + 5, committed=False).offset == 1
    ended(client, "t", pair)
    assert list_offset(client, topic, NOW + 5).offset == 1


def test_the_largest_timestamp(client: Client) -> None:
    topic = new_topic(client)
    nothing = list_offset(client, topic, MAX_TIMESTAMP)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (ErrorCode.NONE, -1, -1)
    produce(client, topic, batch("a", timestamp=NOW + 10))
    produce(client, topic, batch("b", timestamp=NOW))
    found = list_offset(client, topic, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (0, NOW + 10)


def test_the_largest_timestamp_of_all_or_none(client: Client) -> None:
    """As in Apache Kafka: not the largest one that the reader may see, and deleted records count."""
    topic, pair = new_topic(client), init(client, "t")
    produce(client, topic, batch("a", timestamp=NOW))
    open_one = batch("b", pair=pair, sequence=0, transactional=True, timestamp=NOW + 10)
    produce(client, topic, open_one, "t")
    hidden = list_offset(client, topic, MAX_TIMESTAMP)
    assert (hidden.error_code, hidden.offset, hidden.timestamp) == (ErrorCode.NONE, -1, -1)
    assert list_offset(client, topic, MAX_TIMESTAMP, committed=False).offset == 1
    topic = new_topic(client)
    produce(client, topic, batch("a", timestamp=NOW + 10))
    produce(client, topic, batch("b", timestamp=NOW))
    asked = DeleteRecordsPartition(partition_index=0, offset=-1)
    client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000))
    for committed in (True, False):
        deleted = list_offset(client, topic, MAX_TIMESTAMP, committed=committed)
        assert (deleted.offset, deleted.timestamp) == (0, NOW + 10)


def test_the_largest_timestamp_may_be_that_of_a_marker(client: Client) -> None:
    """As in Apache Kafka (facts §14)."""
    topic = new_topic(client)
    pair = init(client, "t")
    produce(client, topic, batch("a", pair=pair, sequence=0, transactional=True), "t")
    everything_open = list_offset(client, topic, MAX_TIMESTAMP)
    assert (everything_open.offset, everything_open.timestamp) == (-1, -1)
    ended(client, "t", pair)
    assert list_offset(client, topic, MAX_TIMESTAMP).offset == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_questions_of_newer_versions(client: Client, version: int) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a"))
    for timestamp, since, offset in [(-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)]:
        found = list_offset(client, topic, timestamp, version=version)
        expected = (ErrorCode.NONE, offset) if version >= since else (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert (found.error_code, found.offset) == expected, f"timestamp {timestamp}"


def test_unknown_places_and_other_epochs(client: Client) -> None:
    topic = new_topic(client)
    partition = client.broker.node.storage.partition(topic, 0)
    assert partition is not None
    for name, index, epoch, error in [
        ("unknown", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic, 1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic, 0, partition.leader_epoch, ErrorCode.NONE),
        (topic, 0, partition.leader_epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        wanted = [ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=LATEST)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        assert client.ask(request).topics[0].partitions[0].error_code == error


@pytest.mark.parametrize("version", VERSIONS)
def test_a_question_of_no_version(client: Client, version: int) -> None:
    assert list_offset(client, new_topic(client), -7, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION


def ask_twice(topic: str, **how: int) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=wanted)], **{"replica_id": -1, **how})


@pytest.mark.parametrize("apart", [False, True], ids=["in one topic", "in a topic that is named twice"])
def test_a_partition_that_is_asked_for_twice_is_refused_once(client: Client, apart: bool) -> None:
    request = ask_twice(new_topic(client))
    if apart:
        (whole,) = request.topics
        request.topics = [ListOffsetsTopic(name=whole.name, partitions=[wanted]) for wanted in whole.partitions]
    (topic,) = client.ask(request).topics
    (found,) = topic.partitions
    assert (found.error_code, found.offset) == (ErrorCode.INVALID_REQUEST, -1)


def test_a_topic_of_which_no_partition_is_asked_for_is_not_spoken_of(client: Client) -> None:
    topics = [ListOffsetsTopic(name=new_topic(client), partitions=[])]
    assert client.ask(ListOffsetsRequest(replica_id=-1, topics=topics)).topics == []


def test_under_an_isolation_that_nobody_knows_everything_is_refused_as_often_as_it_is_named(client: Client) -> None:
    request = ask_twice(new_topic(client), isolation_level=2)
    request.topics *= 2
    answered = [(topic.name, [one.error_code for one in topic.partitions]) for topic in client.ask(request).topics]
    assert answered == [(request.topics[0].name, [ErrorCode.UNKNOWN_SERVER_ERROR] * 2)] * 2


def test_an_isolation_that_nobody_knows_is_not_taken_for_another(client: Client) -> None:
    request = ask_twice(new_topic(client), isolation_level=2)
    del request.topics[0].partitions[0]
    assert client.ask(request).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_isolation_that_nobody_knows_is_an_error_wherever_one_asks(client: Client) -> None:
    """As in Apache Kafka, which looks up no partition for it."""
    places = [
        (new_topic(client), 0, LATEST),
        (new_topic(client), 7, LATEST),
        ("nowhere", 0, LATEST),
        ("nowhere", 0, -7),
    ]
    for name, index, timestamp in places:
        wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=2, topics=[ListOffsetsTopic(name=name, partitions=[wanted])]
        )
        (answer,) = client.ask(request).topics[0].partitions
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_only_consumers_stop_at_the_last_stable_offset(client: Client) -> None:
    topic, pair = new_topic(client), init(client, "t")
    assert produce(client, topic, batch("a", pair=pair, sequence=0, transactional=True), "t").error_code == 0
    for replica, end in ((-1, 0), (-2, 1)):
        request = ask_twice(topic, isolation_level=1, replica_id=replica)
        del request.topics[0].partitions[1]
        assert client.ask(request).topics[0].partitions[0].offset == end


def test_a_batch_that_unfolds_to_more_than_is_taken_now_is_told_of_by_its_header(client: Client) -> None:
    """It was taken before max.message.bytes became smaller; that it is too large is found in another thread."""
    topic = new_topic(client, max_message_bytes=str(2 * MEGABYTE))
    data = encode_batch([(NOW + n, None, bytes(10 * MEGABYTE), ()) for n in range(3)], compression=Compression.ZSTD)
    assert produce(client, topic, data).error_code == ErrorCode.NONE
    assert (found := list_offset(client, topic, NOW + 1)).offset == 1, found
    partition = client.broker.node.storage.partition(topic, 0)
    assert partition is not None
    partition.settings = partition.settings.with_(max_message_bytes=MEGABYTE + 100_000)
    found = list_offset(client, topic, NOW + 1)
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, 0, NOW + 2)


def test_what_failed_in_another_thread_is_gone_with_the_answer() -> None:
    """What it unfolded goes with it, as soon as nothing refers to it: no cycle keeps it for the garbage collector."""
    partition: Any = SimpleNamespace(topic="t", index=0)
    node: Any = SimpleNamespace(storage=SimpleNamespace(partition=lambda *_: partition))
    wanted = ListOffsetsPartition(partition_index=0, timestamp=NOW)

    def search() -> Steps[ListOffsetsPartitionResponse]:
        with suppress(TooLarge):
            yield from elsewhere(lambda: None)
        return ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.NONE, timestamp=NOW, offset=7)

    steps = _while_it_is_there(search(), wanted, partition, node)
    next(steps)
    failure = TooLarge("more than is taken")
    gone = ref(failure)
    gc.disable()
    try:
        with pytest.raises(StopIteration) as done:
            steps.throw(failure)
        assert done.value.value.offset == 7
        del steps, failure, done
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("made_again", [False, True])
def test_nothing_is_looked_for_in_a_partition_that_was_deleted_meanwhile(made_again: bool) -> None:
    """Its files are closed; one of its name has others."""
    partition: Any = SimpleNamespace(topic="t", index=0)
    found = [partition]
    node: Any = SimpleNamespace(storage=SimpleNamespace(partition=lambda *_: found[0]))
    wanted = ListOffsetsPartition(partition_index=0, timestamp=NOW)

    def search() -> Iterator[None]:
        yield
        yield
        raise AssertionError("it is gone")

    steps: Any = _while_it_is_there(search(), wanted, partition, node)  # type: ignore[arg-type]
    next(steps)
    next(steps)
    found[0] = SimpleNamespace(topic="t", index=0) if made_again else None
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
