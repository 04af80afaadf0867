"""The calls of applications to their clients, told to a recorder while it lasts.  The clients know nothing of it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fencepost.client import Consumer, Producer
from fencepost.simulation.history.recorder import Recorder

Method = Callable[..., Awaitable[Any]]

#: class -> the methods that are told of; what is called all the time and says nothing new is not among them.
OPERATIONS: Final[Mapping[type[Any], Sequence[str]]] = {
    Producer: (
        "init_transactions",
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
        "abort_transaction",
        "flush",
        "close",
        "abandon",
    ),
    Consumer: ("commit", "committed", "close"),
}


@contextmanager
def told(recorder: Recorder) -> Iterator[None]:
    """While this lasts, the recorder is told of every call of a client and of how it ended."""
    former = [(owner, name, owner.__dict__[name]) for owner, names in OPERATIONS.items() for name in names]
    try:
        for owner, name, method in former:
            setattr(owner, name, _telling(method, name, recorder))
        yield
    finally:
        for owner, name, method in former:
            setattr(owner, name, method)


def _telling(method: Method, name: str, recorder: Recorder) -> Method:
    @functools.wraps(method)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        number = recorder.called(_client(self), f"{name}({_shown(arguments)})")
        try:
            result = await method(self, *arguments, **named)
        except BaseException as error:
            recorder.ended(number, error)
            raise
        recorder.ended(number, None)
        return result

    return call


def _client(client: Any) -> str:
    """The name of a client in its world, else its client id."""
    network = client._cluster.runtime.network
    return str(getattr(network, "owner", "") or client._cluster.client_id)


def _shown(arguments: Sequence[Any]) -> str:
    if not arguments or not isinstance(arguments[0], Mapping):
        return ""
    return ", ".join(
        f"{at.topic}-{at.partition}: {getattr(offset, 'offset', offset)}" for at, offset in arguments[0].items()
    )
