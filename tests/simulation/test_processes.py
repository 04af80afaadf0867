"""A process that stands still does nothing, and then all that it would have done, in order; a dead one nothing."""

from __future__ import annotations

import asyncio

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
    async def main(loop: VirtualLoop) -> None:
        process, times, ended = Process(World(loop, 1), "p"), list[float](), list[str]()

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
        process.release()
        task.cancel()
        await asyncio.wait([task])
        assert ended == ["ended"]

    run(main, ProcessLoop)


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
