"""The life of a broker: each end in each state, and what is left of the directory afterwards."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn, cast

import pytest
from tests.broker.directories import to_recover
from tests.log.log_doubles import append, batch, values_of
from tests.ports import free_port

from fencepost.broker import BadSetting, Broker
from fencepost.broker.network.connection import Connection
from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.disk import File, LocalDisk, SyncDone
from fencepost.log.storage import DirectoryUnusable


def broker(data: Path) -> Broker:
    return Broker(data=data, settings={"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2})


def write(broker: Broker, topic: str) -> None:
    broker.node.topics.create_at_once(topic, 1, {})


async def listening(broker: Broker) -> None:
    """Wait until it listens; it has recovered in the same turn, unless that is refused."""
    while not broker.port:  # noqa: ASYNC110 - there is nothing to be woken by
        await asyncio.sleep(0)


def test_a_bad_setting_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"no\.such\.setting"):
        Broker(data=tmp_path / "data", settings={"no.such.setting": 1})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("ends", [["stop"], ["crash"], ["stop", "crash", "stop"]])
def test_an_end_before_the_start_does_nothing(tmp_path: Path, ends: list[str]) -> None:
    async def run() -> None:
        one = broker(tmp_path / "data")
        for end in ends:
            await one.stop() if end == "stop" else one.crash()
        assert not (tmp_path / "data").exists()
        async with one:
            write(one, "t")

    asyncio.run(run())


@pytest.mark.parametrize("first", ["stop", "crash"])
@pytest.mark.parametrize("second", ["stop", "crash"])
def test_a_second_end_does_nothing(tmp_path: Path, first: str, second: str) -> None:
    async def run() -> None:
        one = await broker(tmp_path).start()
        write(one, "t")
        for end in (first, second):
            await one.stop() if end == "stop" else one.crash()
        async with broker(tmp_path) as again:
            assert "t" in again.node.topics.by_name

    asyncio.run(run())


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_who_connects_after_the_end_finds_nobody_and_the_port_is_free(tmp_path: Path, end: str) -> None:
    async def run() -> None:
        one = await Broker(data=tmp_path, listen=f"127.0.0.1:{free_port()}").start()
        await one.stop() if end == "stop" else one.crash()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(one.host, one.port)
        async with Broker(data=tmp_path, listen=one.bootstrap_servers) as again:
            assert again.port == one.port

    asyncio.run(run())


@pytest.mark.parametrize("gone", ["", "commit-log"])
def test_a_stop_that_the_disk_does_not_take_lets_go_of_the_directory_and_says_so(tmp_path: Path, gone: str) -> None:
    async def run() -> None:
        data, aside = tmp_path / "data", tmp_path / "aside"
        one = await broker(data).start()
        write(one, "t")
        (data / gone).rename(aside)
        await one.stop()
        assert one.failed is not None and "the last checkpoint" in str(one.failed.result())
        await one.stop()
        aside.rename(data / gone)
        async with broker(data) as again:
            assert "t" in again.node.topics.by_name

    asyncio.run(run())


def test_a_stop_ends_where_a_sync_that_is_under_way_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync_in_vain(_: LocalDisk, __: Sequence[File], done: SyncDone) -> None:
        asyncio.get_running_loop().call_later(0.05, done, OSError(errno.EIO, "Input/output error"))

    async def run() -> None:
        one = await broker(tmp_path).start()
        monkeypatch.setattr(LocalDisk, "sync", sync_in_vain)
        write(one, "t")
        async with asyncio.timeout(30):
            await one.stop()
        assert one.failed is not None and "did not take a sync" in str(one.failed.result())
        monkeypatch.undo()
        async with broker(tmp_path) as again:
            assert "t" in again.node.topics.by_name

    asyncio.run(run())


def test_two_ends_at_once_end_it_once(tmp_path: Path) -> None:
    async def run() -> None:
        one = await broker(tmp_path).start()
        await asyncio.gather(one.stop(), one.stop())
        async with broker(tmp_path):
            pass

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(12))
def test_an_interrupted_stop_lets_go_of_the_directory(tmp_path: Path, turns: int) -> None:
    async def run() -> None:
        one = await broker(tmp_path).start()
        write(one, "t")
        stopping = asyncio.ensure_future(one.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await one.stop()  # where it was interrupted before it had begun
        async with broker(tmp_path) as again:
            assert "t" in again.node.topics.by_name

    asyncio.run(run())


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("turns", range(0, 24, 2))
def test_an_interrupted_start_lets_go_of_the_directory(tmp_path: Path, turns: int, listens: bool) -> None:
    async def run() -> None:
        async with broker(tmp_path) as one:
            write(one, "t")
            assert await one.node.ensure_coordinator("__transaction_state")
        other = broker(tmp_path)
        starting = asyncio.ensure_future(other.start())
        if listens:
            await listening(other)
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await other.stop()
        async with broker(tmp_path) as again:
            assert "t" in again.node.topics.by_name

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(2))
def test_an_interrupted_start_leaves_nothing_that_it_recovered_to_the_next(tmp_path: Path, turns: int) -> None:
    async def run() -> None:
        one = await broker(tmp_path).start()
        write(one, "t")
        assert await one.node.ensure_coordinator("__transaction_state")
        partition = one.node.storage.partition("t", 0)
        assert partition is not None
        await one.node.storage.durability.wait(append(partition, batch(tag="kept")).lsn)
        one.crash()
        assert to_recover(tmp_path) > 0
        other = broker(tmp_path)
        starting = asyncio.ensure_future(other.start())
        await listening(other)
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert starting.cancelled()
        assert to_recover(tmp_path) == 0
        async with broker(tmp_path) as again:
            recovered = again.node.storage.partition("t", 0)
            assert recovered is not None and values_of(recovered) == [b"kept"]

    asyncio.run(run())


def test_a_broker_is_started_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as one:
            with pytest.raises(AssertionError, match="once"):
                await one.start()
            assert one.node.topics.by_name == {}

    asyncio.run(run())


def test_after_a_start_that_fails_at_its_end_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: LogCleaner) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    async def run() -> None:
        one = broker(tmp_path)
        monkeypatch.setattr(LogCleaner, "start", fail)
        with pytest.raises(OSError, match="Input/output error"):
            await one.start()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(one.host, one.port)

    asyncio.run(run())


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_a_node_that_has_ended_is_not_looked_after(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do timers keep it."""
    looked: list[int] = []

    def tick(_: TransactionCoordinator, now: int) -> Iterator[None]:
        looked.append(now)
        return iter(())

    async def run() -> None:
        monkeypatch.setattr(TransactionCoordinator, "tick", tick)
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 5}
        one = await Broker(data=tmp_path, settings=settings).start()
        while not looked:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)
        await one.stop() if end == "stop" else one.crash()
        looked.clear()
        await asyncio.sleep(0.1)
        assert looked == []

    asyncio.run(run())


def test_a_stop_lets_each_connection_send_what_is_ready_before_it_breaks_it_off(tmp_path: Path) -> None:
    async def run() -> None:
        one, ends, durable = await broker(tmp_path).start(), list[str](), list[bool]()
        write(one, "t")
        node = one.node

        class Noted:
            def close(self) -> None:
                ends.append("close")

            def abort(self) -> None:
                ends.append("abort")
                durable.append(node.storage.durability.lsn == node.storage.last_appended)

        node.connections[cast(Connection, Noted())] = None
        await one.stop()
        assert (ends, durable) == (["close", "abort"], [True])

    asyncio.run(run())


def test_where_another_one_runs_nothing_is_opened(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as one:
            write(one, "t")
            with pytest.raises(DirectoryUnusable):
                await broker(tmp_path).start()
            write(one, "u")

    asyncio.run(run())


def test_before_the_start_there_is_no_node(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not started"):
        _ = broker(tmp_path).node
