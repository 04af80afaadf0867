"""The base of blocking clients: an event loop in a thread, and docstrings and parameters of the asyncio client."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from fencepost.client.errors import ClosedError
from fencepost.client.portal import Portal

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Parameters = ParamSpec("_Parameters")
_Constructor = Callable[Concatenate[Any, _Parameters], None]


def as_in(original: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """A decorator that gives a method the docstring of the asyncio method which it calls and waits for."""

    def documented(method: _Method) -> _Method:
        method.__doc__ = original.__doc__
        return method

    return documented


def takes(original: Callable[_Parameters, Any]) -> Callable[[Callable[..., None]], _Constructor[_Parameters]]:
    """A decorator that gives a constructor the parameters of the asyncio client: the type checker finds a wrong one."""

    def typed(constructor: Callable[..., None]) -> _Constructor[_Parameters]:
        own, its = inspect.signature(constructor), inspect.signature(original)
        itself = next(iter(own.parameters.values()))
        constructor.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[itself, *its.parameters.values()]
        )
        return constructor

    return typed


class _Client(Protocol):
    """What a blocking client needs of an asyncio client."""

    @property
    def _forgotten(self) -> weakref.finalize[..., object] | None:
        """Warns, once, that the client was not closed; None: there is nothing to be closed yet."""
        ...

    async def close(self, timeout_ms: float | None = None) -> None:
        """End the client; nothing the second time."""
        ...


class Blocking:
    """An asyncio client that runs in a thread of its own."""

    def __init__(self, client: _Client) -> None:
        self._behind = client
        self._portal = Portal()

    def __del__(self) -> None:
        """Have the thread of a forgotten client close it, and end; the caller does not wait for that."""
        portal: Portal | None = self.__dict__.get("_portal")  # none: it could not be made
        if portal is None or not portal.is_here or sys.is_finalizing():  # at the end there are no other threads
            return
        try:
            if self._behind._forgotten is not None:
                self._behind._forgotten()
        finally:
            portal.abandon(self._behind.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, timeout_ms: float | None = None) -> None:
        """Send records and commits that wait, abort an open transaction, leave the group, end the connections.

        Nothing the second time.  `timeout_ms`: after so many milliseconds what is left of it is given up.
        """
        if not self._portal.is_here:
            return  # in a forked child: it is its parent's
        try:
            with suppress(ClosedError):
                self._portal.call(self._behind.close(timeout_ms))
        finally:
            self._portal.close()
