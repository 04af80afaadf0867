"""Requests that take long on their way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost.client.connection import Connection


def slowly(monkeypatch: pytest.MonkeyPatch, kind: type, seconds: float) -> list[Any]:
    """Have requests of this kind take so long on their way; what was answered."""
    request, answered = Connection.request, list[Any]()

    async def later(connection: Connection, message: Any, *how: Any) -> Any:
        await asyncio.sleep(seconds)
        answer = await request(connection, message, *how)
        answered.append(message)
        return answer

    def slow(connection: Connection, message: Any, *how: Any, **more: Any) -> asyncio.Future[Any]:
        if isinstance(message, kind):
            return asyncio.ensure_future(later(connection, message, *how))
        return request(connection, message, *how, **more)

    monkeypatch.setattr(Connection, "request", slow)
    return answered
