"""Finding a broker."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

import pytest

from fencepost.client import ClosedError
from fencepost.client.cluster import Cluster


@pytest.mark.parametrize("interrupted", [True, False])
def test_asyncio_has_nothing_to_complain_about_when_it_is_closed_while_it_looks_for_a_broker(interrupted: bool) -> None:
    """Connections that are being made, and who waits for them, end with an error that nobody asks for any more."""
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            cluster = Cluster(f"127.0.0.1:{silent.getsockname()[1]}", client_id="client")
            looking = loop.create_task(cluster.any_connection())
            await asyncio.sleep(0.05)
            if interrupted:
                looking.cancel()
            await cluster.close()
            with pytest.raises(asyncio.CancelledError if interrupted else ClosedError):
                await looking
            del looking
            await asyncio.sleep(0)
            gc.collect()

    asyncio.run(scenario())
    assert complaints == []
