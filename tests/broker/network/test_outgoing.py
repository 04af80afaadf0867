"""What leaves on a connection, piece by piece."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest

from fencepost.broker.network.answer_memory import AnswerMemory
from fencepost.broker.network.limits import PIECE
from fencepost.broker.network.outgoing import Outgoing


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
        out.put(bytes(20 * PIECE), None, 0, 0)
        out.send(transport)
        if ends:
            out.send_all(transport)
        out.clear()

    asyncio.run(main())
    assert not caplog.records
