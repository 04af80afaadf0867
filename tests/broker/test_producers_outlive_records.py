"""What a partition knows of producers outlives their records, over the wire and over restarts (facts §6.10, §6.11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    ended,
    fetch,
    init,
    killed_copy,
    list_offset,
    new_topic,
    on_the_loop,
    produce,
)

from fencepost.broker import running_broker
from fencepost.log.upkeep import upkeep
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteRecordsRequest, DescribeProducersRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.types import Milliseconds, ProducerIdAndEpoch
from fencepost.runtime import at_once

HOUR = 3_600_000
EXPIRATION = 24 * HOUR
PLAIN = ProducerIdAndEpoch.of(700, 3)
HOW = ["stopped", "killed"]


@contextmanager
def node(data: Path) -> Iterator[Client]:
    with running_broker(data=data, settings={**SETTINGS, "producer.id.expiration.ms": EXPIRATION}) as broker:
        client = Client(broker)
        yield client
        client.close()


def after(how: str, client: Client) -> Path:
    """The directory to go on with: as it is left by a stop, or a copy as kill -9 would have left it."""
    data = client.broker.node.storage.path
    return data if how == "stopped" else killed_copy(client.broker, data.with_name(f"{data.name}-"))


def hours_later(client: Client, hours: int) -> None:
    """What the node does now and then, at a later time."""
    broker = client.broker
    on_the_loop(
        broker, lambda: at_once(upkeep(broker.node.storage, Milliseconds(broker.node.clock.now() + hours * HOUR)))
    )


def known(client: Client, topic: str) -> dict[int, tuple[int, int]]:
    """Producer id -> epoch, and where its open transaction begins."""
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    found = client.ask(asked).topics[0].partitions[0].active_producers
    return {each.producer_id: (each.producer_epoch, each.current_txn_start_offset) for each in found}


def delete_records(client: Client, topic: str, before: int) -> None:
    of_topic = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=before)])
    answer = client.ask(DeleteRecordsRequest(topics=[of_topic], timeout_ms=1000)).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE


def write(client: Client, topic: str, pair: ProducerIdAndEpoch, sequence: int) -> int:
    written = produce(client, topic, batch("v", pair=pair, sequence=sequence, transactional=True), "t")
    assert written.error_code == ErrorCode.NONE, written
    return int(written.base_offset)


def remove_everything(client: Client, topic: str, removal: str) -> None:
    """Fill segments behind what is there, and have the older ones removed."""
    end = list_offset(client, topic, -1, committed=False).offset
    for _ in range(3):
        assert produce(client, topic, batch("x" * 700_000)).error_code == ErrorCode.NONE
    if removal == "retention":
        hours_later(client, 1)
    else:
        delete_records(client, topic, end + 2)
    assert list_offset(client, topic, -2).offset >= end
    assert fetch(client, topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.promise("360.state-outlives-records")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("removal", ["retention", "delete records"])
def test_producers_are_known_when_their_records_are_gone(tmp_path: Path, removal: str, how: str) -> None:
    data = tmp_path / "data"
    plain = [batch(f"{number}", pair=PLAIN, sequence=number) for number in range(6)]
    with node(data) as client:
        topic = new_topic(client, segment_bytes=str(1024 * 1024), retention_ms="1000")
        offsets = [produce(client, topic, each).base_offset for each in plain]
        pair = init(client, "t")
        write(client, topic, pair, 0)
        following = ended(client, "t", pair)
        remove_everything(client, topic, removal)
        expected = {PLAIN.producer_id: (3, -1), pair.producer_id: (following.producer_epoch, -1)}
        assert known(client, topic) == expected
        data = after(how, client)
    with node(data) as client:
        assert known(client, topic) == expected
        again = [produce(client, topic, each) for each in plain[1:]]
        assert [each.base_offset for each in again] == offsets[1:], "all five are remembered, and none is written"
        stale = produce(client, topic, batch("y", pair=ProducerIdAndEpoch.of(700, 2), sequence=0))
        assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        gap = produce(client, topic, batch("y", pair=PLAIN, sequence=8))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        late = produce(client, topic, batch("y", pair=pair, sequence=1, transactional=True), "t")
        assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert produce(client, topic, batch("6", pair=PLAIN, sequence=6)).error_code == ErrorCode.NONE


@pytest.mark.promise("360.state-outlives-records")
@pytest.mark.parametrize("how", HOW)
def test_they_expire_when_they_are_silent_but_not_while_their_transaction_is_open(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    with node(data) as client:
        topic, pair = new_topic(client), init(client, "t", timeout_ms=900_000)
        assert produce(client, topic, batch("x", pair=PLAIN, sequence=0)).error_code == ErrorCode.NONE
        opened = write(client, topic, pair, 0)
        hours_later(client, 23)
        assert sorted(known(client, topic)) == sorted([PLAIN.producer_id, pair.producer_id])
        hours_later(client, 25)
        assert known(client, topic) == {pair.producer_id: (pair.producer_epoch, opened)}
        data = after(how, client)
    with node(data) as client:
        for hours in (25, 10_000):
            hours_later(client, hours)
            assert known(client, topic) == {pair.producer_id: (pair.producer_epoch, opened)}
        write(client, topic, pair, 1)
        ended(client, "t", pair)
        hours_later(client, 25)
        assert known(client, topic) == {}
        assert fetch(client, topic).last_stable_offset == fetch(client, topic).high_watermark


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("commit", [False, True])
def test_an_open_transaction_without_data_is_in_the_snapshot(tmp_path: Path, commit: bool, how: str) -> None:
    """Its records were deleted, their segment with them; it still stands in the way, until it ends."""
    data = tmp_path / "data"
    with node(data) as client:
        topic, other = new_topic(client, segment_bytes=str(1024 * 1024)), new_topic(client)
        pair = init(client, "t", timeout_ms=900_000)
        assert write(client, topic, pair, 0) == 0
        assert add(client, "t", pair, other) == ErrorCode.NONE, "registered, and never written to"
        remove_everything(client, topic, "delete records")
    for _ in range(2):
        with node(data) as client:
            assert known(client, topic) == {pair.producer_id: (pair.producer_epoch, 0)}
            shown = fetch(client, topic, 3)
            assert (shown.last_stable_offset, shown.high_watermark, shown.records) == (3, 4, b"")
            on_disk = sorted(file.name for file in (data / f"{topic}-0").iterdir() if file.suffix == ".log")
            assert f"{0:020d}.log" not in on_disk, "the segment of its data is gone"
            data = after(how, client)
    with node(data) as client:
        write(client, topic, pair, 1)
        following = ended(client, "t", pair, commit=commit)
        assert known(client, topic) == {pair.producer_id: (following.producer_epoch, -1)}
        shown = fetch(client, topic, 4)
        assert shown.last_stable_offset == shown.high_watermark == 6
        assert fetch(client, other).high_watermark == 1, "its marker"
