"""A long segment whose index leads astray: its readers wait for the index that is made again, and nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.interrupted import held
from tests.broker.wire import NOW, SETTINGS, Client, batch, fetch, fetch_request, new_topic, produce, values

from fencepost.broker import running_broker
from fencepost.log import segment_indexes
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest, ListOffsetsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic

BATCHES = 45
PADDING = "x" * 30_000


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, str]]:
    """A topic whose first segment, of 34 batches, has indexes full of something else."""
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client, segment_bytes=str(1 << 20))
        for number in range(BATCHES):
            assert produce(client, topic, batch(f"{number} {PADDING}", timestamp=NOW + number)).error_code == 0
        client.close()
    assert len(list((tmp_path / f"{topic}-0").glob("*.log"))) == 2
    for suffix in ("index", "timeindex"):
        file = tmp_path / f"{topic}-0" / f"{0:020d}.{suffix}"
        file.write_bytes(b"\x11" * file.stat().st_size)
    monkeypatch.setattr(segment_indexes, "HEADERS_AT_ONCE", 10)
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        yield client, topic
        client.close()


def by_time(topic: str, timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def test_others_are_served_while_a_reader_waits(damaged: tuple[Client, str], monkeypatch: pytest.MonkeyPatch) -> None:
    client, topic = damaged
    other = Client(client.broker)
    elsewhere = new_topic(other)
    with held(client.broker, monkeypatch) as interrupted:
        client.send(fetch_request(client, topic, 20, max_bytes=1))
        interrupted(1)
        assert produce(other, elsewhere, batch("well")).error_code == ErrorCode.NONE
        assert values(fetch(other, elsewhere)) == ["well"]
        assert fetch(other, topic, BATCHES - 1).error_code == ErrorCode.NONE, "another segment"
    assert values(client.receive().responses[0].partitions[0]) == [f"20 {PADDING}"]
    other.close()


@pytest.mark.parametrize(("timestamp", "offset"), [(NOW + 20, 20), (-3, BATCHES - 1)])
def test_a_time_is_found(damaged: tuple[Client, str], timestamp: int, offset: int) -> None:
    client, topic = damaged
    assert client.ask(by_time(topic, timestamp), 7).topics[0].partitions[0].offset == offset


@pytest.mark.parametrize("by_fetch", [True, False])
def test_a_topic_that_is_deleted_meanwhile_is_not_there(
    damaged: tuple[Client, str], by_fetch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, topic = damaged
    other = Client(client.broker)
    with held(client.broker, monkeypatch) as interrupted:
        if by_fetch:
            client.send(fetch_request(client, topic, 20, max_bytes=1))
        else:
            client.send(by_time(topic, NOW + 20), version=7)
        interrupted(1)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000)
        assert other.ask(deletion).responses[0].error_code == ErrorCode.NONE
    answer = client.receive()
    (found,) = (answer.responses if by_fetch else answer.topics)[0].partitions
    assert found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    other.close()
