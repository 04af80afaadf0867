"""Connections to hosts whose name has several addresses, of which some may be dead (RFC 8305)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

P = TypeVar("P")

#: Seconds after which the next address is tried beside those that have not answered (RFC 8305 §5).
_NEXT_AFTER: Final = 0.25


async def addresses_of(host: str, port: int) -> list[str]:
    """The addresses of a host, in the system's order.  Raises OSError if it has none."""
    if _is_address(host):
        return [host]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


async def first_connected(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, tuple[asyncio.Transport, P]]]],
) -> tuple[asyncio.Transport, P]:
    """What the first attempt gives that succeeds; what others connect is closed.

    The next one begins when the last one has failed, or is silent for a while: an address from which nothing comes
    back does not fail for minutes.  Raises OSError if all fail.
    """
    untried, errors = deque(attempts), list[OSError]()
    if len(untried) == 1:
        return await untried[0]()  # in the caller's own task: nothing comes before it can use the connection
    tried: set[asyncio.Task[tuple[asyncio.Transport, P]]] = set()
    try:
        while untried or tried:
            if untried:
                tried.add(asyncio.get_running_loop().create_task(untried.popleft()()))
            patience = _NEXT_AFTER if untried else None
            done, _ = await asyncio.wait(tried, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                tried.remove(task)
                try:
                    return task.result()
                except OSError as error:
                    errors.append(error)
    finally:
        for task in tried:
            task.cancel()
            task.add_done_callback(_close)
    raise _worst(errors)


def _close(task: asyncio.Task[tuple[asyncio.Transport, Any]]) -> None:
    """It was not the first."""
    if not task.cancelled() and task.exception() is None:
        task.result()[0].abort()


def _worst(errors: list[OSError]) -> OSError:
    """That of whoever was there and did not speak TLS as expected, if one was; else all of them."""
    for error in errors:
        is_refused = isinstance(error, ConnectionRefusedError)
        if isinstance(error, ssl.SSLError) or (isinstance(error, ConnectionError) and not is_refused):
            return error
    said = dict.fromkeys(error.strerror or str(error) for error in errors)
    return errors[0] if len(said) == 1 else OSError("; ".join(said))
