"""Fetch (1), facts §8.1: what a reader of either isolation is shown, and when a waiting one is answered."""

from __future__ import annotations

import time

import pytest
from tests.broker.interrupted import held
from tests.broker.wire import (
    MEGABYTE,
    Client,
    batch,
    clients,
    ended,
    fetch,
    fetch_request,
    init,
    new_topic,
    produce,
    produce_request,
    values,
    wait_until,
)

from fencepost.broker.network.limits import MOST_READ
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest, FetchRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchTopic, PartitionData
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()
VERSIONS = range(4, 19)


def write(
    client: Client, topic: str, transactional_id: str, pair: ProducerIdAndEpoch, value: str, sequence: int = 0
) -> None:
    data = batch(value, pair=pair, sequence=sequence, transactional=True)
    assert produce(client, topic, data, transactional_id).error_code == ErrorCode.NONE


@pytest.mark.promise("2014.read-committed")
@pytest.mark.parametrize("version", VERSIONS)
def test_read_committed_sees_what_is_committed(client: Client, version: int) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("plain"))
    pair = init(client, "t")
    write(client, topic, "t", pair, "committed")
    pair = ended(client, "t", pair)
    write(client, topic, "t", pair, "aborted")
    pair = ended(client, "t", pair, commit=False)
    write(client, topic, "t", pair, "open")
    produce(client, topic, batch("behind"))

    shown = fetch(client, topic, version=version)
    assert values(shown) == ["plain", "committed"]
    assert (shown.high_watermark, shown.last_stable_offset) == (7, 5)
    assert shown.aborted_transactions is not None
    assert [(entry.producer_id, entry.first_offset) for entry in shown.aborted_transactions] == [(pair.producer_id, 3)]

    everything = fetch(client, topic, committed=False, version=version)
    assert everything.aborted_transactions is None, "whoever reads uncommitted is told of no aborts"
    assert values(everything) == ["plain", "committed", "aborted", "open", "behind"]
    assert (everything.high_watermark, everything.last_stable_offset) == (7, 5)

    ended(client, "t", pair)
    assert values(fetch(client, topic, version=version)) == ["plain", "committed", "open", "behind"]


def test_the_oldest_open_transaction_holds_the_last_stable_offset(client: Client) -> None:
    topic = new_topic(client)
    first, second = init(client, "first"), init(client, "second")
    write(client, topic, "first", first, "a")
    write(client, topic, "second", second, "b")
    assert fetch(client, topic).last_stable_offset == 0
    ended(client, "second", second)
    assert fetch(client, topic).last_stable_offset == 0
    ended(client, "first", first, commit=False)
    shown = fetch(client, topic)
    assert (shown.last_stable_offset, shown.high_watermark) == (4, 4)
    assert values(shown) == ["b"]


def test_only_aborts_that_concern_the_answer_are_told(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    for number in range(3):
        write(client, topic, "t", pair, f"{number}")
        pair = ended(client, "t", pair, commit=False)
    told = fetch(client, topic, 4).aborted_transactions
    assert told is not None
    assert [entry.first_offset for entry in told] == [4]


def test_between_last_stable_offset_and_high_watermark_there_is_nothing_and_no_error(client: Client) -> None:
    topic = new_topic(client)
    write(client, topic, "t", init(client, "t"), "open")
    produce(client, topic, batch("behind"))
    for offset in (0, 1, 2):
        shown = fetch(client, topic, offset)
        assert (shown.error_code, shown.records) == (ErrorCode.NONE, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_out_of_range(client: Client, version: int) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a"))
    for offset in (2, 100, -1):
        refused = fetch(client, topic, offset, version=version)
        assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (refused.high_watermark, refused.last_stable_offset, refused.records) == (-1, -1, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topics_and_partitions(client: Client, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = fetch(client, "unknown", version=version)
    assert (refused.error_code, refused.records) == (unknown, b""), "records are never null"
    topic = new_topic(client)
    refused = fetch(client, topic, partition=1, version=version)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(9, 19))
def test_leader_epochs_are_compared(client: Client, version: int) -> None:
    topic = new_topic(client)
    partition = client.broker.node.storage.partition(topic, 0)
    assert partition is not None
    now = partition.leader_epoch
    assert fetch(client, topic, leader_epoch=now, version=version).error_code == ErrorCode.NONE
    newer = fetch(client, topic, leader_epoch=now + 1, version=version)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    if now > 0:
        older = fetch(client, topic, leader_epoch=now - 1, version=version)
        assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_the_first_batch_comes_however_large_it_is(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a" * 5000))
    produce(client, topic, batch("b" * 5000))
    assert values(fetch(client, topic, max_bytes=10)) == ["a" * 5000]
    assert values(fetch(client, topic, 1, max_bytes=10)) == ["b" * 5000]


def test_one_answer_has_room_for_so_many_bytes(client: Client) -> None:
    topic = new_topic(client, 3)
    for value in ("x" * 3000, "y"):
        written = client.ask(produce_request(client, topic, [batch(value)] * 3))
        assert {one.error_code for one in written.responses[0].partition_responses} == {ErrorCode.NONE}
    partitions = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(3)]
    wanted = FetchTopic(topic_id=client.broker.node.topics.by_name[topic].topic_id, partitions=partitions)
    answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=4000, topics=[wanted]))
    sizes = [len(each.records) for each in answer.responses[0].partitions]
    assert 3000 <= sizes[0] <= sum(sizes) <= 4000


def test_who_asks_for_much_lets_others_go_first_and_gets_it_bit_by_bit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one step 57 MB took 50 ms, and ten who asked for as much at once half a second."""
    topic, other, read = new_topic(client), Client(client.broker), 0
    for _ in range(20):
        assert produce(client, topic, batch("x" * 900_000)).error_code == ErrorCode.NONE
    with held(client.broker, monkeypatch) as interrupted:
        client.send(fetch_request(client, topic, max_bytes=1 << 30))
        interrupted(1)
        assert len(values(fetch(other, topic, max_bytes=MEGABYTE))) == 1
        assert values(fetch(other, topic, 20, max_bytes=1 << 30)) == []
    sizes = [len(client.receive().responses[0].partitions[0].records)]
    while (read := read + sizes[-1] // 900_000) < 20:
        sizes.append(len(fetch(client, topic, read, max_bytes=1 << 30).records or b""))
    assert read == 20 and sizes[0] > MOST_READ // 2 and max(sizes) <= MOST_READ
    other.close()


# Waiting


def test_a_fetch_waits_for_something_to_read(client: Client) -> None:
    topic = new_topic(client)
    reader = Client(client.broker)
    reader.send(fetch_request(client, topic, wait_ms=20_000))
    assert reader.silent_for(0.05)
    produce(client, topic, batch("a"))
    assert values(reader.receive().responses[0].partitions[0]) == ["a"]
    reader.close()


def test_a_fetch_waits_no_longer_than_it_said(client: Client) -> None:
    topic = new_topic(client)
    began = time.monotonic()
    assert values(fetch(client, topic, wait_ms=80)) == []
    assert time.monotonic() - began >= 0.08


def test_a_fetch_waits_for_as_many_bytes_as_it_said(client: Client) -> None:
    topic = new_topic(client)
    reader = Client(client.broker)
    reader.send(fetch_request(client, topic, wait_ms=20_000, min_bytes=400))
    produce(client, topic, batch("a" * 100))
    assert reader.silent_for(0.05)
    produce(client, topic, batch("b" * 300))
    assert values(reader.receive().responses[0].partitions[0]) == ["a" * 100, "b" * 300]
    reader.close()


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_answers_whoever_waits_for_what_is_committed(client: Client, commit: bool) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    reader = Client(client.broker)
    reader.send(fetch_request(client, topic, wait_ms=20_000))
    write(client, topic, "t", pair, "a")
    assert reader.silent_for(0.05), "an open transaction is nothing to read"
    ended(client, "t", pair, commit=commit)
    shown = reader.receive().responses[0].partitions[0]
    assert values(shown) == (["a"] if commit else [])
    assert shown.last_stable_offset == 2
    reader.close()


def test_an_error_is_not_waited_for(client: Client) -> None:
    topic = new_topic(client)
    began = time.monotonic()
    assert fetch(client, topic, 7, wait_ms=20_000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, "unknown", wait_ms=20_000).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("version", [12, 18])
def test_a_topic_that_is_deleted_while_somebody_waits(client: Client, version: int) -> None:
    """Its files are closed by then: nothing may be read through them."""
    topic, admin = new_topic(client, file_delete_delay_ms="0"), Client(client.broker)
    produce(client, topic, batch("x"))
    client.send(fetch_request(client, topic, wait_ms=20_000, min_bytes=100_000), version=version)
    assert client.silent_for(0.05)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000)
    assert admin.ask(deletion).responses[0].error_code == ErrorCode.NONE
    wait_until("the files are gone", lambda: not list(client.broker.node.storage.path.glob(f"{topic}-*")))
    fetched = client.receive().responses[0].partitions[0]
    assert (fetched.error_code, fetched.high_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def elsewhere(client: Client, request: FetchRequest, *topics: str) -> FetchRequest:
    """The request with partition 0 of other topics in front."""
    request.topics = [fetch_request(client, topic).topics[0] for topic in topics] + request.topics
    return request


@pytest.mark.parametrize("version", [12, 18])
def test_a_topic_that_is_unknown_waits_with_the_others_and_comes_last(client: Client, version: int) -> None:
    topic, reader = new_topic(client), Client(client.broker)
    reader.send(elsewhere(client, fetch_request(client, topic, wait_ms=20_000), "unknown"), version=version)
    assert reader.silent_for(0.05)
    produce(client, topic, batch("a"))
    first, second = reader.receive().responses
    assert values(first.partitions[0]) == ["a"]
    assert second.partitions[0].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    reader.close()


def test_a_wait_for_more_than_an_answer_may_have_is_one_for_that(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a"))
    request = fetch_request(client, topic, wait_ms=20_000, min_bytes=100_000)
    request.max_bytes = 60
    assert values(client.ask(request).responses[0].partitions[0]) == ["a"]


def test_what_is_waited_for_is_what_the_reader_may_see(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("seen"))
    pair = init(client, "t")
    write(client, topic, "t", pair, "x" * 1000)
    reader = Client(client.broker)
    reader.send(fetch_request(client, topic, wait_ms=20_000, min_bytes=500))
    assert reader.silent_for(0.05), "what is open does not count"
    assert values(fetch(client, topic, committed=False, wait_ms=20_000, min_bytes=500)) == ["seen", "x" * 1000]
    ended(client, "t", pair)
    assert values(reader.receive().responses[0].partitions[0]) == ["seen", "x" * 1000]
    reader.close()


def test_no_more_is_counted_of_a_partition_than_it_may_give(client: Client) -> None:
    topic, other = new_topic(client), new_topic(client)
    produce(client, topic, batch("a" * 1000))
    request = elsewhere(client, fetch_request(client, other, wait_ms=20_000, min_bytes=1200), topic)
    request.topics[0].partitions[0].partition_max_bytes = 1000
    request.topics[0].partitions[0].fetch_offset = 0
    reader = Client(client.broker)
    reader.send(request)
    produce(client, topic, batch("b" * 1000))
    assert reader.silent_for(0.05)
    produce(client, other, batch("c" * 200))
    first, second = reader.receive().responses
    assert (values(first.partitions[0]), values(second.partitions[0])) == (["a" * 1000], ["c" * 200])
    reader.close()


def test_a_new_segment_ends_a_wait(client: Client) -> None:
    large = "a" * 1_048_000
    topic = new_topic(client, segment_bytes="1048576")
    produce(client, topic, batch(large))
    reader = Client(client.broker)
    reader.send(fetch_request(client, topic, 1, wait_ms=20_000, min_bytes=2_000_000))
    assert reader.silent_for(0.05)
    produce(client, topic, batch("b" * 1000))
    assert values(reader.receive().responses[0].partitions[0]) == ["b" * 1000]
    assert values(fetch(client, topic, wait_ms=20_000, min_bytes=2_000_000)) == [large]
    reader.close()


def test_who_is_past_what_it_may_see_does_not_wait(client: Client) -> None:
    topic = new_topic(client)
    write(client, topic, "t", init(client, "t"), "open")
    produce(client, topic, batch("behind"))
    began = time.monotonic()
    assert values(fetch(client, topic, 1, wait_ms=20_000)) == values(fetch(client, topic, 2, wait_ms=20_000)) == []
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_partition_named_twice_the_last_word_counts(client: Client, version: int) -> None:
    topic, other = new_topic(client), new_topic(client)
    for name in (topic, other):
        produce(client, name, batch("a"))
        produce(client, name, batch("b"))
    answer = client.ask(elsewhere(client, fetch_request(client, topic, 1), topic, other), version)
    assert [values(one.partitions[0]) for one in answer.responses] == [["b"], ["a", "b"]]


def test_the_room_that_a_cut_off_batch_would_take_is_nobody_elses(client: Client) -> None:
    """Apache Kafka sends its beginning, which readers throw away: here it is left out, but counted."""
    topic, other, third = new_topic(client), new_topic(client), new_topic(client)
    for name in (topic, other, third):
        produce(client, name, batch("a" * 1000))
        produce(client, name, batch("b" * 1000))
    request = elsewhere(client, fetch_request(client, other), topic)
    request.max_bytes = 1900
    assert [values(one.partitions[0]) for one in client.ask(request).responses] == [["a" * 1000], []]
    request = elsewhere(client, fetch_request(client, third), topic, other)
    request.max_bytes = 2500
    for one in request.topics:
        one.partitions[0].partition_max_bytes = 1100
    assert [values(one.partitions[0]) for one in client.ask(request).responses] == [["a" * 1000], ["a" * 1000], []]


def astray(client: Client, topic: str, offset: int, last_epoch: int, wait_ms: int = 10_000) -> PartitionData:
    """The answer to a reader that says under which leader it has read up to there."""
    request = fetch_request(client, topic, offset, wait_ms=wait_ms)
    request.topics[0].partitions[0].last_fetched_epoch = last_epoch
    answered: PartitionData = client.ask(request).responses[0].partitions[0]
    return answered


def test_a_reader_that_has_read_what_is_not_there_is_told_where_it_parted(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a", "b"))
    epoch = client.broker.node.storage.partition(topic, 0).leader_epoch  # type: ignore[union-attr]
    assert values(astray(client, topic, 1, epoch)) == ["a", "b"]
    at_the_end = astray(client, topic, 2, epoch, wait_ms=0)
    assert (at_the_end.error_code, at_the_end.diverging_epoch, at_the_end.records) == (ErrorCode.NONE, None, b"")
    found = astray(client, topic, 5, epoch)
    assert (found.error_code, found.high_watermark, found.records) == (ErrorCode.NONE, 2, b"")
    assert found.diverging_epoch == EpochEndOffset(epoch=epoch, end_offset=2)
    assert astray(client, topic, 1, epoch + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_isolation_shows_nothing(client: Client, version: int) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a"))
    request = fetch_request(client, topic)
    request.isolation_level = 2
    answer = client.ask(request, version)
    shown = [one.error_code for topic in answer.responses for one in topic.partitions]
    assert answer.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if version >= 7 else 0)
    assert shown == ([] if version >= 13 else [ErrorCode.UNKNOWN_SERVER_ERROR])


def test_an_unknown_isolation_of_nothing_that_is_there(client: Client) -> None:
    request = fetch_request(client, "unknown")
    request.isolation_level = 2
    assert client.ask(request).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_less_than_no_bytes_is_an_error_where_there_are_some(client: Client) -> None:
    topic, other = new_topic(client), new_topic(client)
    assert fetch(client, topic, max_bytes=-1).error_code == ErrorCode.NONE
    for name in (topic, other):
        produce(client, name, batch("a"))
    assert fetch(client, topic, max_bytes=-1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert fetch(client, topic, 7, max_bytes=-1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, max_bytes=0).error_code == ErrorCode.NONE
    request = elsewhere(client, fetch_request(client, other), topic)
    request.max_bytes = -1
    first, second = client.ask(request).responses
    assert first.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert values(second.partitions[0]) == ["a"], "the room that is left is never less than none"


def test_two_partitions_of_no_topic_fail_the_request(client: Client) -> None:
    for count, error in ((1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_SERVER_ERROR)):
        request = fetch_request(client, "unknown")
        wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(count)]
        request.topics = [FetchTopic(partitions=wanted)]
        assert client.ask(request).error_code == error


def test_any_leader_epoch_below_zero_means_none(client: Client) -> None:
    assert fetch(client, new_topic(client), leader_epoch=-2).error_code == ErrorCode.NONE
