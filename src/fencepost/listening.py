"""Listening sockets: who connects is accepted while there is room, and descriptors are left for files.

The event loop's own way accepts without a bound, and when descriptors are used up it says so a thousand times a second.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from fencepost.node_log import get_logger

logger = get_logger(__name__)

_BACKLOG: Final = 1024
_TRIES: Final = 10
"""To find a port that is free at every address of a host."""
_AT_ONCE: Final = 64
"""Connections accepted before others get a turn."""
_PAUSE_SECONDS: Final = 1.0
_FOR_FILES: Final = 32
"""Descriptors that no connection may take: the log must go on, or a client that only connects could stop the node."""
_USED_UP: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Found: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""What the resolver says of an address."""


class Admission(Protocol):
    """Says who may be accepted.  Times are those of the event loop, in seconds."""

    def room(self) -> int:
        """How many more connections there may be now; at 0 those who connect wait."""
        ...

    def wait_seconds(self, now: float) -> float:
        """How long nobody may be accepted from `now` on; 0 if somebody may."""
        ...

    def accepted(self, now: float) -> None:
        """Count a connection that was accepted at `now`."""
        ...


async def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all with one port.  Raises OSError if one cannot be had."""
    found = await _addresses(host, port)
    for tries_left in reversed(range(_TRIES)):
        try:
            return _bound(list(dict.fromkeys(found)))
        except OSError as error:
            # A port that is free at one address need not be so at the next.
            if port or error.errno != errno.EADDRINUSE or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


async def _addresses(host: str, port: int) -> Sequence[Found]:
    loop = asyncio.get_running_loop()
    try:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except RuntimeError:  # no thread can be started, and nobody is served yet who would have to wait
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)


def _bound(found: list[Found]) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, (address, port, *rest) in found:
            made = socket.socket(family, kind, protocol)
            sockets.append(made)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address, port or sockets[0].getsockname()[1], *rest))
    except OSError:
        for made in sockets:
            made.close()
        raise
    return sockets


class SocketListener:
    """Accepts connections from sockets, as many and as fast as `admission` lets it.

    `at_once`: else it begins with the first `accept_again`, and who connects before that is refused.  Both
    raise OSError where another process listens on the address by now.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        sockets: list[socket.socket],
        admission: Admission,
        *,
        at_once: bool = True,
    ) -> None:
        self._factory = factory
        self._sockets = sockets
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._beginning: dict[asyncio.Task[object], None] = {}
        """Accepted, and not yet known to whoever counts connections."""
        self._accepting = False
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._listens = False
        if at_once:
            self.accept_again()

    @property
    def port(self) -> int:
        port: int = self._sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Accept no more; connections that their owner does not know yet end with it."""
        self._is_closed = True
        self._stop_accepting()
        for listening in self._sockets:
            listening.close()
        if self._timer is not None:
            self._timer.cancel()
        self._sockets = []

    def accept_again(self) -> None:
        """There may be room for connections again."""
        if not self._listens:
            self._listen()
        if not self._accepting and self._timer is None:
            self._accepting = True
            for listening in self._sockets:
                self._loop.add_reader(listening, self._accept, listening)

    def _listen(self) -> None:
        try:
            for bound in self._sockets:
                bound.listen(_BACKLOG)
        except OSError:
            self.close()
            raise
        self._listens = True

    def _stop_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            for listening in self._sockets:
                self._loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if self._admission.room() <= len(self._beginning):
                if not self._beginning:  # else who begins is counted soon, and then it is looked again
                    self._stop_accepting()
                return
            wait = self._admission.wait_seconds(self._loop.time())
            if wait > 0:
                self._stop_for(wait)
                return
            try:
                accepted, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _USED_UP:
                    raise
                self._pause(str(error.strerror))
                return
            if _is_among_the_last(accepted.fileno()):
                accepted.close()
                self._pause("the last ones are kept for files")
                return
            self._admission.accepted(self._loop.time())
            accepted.setblocking(False)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            task: asyncio.Task[object] = self._loop.create_task(self._begin(accepted))
            self._beginning[task] = None
            task.add_done_callback(self._beginning.pop)

    async def _begin(self, accepted: socket.socket) -> None:
        if self._is_closed:
            accepted.close()
            return
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError as error:
            logger.warning("a connection ended before it began: %s", error)
            accepted.close()
            return
        if self._is_closed:
            transport.abort()

    def _pause(self, why: str) -> None:
        logger.error(
            "file descriptors are used up (%s): no connection is accepted for a second; "
            "raise the limit (ulimit -n), or set max.connections or max.connections.per.ip",
            why,
        )
        self._stop_for(_PAUSE_SECONDS)

    def _stop_for(self, seconds: float) -> None:
        self._stop_accepting()
        self._timer = self._loop.call_later(seconds, self._pause_over)

    def _pause_over(self) -> None:
        self._timer = None
        self.accept_again()


def _is_among_the_last(descriptor: int) -> bool:
    """Whether a new descriptor, which is always the lowest free one, comes from those that are kept for files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft != resource.RLIM_INFINITY and descriptor >= soft - min(_FOR_FILES, soft // 8)
