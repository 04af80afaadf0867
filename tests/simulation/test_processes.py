"""A process that stands still does nothing, and then all that it would have done, in order; a dead one nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from fencepost.client import Admin, Producer
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.world import ADDRESS, World


async def tick(loop: VirtualLoop, times: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        times.append(round(loop.time(), 3))


def test_its_timers_wait_and_those_of_others_do_not() -> None:
    async def main(loop: VirtualLoop) -> None:
        process, still, others = Process(World(loop, 1), "p"), list[float](), list[float]()
        process.start(tick(loop, still))
        free = loop.create_task(tick(loop, others))
        await asyncio.sleep(1.5)
        process.stand_still(3)
        process.stand_still(100)
        assert process.stood_still == 3
        await asyncio.sleep(4.9)
        assert still == [1, 4.5, 5.5]
        assert others == [1, 2, 3, 4, 5, 6]
        free.cancel()

    run(main, ProcessLoop)


def test_what_was_taken_back_while_it_stood_still_does_not_run_afterwards() -> None:
    async def main(loop: VirtualLoop) -> None:
        process, order = Process(World(loop, 1), "p"), list[str]()

        async def work() -> None:
            second = loop.call_later(2, order.append, "second")
            loop.call_later(1, second.cancel)
            loop.call_later(1.5, order.append, "first")
            await asyncio.sleep(10)

        process.start(work())
        await asyncio.sleep(0.5)
        process.stand_still(5)
        await asyncio.sleep(8)
        assert order == ["first"]

    run(main, ProcessLoop)


def test_a_dead_process_does_nothing_and_is_cleared_away() -> None:
    ended = list[str]()

    async def main(loop: VirtualLoop) -> None:
        process, times = Process(World(loop, 1), "p"), list[float]()

        async def work() -> None:
            try:
                await tick(loop, times)
            finally:
                ended.append("ended")

        task = process.start(work())
        await asyncio.sleep(1.5)
        process.stand_still(1)
        process.die(silently=False)
        await asyncio.sleep(10)
        assert times == [1]
        assert ended == []
        assert task.cancelled() and process.has_ended
        process.release()

    run(main, ProcessLoop)
    assert ended == ["ended"]


def test_what_the_broker_does_for_it_goes_on_while_it_stands_still() -> None:
    """The answer is there when it goes on, and a request that it has sent is carried out meanwhile."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("t", partitions=1)
        process, done = Process(world, "p"), list[float]()

        async def work() -> None:
            async with Producer(ADDRESS, runtime=process.runtime()) as producer:
                await (await producer.send("t", b"first"))
                sent = await producer.send("t", b"second")
                await asyncio.sleep(0.0001)
                process.stand_still(5)
                await sent
                done.append(loop.time())

        task = process.start(work())
        await asyncio.sleep(2)
        assert world.storage is not None
        partition = world.storage.partition("t", 0)
        assert partition is not None
        assert partition.high_watermark == 2
        assert done == []
        await task
        assert done[0] > 5
        await world.stop()

    run(main, ProcessLoop)


REQUEST = b"\x00\x00\x00\x04\x00\x12\x00\x00"
"""Of ApiVersions (18)."""


class Everybody:
    """Lets every connection in (runtime.Admission)."""

    def room(self) -> int:
        return 1

    def wait_seconds(self, now: float) -> float:  # noqa: ARG002
        return 0

    def accepted(self, now: float) -> None:
        """Nobody counts."""


class Peer(asyncio.Protocol):
    """Notes what arrives, and answers."""

    def __init__(self, answer: bytes = b"") -> None:
        self.arrived = b""
        self.is_lost = False
        self._answer = answer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.arrived += data
        if self._answer and self.arrived.endswith(REQUEST) and self._transport is not None:
            self._transport.write(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True


def with_a_connection(
    test: Callable[[Process, asyncio.Transport, Peer, Peer], Coroutine[None, None, None]],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world, peer = World(loop, 1), Peer(b"answer")
        await world.network.listen(lambda: peer, "h", 1, Everybody())
        process = Process(world, "p")
        transport, caller = await process.connect(Peer, "h", 1)
        await test(process, transport, caller, peer)

    run(main, ProcessLoop)


@pytest.mark.parametrize("which", ["sending", "receiving", "both"])
def test_what_is_on_its_way_while_it_is_cut_off_arrives_afterwards(which: str) -> None:
    async def test(process: Process, transport: asyncio.Transport, caller: Peer, peer: Peer) -> None:
        process.cut_off(10, sending=which != "receiving", receiving=which != "sending")
        transport.write(REQUEST)
        await asyncio.sleep(9)
        assert peer.arrived == (REQUEST if which == "receiving" else b"")
        assert caller.arrived == b""
        await asyncio.sleep(2)
        assert (peer.arrived, caller.arrived) == (REQUEST, b"answer")

    with_a_connection(test)


def test_no_connection_is_made_meanwhile() -> None:
    async def test(process: Process, transport: asyncio.Transport, caller: Peer, peer: Peer) -> None:  # noqa: ARG001
        process.cut_off(5)
        connecting = asyncio.get_running_loop().create_task(process.connect(Peer, "h", 1))
        await asyncio.sleep(4.9)
        assert not connecting.done()
        another, _ = await connecting
        another.write(REQUEST)
        await asyncio.sleep(1)
        assert peer.arrived == REQUEST

    with_a_connection(test)


def test_it_can_be_cut_off_just_before_an_answer() -> None:
    async def test(process: Process, transport: asyncio.Transport, caller: Peer, peer: Peer) -> None:
        process.cut_off_after(19, 5)
        transport.write(REQUEST)
        await asyncio.sleep(1)
        assert caller.arrived == b"answer"
        process.cut_off_after(18, 5)
        transport.write(REQUEST)
        await asyncio.sleep(4)
        assert (peer.arrived, caller.arrived) == (REQUEST * 2, b"answer")
        await asyncio.sleep(2)
        assert caller.arrived == b"answer" * 2

    with_a_connection(test)


@pytest.mark.parametrize("silently", [False, True])
def test_what_a_dead_one_has_sent_arrives_and_nothing_else(silently: bool) -> None:
    async def test(process: Process, transport: asyncio.Transport, caller: Peer, peer: Peer) -> None:
        transport.write(REQUEST)
        process.die(silently=silently)
        transport.write(REQUEST)
        process.recover()
        await asyncio.sleep(1)
        assert (peer.arrived, peer.is_lost) == (REQUEST, not silently)
        if not silently:
            assert caller.arrived == b""

    with_a_connection(test)


def test_it_serves_nobody() -> None:
    async def test(process: Process, *_: object) -> None:
        with pytest.raises(AssertionError, match="does not listen"):
            await process.listen(Peer, "h", 2, Everybody())

    with_a_connection(test)
