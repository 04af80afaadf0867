"""Interceptors see each record once before and once after, and whatever they do loses none."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.client.test_producer import shown, simulate

from fencepost.client import Producer, ProducerRecord, RecordMetadata
from fencepost.simulation.world import ADDRESS, World


class Watcher:
    """Notes what it is told."""

    def __init__(self, mark: bytes = b"") -> None:
        self.mark = mark
        self.sent: list[ProducerRecord] = []
        self.told: list[tuple[int, type[Exception] | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(value=(record.value or b"") + self.mark)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.told.append((metadata.offset, None if error is None else type(error)))


class Raising:
    """Fails at everything."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:  # noqa: ARG002
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:  # noqa: ARG002
        raise RuntimeError("on_acknowledgement")


class Cancelled(Raising):
    """Asks for the result of something that was cancelled."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:  # noqa: ARG002
        raise asyncio.CancelledError

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:  # noqa: ARG002
        raise asyncio.CancelledError


class Forgetful(Raising):
    """Returns nothing."""

    def on_send(self, record: ProducerRecord) -> Any:  # noqa: ARG002
        return None


@pytest.mark.parametrize("bad", [Raising, Cancelled, Forgetful])
@pytest.mark.parametrize("many", [True, False])
def test_each_changes_what_the_one_before_it_gave_and_one_that_raises_is_said_once_and_changes_nothing(
    bad: type[Raising], many: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = Watcher(b"a"), Watcher(b"b")

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, interceptors=[first, bad(), last]) as writer:
            if many:
                found = await (await writer.send_many("t", [b"0", b"1"], partition=0))
                assert found.records == 2
            else:
                for value in (b"0", b"1"):
                    await writer.send_and_wait("t", value, partition=0)
        assert await shown(world) == [b"0ab", b"1ab"]

    with caplog.at_level(logging.ERROR):
        simulate(scenario)
    assert [record.value for record in last.sent] == [b"0a", b"1a"]
    assert first.told == last.told == [(0, None), (1, None)]
    assert [message.split()[0] for message in caplog.messages] == ["on_send", "on_acknowledgement"]


def test_of_several_that_raise_each_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        interceptors = [Raising(), Raising()]
        async with Producer(ADDRESS, runtime=world.runtime("writer"), interceptors=interceptors) as writer:
            for value in (b"0", b"1"):
                await writer.send_and_wait("t", value, partition=0)

    with caplog.at_level(logging.ERROR):
        simulate(scenario)
    assert [message.split()[0] for message in caplog.messages] == ["on_send"] * 2 + ["on_acknowledgement"] * 2


def test_each_record_is_told_of_once_whatever_becomes_of_it() -> None:
    """Also one whose send is cancelled, one that nobody waits for, one that is no record, and those left at the end."""
    watcher = Watcher()

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), interceptors=[watcher]) as writer:
            looking_up = asyncio.ensure_future(writer.send("t", b"not handed over", partition=0))
            await asyncio.sleep(0)
            looking_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking_up
            (await writer.send("t", b"0", partition=0)).cancel()
            await writer.flush()
            with pytest.raises(TypeError):
                await writer.send("t", "text", partition=0)  # type: ignore[arg-type]
            world.network.break_connections(9092)
            await writer.send("t", bytes(10), partition=0)
            await writer.abandon()
            await asyncio.sleep(1)

    simulate(scenario)
    assert [offset for offset, _ in watcher.told] == [-1, 0, -1, -1]
    assert [error is None for _, error in watcher.told] == [False, True, False, False]
    assert len(watcher.sent) == 4


@pytest.mark.parametrize("given", [Watcher, [Watcher], "text", [None], [1]])
def test_what_is_no_interceptor_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="interceptors"):
        Producer(ADDRESS, interceptors=given)
