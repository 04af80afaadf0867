"""A broker for code that is not asynchronous: its event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost.broker.authorizer import Authorizer
from fencepost.broker.broker import Broker
from fencepost.runtime import Runtime


@contextmanager
def running_broker(
    *,
    data: Path | str | None = None,
    listen: str = "127.0.0.1:0",
    settings: Mapping[str, object] | None = None,
    flush: str = "durable",
    authorizer: Authorizer | None = None,
    runtime: Runtime | None = None,
) -> Iterator[Broker]:
    """A broker that answers inside the `with` block, from an event loop in a thread of its own.

    Arguments are those of `Broker`; without `data` its directory is a temporary one, removed at the end.  Raises
    BadSetting, DirectoryUnusable or OSError if it cannot start.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-") as temporary:
        broker = Broker(
            data=data or temporary,
            listen=listen,
            settings=settings,
            flush=flush,
            authorizer=authorizer,
            runtime=runtime,
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="fencepost-broker", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(broker.start(), loop).result()
            try:
                yield broker
            finally:
                asyncio.run_coroutine_threadsafe(broker.stop(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
