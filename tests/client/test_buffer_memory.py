"""The memory of a producer: who has to wait for room, and who goes on when some is given back."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.client.buffer_memory import BufferMemory


@pytest.mark.parametrize("waiting", [1, 2, 7])
@pytest.mark.parametrize("cancelled", [(), (0,), (0, 1), (6,)])
def test_all_who_wait_are_told_that_there_is_room_whoever_of_them_was_cancelled(
    waiting: int, cancelled: tuple[int, ...]
) -> None:
    """Of one large batch may come room for many, and no other batch may ever be given back."""

    async def main() -> None:
        memory = BufferMemory(10)
        memory.take(10)
        waiters = [asyncio.ensure_future(memory.room()) for _ in range(waiting)]
        await asyncio.sleep(0)
        for number in cancelled:
            if number < waiting:
                waiters[number].cancel()
        memory.give_back(10)
        await asyncio.wait(waiters, timeout=1)
        assert [each.cancelled() for each in waiters] == [number in cancelled for number in range(waiting)]
        assert all(each.done() for each in waiters)
        assert memory.used == 0

    asyncio.run(main())


def test_nobody_goes_on_while_there_is_no_room() -> None:
    async def main() -> None:
        memory = BufferMemory(10)
        memory.take(25)
        waiter = asyncio.ensure_future(memory.room())
        for size, is_there in ((10, False), (5, False), (1, True)):
            await asyncio.sleep(0)
            memory.give_back(size)
            await asyncio.sleep(0)
            assert waiter.done() == is_there == (not memory.is_full)

    asyncio.run(main())
