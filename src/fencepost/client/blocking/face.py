"""What every blocking client has: a thread with an event loop, and the texts and parameters of the asyncio client."""

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
    """Gives a method the docstring of the asyncio one, which it waits for: there is one text for both."""

    def documented(method: _Method) -> _Method:
        method.__doc__ = original.__doc__
        return method

    return documented


def takes(original: Callable[_Parameters, Any]) -> Callable[[Callable[..., None]], _Constructor[_Parameters]]:
    """Gives a constructor the parameters of the asyncio client, whom it hands them to: a wrong one is a type error."""

    def typed(constructor: Callable[..., None]) -> _Constructor[_Parameters]:
        own, its = inspect.signature(constructor), inspect.signature(original)
        itself = next(iter(own.parameters.values()))
        constructor.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[itself, *its.parameters.values()]
        )
        return constructor

    return typed


class _Client(Protocol):
    """An asyncio client."""

    @property
    def _forgotten(self) -> weakref.finalize[..., object] | None:
        """Says once that the client was not closed; None: there is nothing to be closed yet."""
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
        """Have a client that nobody has any more closed by its thread, which then ends; nobody waits for that."""
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
        """Send or commit what is waiting, abort an open transaction, leave the group, end the connections.

        Nothing the second time.  `timeout_ms`: after so many milliseconds what is left of it is given up.
        """
        if not self._portal.is_here:
            return  # in a forked child: it is its parent's
        try:
            with suppress(ClosedError):
                self._portal.call(self._behind.close(timeout_ms))
        finally:
            self._portal.close()
