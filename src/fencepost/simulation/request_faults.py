"""Faults of single requests between clients and broker, chosen by API: lost, answered in vain, late, or too late.

A client whose connection breaks connects anew and asks again, so what was carried out is carried out twice, and what
was held back comes after its own repetition.  Within one connection nothing is lost or overtaken: it is TCP.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from fencepost.protocol.codec import decode, read_request_header
from fencepost.protocol.messages import FLEXIBLE, REQUESTS, InitProducerIdRequest
from fencepost.simulation.script import Prompter, lane
from fencepost.simulation.script import RequestFault as RequestFault

_INIT_PRODUCER_ID: Final = 22
#: Seconds that a request is late, at most.
LATEST: Final = 0.8


class Sending(Protocol):
    """The side of a connection that sends requests."""

    @property
    def owner(self) -> str:
        """The client whose connection it is."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether something that was sent is late: what follows waits for it."""
        ...

    def send(self, data: bytes, late: float = 0.0, /) -> None:
        """Send, so many seconds late."""
        ...

    def befell(self, request: bytes, what: str, /) -> None:
        """Note that a fault befalls a request."""
        ...

    def lose_both(self) -> None:
        """Break off both ends of the connection."""
        ...

    def lose_ours(self, late: float, /) -> None:
        """Break off this end before any answer, the other one when it has got everything, late and a while later."""
        ...


class Passage(Protocol):
    """The way of the requests of a connection, on which they may meet faults."""

    def send(self, transport: Sending, data: bytes, /) -> None:
        """Send what a client writes, or see to it that it does not arrive."""
        ...


class RequestFaults:
    """Draws faults for requests to these APIs (None: all), each with its probability, or takes them from `prompter`."""

    def __init__(
        self,
        generator: random.Random,
        note: Callable[[str], None],
        shares: Mapping[RequestFault, float],
        apis: Sequence[int] | None = None,
        prompter: Prompter | None = None,
    ) -> None:
        self._random = generator
        self._note = note
        self._shares = shares
        self._apis = apis
        self._prompter = prompter or Prompter()

    def send(self, transport: Sending, data: bytes, /) -> None:
        """Send what a client writes, or see to it that it gets lost."""
        for frame in _frames(data):
            api = int.from_bytes(frame[4:6], "big")
            now = asyncio.get_running_loop().time()
            befallen = self._prompter.request(lane(transport.owner), api, now, lambda api=api: self._draw(api))  # type: ignore[misc]
            fault, late = (None, 0.0) if befallen is None else (befallen.fault, befallen.late)
            may_be_late = fault in (RequestFault.HELD_BACK, RequestFault.LATE) or transport.is_behind
            if may_be_late and claims(frame):
                # Whenever it comes it is a new instance, and fences the one that sent it: nobody could tell.
                fault = RequestFault.LOST
            if fault is not None:
                self._note(f"{REQUESTS[api].__name__} {fault.value}")
                transport.befell(frame, fault.value)
            _send(transport, frame, fault, late)

    def _draw(self, api: int) -> tuple[RequestFault, float] | None:
        if self._apis is not None and api not in self._apis:
            return None
        dice = self._random.random()
        for fault, share in self._shares.items():
            dice -= share
            if dice < 0:
                is_late = fault in (RequestFault.HELD_BACK, RequestFault.LATE)
                return fault, self._random.uniform(0, LATEST) if is_late else 0.0
        return None


def _send(transport: Sending, frame: bytes, fault: RequestFault | None, late: float) -> None:
    if fault is None or fault is RequestFault.LATE:
        transport.send(frame, late)
    elif fault is RequestFault.LOST:
        transport.lose_both()
    else:
        transport.send(frame, late)
        transport.lose_ours(late)


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        assert end <= len(data), "a client writes whole requests"
        yield data[at:end]
        at = end


def claims(data: bytes) -> bool:
    """Whether an InitProducerId without a producer id is among these requests."""
    return any(_is_claim(frame) for frame in _frames(data) if int.from_bytes(frame[4:6], "big") == _INIT_PRODUCER_ID)


def _is_claim(frame: bytes) -> bool:
    header = read_request_header(memoryview(frame)[4:], FLEXIBLE)
    request = decode(InitProducerIdRequest, memoryview(frame)[4:], header.api_version, header.body_start)
    return bool(request.producer_id < 0)
