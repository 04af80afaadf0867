"""Nodes that are started in the same directory again and again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker.wire import SETTINGS, Client

from fencepost.broker import Broker
from fencepost.log.commit_log import CommitLog
from fencepost.log.disk import LocalDisk
from fencepost.log.replay import Replay


@contextmanager
def node(data: Path, flush: str = "durable", *, rebuild: bool = False) -> Iterator[Client]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    broker = Broker(data=data, settings=SETTINGS, flush=flush, rebuild_metadata=rebuild)
    try:
        asyncio.run_coroutine_threadsafe(broker.start(), loop).result()
        client = Client(broker)
        try:
            yield client
        finally:
            client.close()
            asyncio.run_coroutine_threadsafe(broker.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def to_recover(data: Path) -> int:
    """How many bytes of the commit log a start would write into segments again."""
    replay, disk = Replay(), LocalDisk()
    replay.read(disk, CommitLog(disk, data / "commit-log", lambda _: None))
    return sum(known.size - known.checkpoint_size for known in replay.files.values() if not known.removed)
