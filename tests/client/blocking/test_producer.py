"""A block of a blocking producer ends as the block did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost.client import producer
from fencepost.client.blocking.producer import Producer


class Transactions:
    """Stands in for the asyncio producer, and notes how its transactions end."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ends: list[str] = []
        self._forgotten = None

    async def start(self) -> None:
        pass

    async def close(self, _: float | None = None) -> None:
        pass

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            self.ends.append(f"aborted for {error!r}")
            raise
        self.ends.append("committed")


@pytest.mark.parametrize("error", [None, ValueError("no"), KeyboardInterrupt()], ids=["none", "an error", "Ctrl-C"])
def test_it_is_committed_unless_it_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    monkeypatch.setattr(producer, "Producer", Transactions)
    monkeypatch.setattr("fencepost.client.blocking.producer.ProducerElsewhere", lambda *_: None)
    monkeypatch.setattr("fencepost.client.blocking.producer._queue_of", lambda *_: None)
    with Producer("127.0.0.1:9") as blocking:
        stands_in: Any = blocking._producer
        if error is None:
            with blocking.transaction():
                pass
        else:
            with pytest.raises(type(error)), blocking.transaction():
                raise error
    assert stands_in.ends == ["committed" if error is None else f"aborted for {error!r}"]
