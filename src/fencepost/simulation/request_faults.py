"""What becomes of single requests between clients and broker, chosen by API: lost, answered in vain, late, or too late.

A client whose connection breaks connects anew and asks again, so what was carried out is carried out twice, and what
was held back comes after its own repetition.  Within one connection nothing is lost or overtaken: it is TCP.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol

from fencepost.protocol.codec import decode, read_request_header
from fencepost.protocol.messages import REQUESTS, InitProducerIdRequest

_FLEXIBLE: Final = {key: request.__schema__.flexible for key, request in REQUESTS.items()}
_INIT_PRODUCER_ID: Final = 22
#: Seconds that a request is late, at most.
LATEST: Final = 0.8


class RequestFault(Enum):
    """What befalls a request."""

    LOST = "lost, with its connection"
    ANSWER_LOST = "carried out, its answer lost with the connection"
    HELD_BACK = "its connection is lost, it arrives later"
    LATE = "late"


class Sending(Protocol):
    """The side of a connection that sends requests."""

    @property
    def is_behind(self) -> bool:
        """Whether something that was sent is late: what follows waits for it."""
        ...

    def send(self, data: bytes, late: float = 0.0, /) -> None:
        """Send, so many seconds late."""
        ...

    def lose_both(self) -> None:
        """The connection is lost at both ends."""
        ...

    def lose_ours(self, late: float, /) -> None:
        """This end breaks off before any answer, the other one when it has got everything, late and a while later."""
        ...


class Passage(Protocol):
    """What the requests of a connection go through."""

    def send(self, transport: Sending, data: bytes, /) -> None:
        """Send what a client writes, or see to it that it does not arrive."""
        ...


class RequestFaults:
    """Each comes with the probability given for it, to requests of these APIs (None: of all)."""

    def __init__(
        self,
        generator: random.Random,
        note: Callable[[str], None],
        shares: Mapping[RequestFault, float],
        apis: Sequence[int] | None = None,
    ) -> None:
        self._random = generator
        self._note = note
        self._shares = shares
        self._apis = apis

    def send(self, transport: Sending, data: bytes, /) -> None:
        """Send what a client writes, or see to it that it gets lost."""
        for frame in _frames(data):
            api = int.from_bytes(frame[4:6], "big")
            fault = self._draw(api)
            may_be_late = fault in (RequestFault.HELD_BACK, RequestFault.LATE) or transport.is_behind
            if may_be_late and api == _INIT_PRODUCER_ID and _is_claim(frame):
                # Whenever it comes it is a new instance, and fences the one that sent it: nobody could tell.
                fault = RequestFault.LOST
            if fault is not None:
                self._note(f"{REQUESTS[api].__name__} {fault.value}")
            self._send(transport, frame, fault)

    def _send(self, transport: Sending, frame: bytes, fault: RequestFault | None) -> None:
        if fault is None:
            transport.send(frame)
        elif fault is RequestFault.LATE:
            transport.send(frame, self._random.uniform(0, LATEST))
        elif fault is RequestFault.LOST:
            transport.lose_both()
        else:
            late = self._random.uniform(0, LATEST) if fault is RequestFault.HELD_BACK else 0.0
            transport.send(frame, late)
            transport.lose_ours(late)

    def _draw(self, api: int) -> RequestFault | None:
        if self._apis is not None and api not in self._apis:
            return None
        dice = self._random.random()
        for fault, share in self._shares.items():
            dice -= share
            if dice < 0:
                return fault
        return None


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        assert end <= len(data), "a client writes whole requests"
        yield data[at:end]
        at = end


def _is_claim(frame: bytes) -> bool:
    """An InitProducerId without a producer id."""
    header = read_request_header(memoryview(frame)[4:], _FLEXIBLE)
    request = decode(InitProducerIdRequest, memoryview(frame)[4:], header.api_version, header.body_start)
    return bool(request.producer_id < 0)
