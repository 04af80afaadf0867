"""A start that may have found less than was there begins another leader epoch, and no epoch is ever begun twice."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.directories import node
from tests.broker.metadata.test_starts import LOG, METADATA, exchange, write
from tests.broker.wire import Client, fetch, new_topic, values
from tests.ports import free_port

from fencepost.broker.metadata import leader_epoch
from fencepost.broker.metadata.starts import Known
from fencepost.broker.running import running_broker
from fencepost.client import Consumer, Producer, TopicPartition
from fencepost.log.checkpoint_files import LEADER_EPOCHS
from fencepost.log.disk import LocalDisk
from fencepost.protocol.batch import headers
from fencepost.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def epochs(client: Client, topic: str) -> list[int]:
    """Of the batches, from the first to the last."""
    records = fetch(client, topic).records
    assert records is not None
    return [header.partition_leader_epoch for _, header in headers(records)]


def ends(client: Client, topic: str, epoch: int) -> tuple[int, int]:
    """The largest known epoch up to this one, and where it ended."""
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    answer = client.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]))
    found = answer.topics[0].partitions[0]
    return found.leader_epoch, found.end_offset


def cut(data: Path, topic: str, count: int) -> None:
    """What a power loss may leave of a partition: its first `count` records, each a batch."""
    path = data / f"{topic}-0" / f"{0:020}.log"
    end = next(at for at, header in headers(path.read_bytes()) if header.base_offset == count)
    with path.open("r+b") as file:
        file.truncate(end)


class Starts:
    """Starts of a node in one directory, each of which writes a record."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.topic = ""
        self.written: list[int] = []
        """The epochs in which that was."""

    def start(self, flush: str = "durable", *, rebuild: bool = False, killed: bool = False) -> None:
        with node(self.data, flush, rebuild=rebuild) as client:
            self.topic = self.topic or new_topic(client)
            write(client, self.topic, str(len(self.written)))
            self.written.append(epochs(client, self.topic)[-1])
            if killed:
                left = self.data.with_name(f"{self.data.name}-{len(self.written)}")
                shutil.copytree(self.data, left)
        if killed:
            self.data = left


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path / "data")


def test_where_nothing_can_be_lost_the_leader_stays(starts: Starts) -> None:
    for _ in range(3):
        starts.start()
    assert starts.written == [0, 0, 0]


def test_with_flush_os_each_start_but_the_first_begins_one(starts: Starts) -> None:
    for flush in ("os", "os", "durable", "durable", "os", "os"):
        starts.start(flush)
    first, second, after_os, durable, then_os, last = starts.written
    assert first == 0 < second < after_os
    assert after_os == durable == then_os < last, "it is what the run before has noted that counts"
    with node(starts.data, "os") as client:
        assert epochs(client, starts.topic) == starts.written
        assert ends(client, starts.topic, second) == (second, 2)
        assert fetch(client, starts.topic, leader_epoch=last).error_code != 0, "that leader is fenced"


def test_what_was_read_and_lost_is_told_by_the_epoch(starts: Starts) -> None:
    for killed in (False, False, True):
        starts.start("os", killed=killed)
    cut(starts.data, starts.topic, 2)
    before, lost = starts.written[-2:]
    starts.start("os")
    with node(starts.data, "os") as client:
        assert epochs(client, starts.topic) == [*starts.written[:2], starts.written[-1]]
        assert ends(client, starts.topic, lost) == (before, 2)


def test_a_commit_log_that_is_lost_begins_one(starts: Starts) -> None:
    starts.start()
    shutil.rmtree(starts.data / LOG)
    starts.start()
    starts.start()
    first, second, third = starts.written
    assert first < second == third


@pytest.mark.parametrize("without_log", [False, True])
def test_metadata_that_are_lost_begin_one_that_never_was(starts: Starts, without_log: bool) -> None:
    for _ in range(3):
        starts.start("os")
    (starts.data / METADATA).unlink()
    if without_log:
        shutil.rmtree(starts.data / LOG)
    starts.start("os", rebuild=True)
    starts.start("os")
    starts.start("os")
    assert starts.written == sorted(set(starts.written))


@pytest.mark.parametrize("flush", ["durable", "os"])
def test_metadata_of_an_earlier_start_begin_one_that_never_was(starts: Starts, flush: str) -> None:
    starts.start("os")
    starts.start("durable")
    shutil.copytree(starts.data, starts.data.parent / "copy")
    starts.start(flush)
    starts.start(flush)
    exchange(starts.data, METADATA, starts.data.parent / "copy")
    starts.start(flush)
    assert starts.written[-1] > max(starts.written[:-1])
    starts.start("durable")
    assert sorted(starts.written) == starts.written


def test_a_damaged_file_of_epochs_leaves_room_for_others(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(get=lambda _: None)
    storage: Any = SimpleNamespace(disk=LocalDisk(), path=tmp_path)
    for number, epoch in enumerate((2, 9, 2**31 - 1)):
        (tmp_path / f"t-{number}").mkdir()
        (tmp_path / f"t-{number}" / LEADER_EPOCHS).write_text(f"0\n1\n{epoch} 0\n")
    unknown = Known(0, 0, 0, 0, 0)
    assert leader_epoch.settle(store, storage, unknown, may_lack_records=True, rebuilt=True) == 10


def test_a_consumer_reads_what_took_the_place_of_what_it_had_read(tmp_path: Path) -> None:
    at = TopicPartition("t", 0)

    async def write_all(address: str, *records: bytes) -> None:
        async with Producer(address) as producer:
            for record in records:
                await (await producer.send("t", record, partition=0))

    async def read(consumer: Consumer, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                found += [record.value for record in await consumer.poll(1000)]
        return found

    async def scenario() -> None:
        address = f"127.0.0.1:{free_port()}"
        with running_broker(data=tmp_path / "data", flush="os", listen=address):
            await write_all(address, b"a", b"b", b"c", b"d")
            consumer = Consumer(bootstrap_servers=address, auto_offset_reset="earliest")
            consumer.assign([at])
            assert await read(consumer, 4) == [b"a", b"b", b"c", b"d"]
            shutil.copytree(tmp_path / "data", tmp_path / "left")
        cut(tmp_path / "left", "t", 2)
        with running_broker(data=tmp_path / "left", flush="os", listen=address):
            await write_all(address, b"C", b"D", b"E")
            assert await read(consumer, 3) == [b"C", b"D", b"E"]
            await consumer.close()

    asyncio.run(scenario())


def test_values_are_kept_over_epochs(starts: Starts) -> None:
    for _ in range(3):
        starts.start("os")
    with node(starts.data) as client:
        assert values(fetch(client, starts.topic)) == ["0", "1", "2"]
