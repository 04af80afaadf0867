"""What leaves on a connection, piece by piece."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import Any

import pytest

from fencepost.broker.network.answer_memory import AnswerMemory
from fencepost.broker.network.limits import LARGE_ANSWER, PIECE
from fencepost.broker.network.outgoing import Outgoing
from fencepost.protocol.types import Lsn


@pytest.mark.parametrize("ends", [False, True])
def test_whose_other_end_is_gone_is_given_no_more_pieces(ends: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Each of them would be a line of the event loop's in the node's log, which says nothing to anybody."""
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        out = Outgoing(AnswerMemory(1 << 30))
        out.put(bytes(20 * PIECE), None, Lsn(0), Lsn(0))
        out.send(transport)
        if ends:
            out.send_all(transport)
        out.clear()

    asyncio.run(main())
    assert not caplog.records


def test_what_waits_is_counted_as_long_as_it_waits() -> None:
    """First the bytes of the request, in their place then those of the answer."""
    out = Outgoing(AnswerMemory(1 << 30))
    first, second = out.new_slot(10), out.new_slot(20)
    assert out.held == 30
    out.put(bytes(100), second, Lsn(0), Lsn(0))
    assert out.held == 110
    out.put(bytes(7), first, Lsn(5), Lsn(0))
    out.take_ready(4)
    assert (out.held, out.unsent, len(out.slots)) == (107, 0, 2), "nothing overtakes what is not durable"
    out.take_ready(5)
    assert (out.held, out.unsent, len(out.slots)) == (0, 107, 0)


def test_large_answers_of_a_connection_that_is_lost_take_no_memory_any_more() -> None:
    """Be they behind one that has not come, or on their way."""
    memory = AnswerMemory(1 << 30)
    out = Outgoing(memory)
    out.put(bytes(LARGE_ANSWER + 1), None, Lsn(0), Lsn(0))
    waiting, behind = out.new_slot(10), out.new_slot(10)
    out.put(bytes(LARGE_ANSWER + 2), behind, Lsn(0), Lsn(0))
    assert memory.used == 2 * LARGE_ANSWER + 3 and waiting.data is None
    out.clear()
    assert memory.used == 0


@pytest.mark.parametrize("behind", [False, True])
def test_no_answer_leaves_before_what_it_depends_on_is_durable(behind: bool) -> None:
    """Be nothing before it, or others."""
    out = Outgoing(AnswerMemory(1 << 30))
    if behind:
        out.put(b"before", out.new_slot(1), Lsn(0), Lsn(4))
    assert not out.put(b"answer", None, Lsn(5), Lsn(4))
    out.take_ready(4)
    assert out.unsent == len(b"before") * behind
    out.take_ready(5)
    assert out.unsent == len(b"before") * behind + len(b"answer")


class Full:
    """A transport that takes so many pieces, then says that it takes no more."""

    def __init__(self, out: Outgoing, pieces: int) -> None:
        self._out, self._pieces = out, pieces
        self.taken: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.taken.append(bytes(data))
        if len(self.taken) == self._pieces:
            self._out.is_writable = False


@pytest.mark.parametrize("pieces", [1, 2])
def test_where_the_connection_ends_all_that_was_ready_is_handed_over(pieces: int) -> None:
    """Large answers and small ones, whether the transport takes them now or keeps them."""
    out = Outgoing(AnswerMemory(1 << 30))
    answers = [bytes([number]) * size for number, size in enumerate((5 * PIECE, 7, 3 * PIECE, PIECE))]
    for answer in answers:
        out.put(answer, None, Lsn(0), Lsn(0))
    transport: Any = Full(out, pieces)
    out.send(transport)
    assert len(transport.taken) == pieces
    out.send_all(transport)
    assert b"".join(transport.taken) == b"".join(answers)


def test_a_client_that_takes_its_answer_piece_by_piece_keeps_nobody_from_anything() -> None:
    """Though others wait for all of it; one that has taken nothing since the last look does."""

    async def main() -> None:
        memory = AnswerMemory(LARGE_ANSWER)
        out = Outgoing(memory)
        out.put(bytes(20 * PIECE), None, Lsn(0), Lsn(0))
        waits = asyncio.ensure_future(memory.place())
        await asyncio.sleep(0)
        assert memory.is_wanted
        transport: Any = Full(out, 8)
        looks = []
        out.is_writable = False
        out.send(transport)
        for takes in (True, True, False):
            looks.append(out.is_kept_from_others())
            if takes:
                out.is_writable, transport.taken = True, []
                out.send(transport)
        assert [*looks, out.is_kept_from_others()] == [False, False, False, True]
        waits.cancel()

    asyncio.run(main())
