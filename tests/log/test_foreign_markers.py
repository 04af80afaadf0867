"""Control batches on disk that are half, damaged or of somebody else: noticed, said, and harmless."""

from __future__ import annotations

import logging

import pytest
from tests.log.cleaner_doubles import SETTINGS, until_idle
from tests.log.log_doubles import ROOT, START, Node, append, append_transactional, batch, bytes_of, end, marker, run

from fencepost.protocol.batch import HEADER_SIZE, stamp
from fencepost.protocol.records import decode_batch, encode_batch, encode_record, seal
from fencepost.protocol.types import Epoch, LeaderEpoch, Offset, ProducerId

FILE = ROOT / "t-0" / f"{0:020d}.log"
KEY, VALUE = b"\0\0\0\1", b"\0\0\0\0\0\0"


@pytest.fixture(autouse=True)
def what_the_log_says(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever level others have set."""
    caplog.set_level(logging.WARNING, "fencepost")


def control(key: bytes | None, value: bytes | None, producer: tuple[int, int] = (8, 0)) -> bytes:
    """A control batch with this record and a right checksum."""
    body = encode_record(0, 0, key, value, ())
    return seal(
        body,
        1,
        START,
        START,
        producer_id=ProducerId(producer[0]),
        producer_epoch=Epoch(producer[1]),
        transactional=True,
        control=True,
    )


def put(node: Node, data: bytes, offset: int) -> None:
    """Write bytes behind everything, as another system or a failing disk might have left them."""
    batch = bytearray(data)
    stamp(batch, 0, Offset(offset), LeaderEpoch(0))
    file = node.disk.open(FILE)
    file.pwrite(bytes(batch), file.size())
    node.disk.sync_now([file])


FOREIGN = {
    "another type": control(b"\0\0\0\5", VALUE),
    "a type that nobody has": control(b"\0\0\x7f\xff", b""),
    "half a key": control(b"\0\0\0", VALUE),
    "no key": control(None, VALUE),
    "half a value": control(KEY, b"\0\0\0"),
    "no value": control(KEY, None),
    "another producer's": control(b"\0\0\0\4", VALUE, (77, 5)),
    "nobody's": control(b"\0\0\0\3", VALUE, (-1, -1)),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_no_marker_is_passed_over_and_said(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a commit log, and so as Apache Kafka leaves a directory."""

    async def main() -> None:
        node = Node(flush="os")
        append_transactional(node.partition, (8, 0, 0))
        put(node, FOREIGN[what], 1)
        append_and_find(node)

    def append_and_find(node: Node) -> None:
        node.kill()
        partition = node.partition
        assert partition.log_end_offset == 2, "it stays where it is"
        assert partition.producers.open_transactions() == [(8, 0)], "it ends nothing, and begins nothing"
        assert list(partition.producers.entries) == [8]
        assert partition.last_stable_offset == 0
        append_transactional(partition, (8, 0, 1))
        end(partition, 8, 1, True)
        assert partition.last_stable_offset == partition.high_watermark == 4
        node.kill()
        assert node.partition.last_stable_offset == 4

    run(main())
    said = [each.getMessage() for each in caplog.records]
    assert said and all("no transaction marker" in line and "topic=t partition=0 offset=1" in line for line in said)


def test_a_marker_of_a_later_version_is_understood() -> None:
    """What a later version has more stands behind what is known."""

    async def main() -> None:
        node = Node(flush="os")
        append_transactional(node.partition, (8, 0, 0))
        put(node, control(b"\0\x09\0\1more", b"\0\x09\0\0\0\0more"), 1)
        node.kill()
        assert node.partition.producers.open_transactions() == []
        assert node.partition.last_stable_offset == 2

    run(main())


def test_a_torn_marker_is_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Node(flush="os")
        append_transactional(node.partition, (8, 0, 0))
        put(node, marker(8, 1, True)[:-5], 1)
        node.kill()
        assert node.partition.producers.open_transactions() == [(8, 0)]
        end(node.partition, 8, 1, True)
        assert (node.partition.log_end_offset, node.partition.last_stable_offset) == (2, 2)

    run(main())
    (said,) = [each.getMessage() for each in caplog.records]
    assert "cut a log" in said and "topic=t partition=0 offset=1 bytes=73" in said


@pytest.mark.parametrize("flush", ["durable", "os"])
@pytest.mark.parametrize("how", ["kill", "start"])
def test_a_log_that_lost_what_was_synced_is_not_served(flush: str, how: str) -> None:
    """Half a marker after a clean stop: nothing could be right after that, so the start says what is missing."""

    async def main() -> None:
        node = Node(flush=flush)
        append_transactional(node.partition, (8, 0, 0))
        end(node.partition, 8, 1, True)
        await node.settled()
        node.storage.close()
        file = node.disk.open(FILE)
        size = file.size()
        file.truncate(size - 5)
        getattr(node, how)()
        told = node.storage.offline["t", 0].reason
        assert f"has {size - 5} bytes and once had {size}, which were synced" in told

    run(main())


def test_a_plain_batch_behind_a_foreign_one_is_kept() -> None:
    async def main() -> None:
        node = Node(flush="os")
        put(node, FOREIGN["half a key"], 0)
        put(node, batch(producer=(9, 0, 0)), 1)
        node.kill()
        assert (node.partition.log_end_offset, list(node.partition.producers.entries)) == (2, [9])
        append(node.partition, batch(producer=(9, 0, 1)))

    run(main())


@pytest.mark.parametrize("what", ["half a key", "no key", "half a value", "no value"])
def test_what_is_no_marker_stays_where_a_log_is_cleaned(what: str) -> None:
    """Nobody knows whether it is superseded."""

    async def main() -> None:
        node = Node(flush="os", **SETTINGS)
        append(node.partition, encode_batch([(START, b"k", b"old", ())]))
        put(node, FOREIGN[what], 1)
        node.kill()
        append(node.partition, encode_batch([(START, b"k", b"new", ())]))
        node.partition.roll()
        node.storage.checkpoint_soon()
        await node.settled()
        cleaner = await until_idle(node)
        assert cleaner.metrics.passes > 0
        foreign, new = bytes_of(node.partition)
        assert foreign[HEADER_SIZE:] == FOREIGN[what][HEADER_SIZE:]
        assert [record.value for record in decode_batch(new)] == [b"new"]

    run(main())
