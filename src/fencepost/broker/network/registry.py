"""Which API is served by which function, in which versions.

A handler is a plain function wherever it can be: it gives a `Reply`, a response together with the lsn that must be
durable before it may leave.  Where it has to wait for others it gives a coroutine.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.types import NO_LSN, Lsn

if TYPE_CHECKING:
    from fencepost.broker.network.request_context import RequestContext
    from fencepost.broker.node import Node


class Reply(NamedTuple):
    """A handler's response, and the lsn that it depends on.

    It leaves the process when everything up to `lsn` is durable: a power loss takes nothing back that a client knows.
    """

    response: Any
    lsn: Lsn


def independent(response: Any) -> Reply:
    """A reply that says nothing a power loss could take back."""
    return Reply(response, NO_LSN)


NO_ANSWER: Final = Reply(None, NO_LSN)
"""The client wants none (Produce with acks=0)."""

CLOSE: Final = Reply(None, NO_LSN)
"""Nothing can be said that this client would understand: the connection ends."""

Later = Coroutine[Any, Any, Reply]
"""A reply that has to wait for others."""

Handler = Callable[[Any, "RequestContext", "Node"], Reply | Later]
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, slots=True)
class Served:
    """One API of this node."""

    request: Any
    response: Any
    first: int
    last: int
    advertised_first: int
    handler: Handler
    gate: tuple[int, str] | None = None
    """From this version on it is served only where this broker setting is true."""
    in_turn: bool = False
    """Where it has to wait, nothing that the client sent later may overtake it."""

    def newest(self, settings: Mapping[str, Any]) -> int:
        """The newest version that a broker with these settings serves."""
        return self.last if self.gate is None or settings[self.gate[1]] else self.gate[0] - 1


SERVED: dict[int, Served] = {}
"""API key -> how it is served; filled by importing `fencepost.broker.apis`."""


def serves(
    request: Any,
    *,
    first: int | None = None,
    last: int | None = None,
    advertised_first: int | None = None,
    gate: tuple[int, str] | None = None,
    in_turn: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Serve a request's versions first to last (its own range by default) with this function."""
    lowest, highest = request.__schema__.versions
    low, high = lowest if first is None else first, highest if last is None else last

    def register(handler: HandlerT) -> HandlerT:
        key = request.__schema__.api
        assert key not in SERVED, f"api {key} is served twice"
        advertised = low if advertised_first is None else advertised_first
        SERVED[key] = Served(request, RESPONSES[key], low, high, advertised, handler, gate, in_turn)
        return handler

    return register
