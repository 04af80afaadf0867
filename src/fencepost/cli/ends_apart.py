"""A selector by which very many connections that ask, or end, at one moment make no turn of the event loop long.

When a machine with clients, or a proxy before them, is gone, thousands of connections end between two turns of the
event loop.  Each is little work, and all of it would be done in one turn, before whoever asks meanwhile.  So those that
have ended come behind those that ask for something, and only so many of them in one turn.

Of those that ask there are only so many in one turn, too, in the order in which they came: else all would be read
before the first of them is answered.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

MOST: Final = 1000
"""Connections that end in one turn of the event loop: some 20 ms of work."""
MOST_READY: Final = 200
"""Connections that ask for something in one turn of the event loop: some 10 ms of work."""

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE

Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]

try:
    from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP, epoll
except ImportError:  # no Linux
    HAS_EPOLL = False
else:
    HAS_EPOLL = True
    _ENDED: Final = EPOLLRDHUP | EPOLLHUP | EPOLLERR
    _READABLE: Final = EPOLLIN | EPOLLPRI | _ENDED
    _WRITABLE: Final = EPOLLOUT | EPOLLHUP | EPOLLERR


def event_loop() -> asyncio.AbstractEventLoop:
    """An event loop that waits by an `EndsApart`, where there is epoll; else Python's own."""
    return asyncio.SelectorEventLoop(EndsApart()) if HAS_EPOLL else asyncio.new_event_loop()


class EndsApart(selectors.BaseSelector):
    """A selector as `selectors.EpollSelector`, but for the limits; what one call leaves out a later one returns."""

    def __init__(self, most: int = MOST, most_ready: int = MOST_READY) -> None:
        self._most, self._most_ready = most, most_ready
        self._later: deque[tuple[selectors.SelectorKey, int]] = deque()
        """The events that are ready and were not returned yet.  Whatever becomes ready meanwhile comes behind them."""
        self._epoll = epoll()
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._by_object = _ByObject(self._keys)

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, _descriptor(fileobj), events, data)
        if key.fd in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        self._epoll.register(key.fd, _asked(events))
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        key = self._keys.pop(self._by_object[fileobj].fd)
        with suppress(OSError):  # it is closed
            self._epoll.unregister(key.fd)
        return key

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        key = self._by_object[fileobj]
        if events != key.events:
            self._epoll.modify(key.fd, _asked(events))
        changed = self._keys[key.fd] = key._replace(events=events, data=data)
        return changed

    def select(self, timeout: float | None = None) -> Ready:
        """The events that are ready within `timeout` seconds; at once for 0 and less, without a limit for None."""
        if timeout is not None:
            # To whole milliseconds, and never too early.
            timeout = math.ceil(max(timeout, 0) * 1000) / 1000
        ready = self._left_out()
        if ready:
            return ready
        ended: Ready = []
        try:
            found = self._epoll.poll(timeout, max(len(self._keys), 1))
        except InterruptedError:
            return ready
        keys = self._keys
        for descriptor, event in found:
            key = keys.get(descriptor)
            if key is None:
                continue
            if event == EPOLLIN:  # as nearly all
                ready.append((key, _READ & key.events))
                continue
            events = (_READ if event & _READABLE else 0) | (_WRITE if event & _WRITABLE else 0)
            if not event & _ENDED:
                ready.append((key, events & key.events))
            elif len(ended) < self._most:
                ended.append((key, events & key.events))
        if len(ready) > self._most_ready:
            self._later.extend(ready)
            return self._left_out()
        return ready + ended if ended else ready

    def _left_out(self) -> Ready:
        """The next events that were left out, `most_ready` at most; without those whose key has changed since."""
        now: Ready = []
        while self._later and len(now) < self._most_ready:
            key, events = self._later.popleft()
            if self._keys.get(key.fd) is key:  # else the next call tells what is so by then
                now.append((key, events))
        return now

    def close(self) -> None:
        self._epoll.close()
        self._later.clear()
        self._keys.clear()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._by_object


class _ByObject(Mapping["FileDescriptorLike", selectors.SelectorKey]):
    """The keys of a selector, by the file objects that were registered."""

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[FileDescriptorLike]:
        return iter(self._keys)

    def __getitem__(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        try:
            return self._keys[_descriptor(fileobj)]
        except ValueError:  # it was closed meanwhile
            for key in self._keys.values():
                if key.fileobj is fileobj:
                    return key
            raise KeyError(f"{fileobj!r} is not registered") from None


def _descriptor(fileobj: FileDescriptorLike) -> int:
    """The number of a file descriptor.  Raises ValueError if `fileobj` has none any more."""
    descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
    if descriptor < 0:
        raise ValueError(f"{fileobj!r} is closed")
    return descriptor


def _asked(events: int) -> int:
    """The events of epoll for these of `selectors`.  An end only with EVENT_READ: else it would come in each turn."""
    return (EPOLLIN | EPOLLRDHUP if events & selectors.EVENT_READ else 0) | (
        EPOLLOUT if events & selectors.EVENT_WRITE else 0
    )
