"""A line to a node that loses answers: who asked sees the connection end, and does not know what was done."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from fencepost.client.portal import Portal

HERE: Final = "127.0.0.1"
#: Where the node is.  As long as `HERE`, which takes its place in every answer: clients follow what they are told.
THERE: Final = "127.0.0.9"


class LosingLine:
    """Listens on `HERE`, at the port that the node has on `THERE`.

    `lose`: kind of request (API key) -> how many of the next answers of that kind are lost.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.lose: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, HERE, self._port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: deque[int] = deque()
        try:
            answers, questions = await asyncio.open_connection(THERE, self._port)
        except OSError:
            writer.close()
            return
        up = asyncio.create_task(self._ask(reader, questions, asked))
        down = asyncio.create_task(self._answer(answers, writer, asked))
        self._open |= {up, down}
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        self._open -= {up, down}
        for each in (writer, questions):
            each.close()

    async def _ask(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, asked: deque[int]) -> None:
        async for frame in _frames(reader):
            (kind,) = struct.unpack_from(">h", frame, 4)
            asked.append(kind)
            to.write(frame)
            await to.drain()

    async def _answer(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, asked: deque[int]) -> None:
        async for frame in _frames(reader):
            kind = asked.popleft()
            if self.lose[kind] > 0:
                self.lose[kind] -= 1
                self.lost[kind] += 1
                return
            to.write(frame.replace(THERE.encode(), HERE.encode()))
            await to.drain()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Requests or answers, with their length before them, until the connection ends."""
    try:
        while True:
            size = await reader.readexactly(4)
            yield size + await reader.readexactly(int.from_bytes(size, "big"))
    except (asyncio.IncompleteReadError, OSError):
        return


@contextmanager
def losing_line(port: int) -> Iterator[LosingLine]:
    portal, line = Portal("tests-losing-line"), LosingLine(port)
    server = portal.call(line.start())
    try:
        yield line
    finally:

        async def stop() -> None:
            server.close()
            for task in list(line._open):
                task.cancel()

        portal.call(stop())
        portal.close()
