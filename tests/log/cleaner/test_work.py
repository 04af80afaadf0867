"""A pass that waits for another thread, which unfolds a large batch: the loop goes on, whatever comes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c
from tests.log.cleaner_doubles import SETTINGS, cleaner_of, committed, table, until_idle
from tests.log.log_doubles import START, Node, append, delete_topic, run

from fencepost.log.cleaner.rewriting import UNFOLDED_AT_ONCE
from fencepost.log.cleaner.swapping import CLEANED
from fencepost.log.cleaner.work import Work
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import encode_batch

LARGE = {**SETTINGS, "segment_bytes": 8 * UNFOLDED_AT_ONCE, "max_message_bytes": 1 << 20}
SECONDS = 0.2
"""For which the other thread works, in virtual time."""


class SlowThreads:
    """In place of those of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = asyncio.Event()
        self.done: list[bytes | BaseException] = []
        """What they have returned or raised so far."""
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(self._loop, "run_in_executor", self._run)

    def _run(self, _: object, work: Callable[[], bytes]) -> asyncio.Future[bytes]:
        future = self._loop.create_future()
        self.begun.set()

        def finish() -> None:
            try:
                data = work()
            except ProtocolError as error:
                self.done.append(error)
                future.set_exception(error)
            else:
                self.done.append(data)
                future.set_result(data)

        self._loop.call_later(SECONDS, finish)
        return future


def large(key: bytes, value: bytes) -> bytes:
    records = [(START, key, value, ()), (START, b"filler", bytes(2 * UNFOLDED_AT_ONCE), ())]
    return encode_batch(records, compression=Compression.ZSTD)


async def written(*batches: bytes, **settings: Any) -> Node:
    node = Node(None, [("t", 0), ("other", 0)], **{**LARGE, **settings})
    for data in batches:
        append(node.partition, data)
    for value in (b"1", b"2"):
        append(node.of("other"), encode_batch([(START, b"k", value, ())]))
    for name in ("t", "other"):
        node.of(name).roll()
    await node.settled()
    return node


def test_it_goes_on_with_what_was_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        threads = SlowThreads(monkeypatch)
        node = await written(large(b"a", b"1"), large(b"b", b"2"), large(b"a", b"3"))
        await until_idle(node)
        assert len(threads.done) >= 3
        assert {key: value for key, value in table(committed(node.partition)).items() if key != b"filler"} == {
            b"a": b"3",
            b"b": b"2",
        }
        assert [record.key for record in committed(node.partition)] == [b"b", b"a", b"filler"]

    run(main())


def damaged(data: bytes) -> bytes:
    """Of a codec that says so only at the end of what it unfolds."""
    changed = bytearray(data)
    changed[-6] ^= 1
    changed[17:21] = crc32c(changed[21:]).to_bytes(4)
    return bytes(changed)


def test_what_cannot_be_unfolded_stops_its_own_log_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        threads = SlowThreads(monkeypatch)
        records = [(START, b"k", bytes(UNFOLDED_AT_ONCE // 5), ()) for _ in range(20)]
        unreadable = damaged(encode_batch(records, compression=Compression.GZIP))
        node = await written(
            unreadable, cleanup_policy="delete", check_max_records=1, check_max_bytes=1
        )  # where nobody looks at so many records
        for name in ("t", "other"):
            node.of(name).settings = node.of(name).settings.with_(cleanup_policy="compact")
        cleaner = await until_idle(node)
        assert [log.topic for log in cleaner.uncleanable] == ["t"]
        assert str(node.partition.directory) in caplog.text and "gzip data is damaged" in caplog.text
        assert [type(each) for each in threads.done] == [ProtocolError]
        assert [record.value for record in committed(node.of("other"))] == [b"2"]

    run(main())


@pytest.mark.parametrize("lacking", [MemoryError("no memory"), RuntimeError("can't start new thread")])
def test_where_no_thread_can_do_it_others_are_cleaned_and_it_is_tried_again(
    lacking: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits for a thread that is never begun, or that fails, would wait for ever, and all other logs with it."""

    async def main() -> None:
        loop, node = asyncio.get_running_loop(), await written(large(b"a", b"1"), large(b"a", b"2"))

        def lack(_: object, __: Callable[[], bytes]) -> asyncio.Future[bytes]:
            if isinstance(lacking, RuntimeError):
                raise lacking
            failed = loop.create_future()
            failed.set_exception(lacking)
            return failed

        with monkeypatch.context() as without:
            without.setattr(loop, "run_in_executor", lack)
            cleaner = cleaner_of(node)
            cleaner.start()
            await asyncio.sleep(60)
            assert [record.value for record in committed(node.of("other"))] == [b"2"]
        assert str(lacking) in caplog.text and not cleaner.uncleanable
        threads = SlowThreads(monkeypatch)
        node.clock.at += 1_000
        await asyncio.sleep(60)
        assert threads.done and [each.value for each in committed(node.partition) if each.key == b"a"] == [b"2"]
        cleaner.close()

    run(main())


@pytest.mark.parametrize(
    "meanwhile", ["the topic is deleted", "the records are deleted", "the node stops", "the cleaner stops"]
)
def test_whatever_comes_meanwhile(meanwhile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        threads = SlowThreads(monkeypatch)
        node = await written(large(b"a", b"1"), large(b"a", b"2"))
        cleaner = cleaner_of(node)
        cleaner.start()
        await threads.begun.wait()
        assert not threads.done
        if meanwhile == "the topic is deleted":
            node.names = [("other", 0)]
            delete_topic(node.storage, "t")
        elif meanwhile == "the records are deleted":
            node.partition.delete_records(node.partition.high_watermark)
            node.storage.checkpoint_soon()
            await node.settled()
        elif meanwhile == "the cleaner stops":
            cleaner.close()
        else:
            cleaner.abandon()
            node.kill()
        await asyncio.sleep(2 * SECONDS)
        assert threads.done and not cleaner.uncleanable
        cleaner.close()
        if meanwhile not in ("the topic is deleted", "the records are deleted"):
            assert [record.value for record in committed(node.partition) if record.key == b"a"] == [b"1", b"2"]
            await until_idle(node)
            assert table(committed(node.partition))[b"a"] == b"2"

    run(main())


def test_what_was_not_swapped_in_is_removed_when_the_cleaner_stops() -> None:
    async def main() -> None:
        node = await written(*(encode_batch([(START, b"a", value, ())]) for value in (b"1", b"2")))

        def cleaned() -> list[str]:
            return [name for name in node.disk.list(node.partition.directory) if name.endswith(CLEANED)]

        reading = node.partition.scan()
        next(reading)  # a pass waits for that with what it has written
        cleaner = cleaner_of(node)
        cleaner.start()
        await asyncio.sleep(60)
        assert cleaned()
        cleaner.close()
        assert not cleaned()

    run(main())


def test_what_a_pass_moved_is_what_it_moved_since_it_was_asked_last() -> None:
    """It pauses for that: were it told of the same bytes again, it would pause ever longer."""
    work = Work.__new__(Work)
    statistics = SimpleNamespace(bytes_mapped=0, bytes_read=0, bytes_written=0)
    work.cleaning, work.moved = cast(Any, SimpleNamespace(statistics=statistics)), 0
    moved = []
    for mapped, read, written_ in [(10, 0, 0), (10, 5, 2), (10, 5, 2), (11, 6, 3)]:
        statistics.bytes_mapped, statistics.bytes_read, statistics.bytes_written = mapped, read, written_
        moved.append(work.moves())
    assert moved == [10, 7, 0, 3]
