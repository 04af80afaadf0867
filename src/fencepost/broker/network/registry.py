"""Which API is served by which function, in which versions.

A handler is a plain function wherever it can be: it answers with a response, or with `Reply`, a response that may leave
only when an lsn is durable.  Where it has to wait for others it is a coroutine function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.broker.network.refusals import watched
from fencepost.protocol.messages import RESPONSES

if TYPE_CHECKING:
    from fencepost.broker.broker import Broker
    from fencepost.broker.network.request_context import RequestContext


class Reply(NamedTuple):
    """A response that depends on everything up to `lsn` being durable."""

    response: Any
    lsn: int


NO_ANSWER: Final = object()
"""The client wants none (Produce with acks=0)."""

CLOSE: Final = object()
"""Nothing can be said that this client would understand: the connection ends."""

Handler = Callable[[Any, "RequestContext", "Broker"], Any]


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
) -> Callable[[Handler], Handler]:
    """Serve a request's versions first to last (its own range by default) with this function."""
    lowest, highest = request.__schema__.versions
    low, high = lowest if first is None else first, highest if last is None else last

    def register(handler: Handler) -> Handler:
        key = request.__schema__.api
        assert key not in SERVED, f"api {key} is served twice"
        advertised = low if advertised_first is None else advertised_first
        seen = watched(request, handler)
        SERVED[key] = Served(request, RESPONSES[key], low, high, advertised, seen, gate, in_turn)
        return handler

    return register
