"""Somebody who waits and fails harms nobody else; a half-done append or sync stops the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.log.log_doubles import Node, append, batch, run

from fencepost.log.callbacks import call_each
from fencepost.log.outcome import StorageFailed
from fencepost.log.partition import Partition
from fencepost.log.storage import Storage
from fencepost.protocol.types import Milliseconds, Offset


def breaks() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("place", range(4))
def test_the_others_are_called(place: int, caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    waiting: list[Callable[[], None]] = [lambda number=number: called.append(number) for number in range(3)]  # type: ignore[misc]
    call_each([*waiting[:place], breaks, *waiting[place:]])
    assert called == [0, 1, 2]
    (line,) = caplog.records
    assert line.exc_info is not None and line.exc_info[0] is ZeroDivisionError


def test_the_end_of_the_node_is_not_swallowed() -> None:
    def fails() -> None:
        raise StorageFailed("gone")

    with pytest.raises(StorageFailed):
        call_each([fails, breaks])


def node_that_notes(flush: str = "durable") -> tuple[Node, list[Exception]]:
    """A node with one partition, and what it said when it failed."""
    failures: list[Exception] = []
    node = Node(partitions=(), flush=flush)
    node.storage.close()
    node.failed, node.names = failures.append, [("t", 0)]
    node.start()
    return node, failures


@pytest.mark.parametrize("flush", ["durable", "os"])
def test_who_waits_for_records_or_durability_is_told_whoever_else_fails(flush: str) -> None:
    async def main() -> None:
        (node, failures), told = node_that_notes(flush), []
        for callback in (breaks, lambda: told.append("readable")):
            node.partition.when_readable(callback)
        appended = append(node.partition, batch())
        for callback in (breaks, lambda: told.append("durable")):
            try:
                node.storage.durability.when(appended.lsn, callback)
            except ZeroDivisionError:
                assert flush == "os", "it is durable: who asks is called at once"
        await asyncio.sleep(1)
        assert sorted(told) == ["durable", "readable"]
        following = append(node.partition, batch())
        await node.storage.durability.wait(following.lsn)
        assert failures == []

    run(main())


@pytest.mark.parametrize("what", ["applied", "journal"])
def test_an_append_that_is_left_half_done_stops_the_node(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the batch; nothing that is built on half of what follows from it may be acknowledged."""

    async def main() -> None:
        node, failures = node_that_notes()
        first = append(node.partition, batch())
        await node.storage.durability.wait(first.lsn)
        durable = node.storage.durability.lsn

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        if what == "applied":
            monkeypatch.setattr(Partition, "applied", broken)
        else:
            monkeypatch.setattr(Storage, "appended", broken)
        with pytest.raises(ZeroDivisionError):
            append(node.partition, batch())
        (failure,) = failures
        assert "t-0" in str(failure) and "ZeroDivisionError" in str(failure)
        monkeypatch.undo()
        append(node.partition, batch())
        await asyncio.sleep(1)
        reached = node.storage.durability.lsn, node.partition.high_watermark
        assert reached == (durable, 1), "nothing more is acknowledged"

    run(main())


@pytest.mark.parametrize("what", ["advance", "taken"])
def test_a_sync_that_is_not_accounted_for_stops_the_node(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        (node, failures), said = node_that_notes(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context.get("exception")))

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        owner, name = (Partition, "advance") if what == "advance" else (Storage, "_take_dirty")
        monkeypatch.setattr(owner, name, broken)
        appended = append(node.partition, batch())
        told: list[str] = []
        node.storage.durability.when(appended.lsn, lambda: told.append("durable"))
        await asyncio.sleep(1)
        assert len(failures) == len(said) == 1
        assert told == []

    run(main())


@pytest.mark.parametrize("by", ["DeleteRecords", "retention"])
def test_whoever_waits_is_told_that_the_log_starts_elsewhere(by: str) -> None:
    async def main() -> None:
        node = Node(retention_ms=1000, flush="os")
        partition = node.partition
        append(partition, batch(3))
        woken: list[int] = []
        partition.when_readable(lambda: woken.append(partition.log_start_offset))
        if by == "DeleteRecords":
            partition.delete_records(Offset(3))
        else:
            partition.retain(Milliseconds(node.clock.at + 10_000))
        assert woken == [3]

    run(main())
