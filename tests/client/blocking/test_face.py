"""Every call of a blocking client is the call of the same name of the asyncio one, with all that it was given."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from fencepost.client import admin, consumer, producer
from fencepost.client.blocking import Admin, Consumer, Producer

PAIRS: dict[Any, Any] = {Consumer: consumer.Consumer, Producer: producer.Producer, Admin: admin.Admin}
#: They do more than to hand on, and have tests of their own.
MORE = {"subscribe", "batches", "commit_async", "send", "send_many", "send_arrow", "transaction", "close"}


def handed_on() -> Iterator[Any]:
    for blocking, original in PAIRS.items():
        for name, method in inspect.getmembers(blocking, inspect.isfunction):
            if not name.startswith("_") and name not in MORE and hasattr(original, name):
                yield pytest.param(blocking, original, method, id=f"{blocking.__name__}.{name}")


class Original:
    """Notes what is called, with which arguments by name, and gives something back that nobody else has."""

    def __init__(self, of: Any) -> None:
        self._of = of
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.given = object()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        original = getattr(self._of, name)

        def called(*given: Any, **named: Any) -> Any:
            bound = inspect.signature(original).bind(self, *given, **named)
            bound.apply_defaults()
            self.calls.append((name, dict(list(bound.arguments.items())[1:])))
            return self._later() if inspect.iscoroutinefunction(original) else self.given

        return called

    async def _later(self) -> object:
        return self.given


class InThisThread:
    """In place of a portal."""

    def call(self, work: Any, *_: Any) -> Any:
        return asyncio.run(work)

    is_here = False
    """There is no thread that would have to end."""


def test_nothing_is_left_out() -> None:
    assert len(list(handed_on())) > 50


@pytest.mark.parametrize(("blocking", "original", "method"), list(handed_on()))
def test_a_call_is_handed_on_whole_and_so_is_its_result(blocking: Any, original: Any, method: Any) -> None:
    client, behind = object.__new__(blocking), Original(original)
    client._portal, client._callbacks_due = InThisThread(), []
    setattr(client, f"_{blocking.__name__.lower()}", behind)
    given = {name: object() for name in list(inspect.signature(method).parameters)[1:]}
    positional = [
        value
        for name, value in given.items()
        if inspect.signature(method).parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    named = dict(list(given.items())[len(positional) :])
    found = method(client, *positional, **named)
    assert behind.calls == [(method.__name__, given)]
    assert found is (None if inspect.signature(method).return_annotation == "None" else behind.given)


@pytest.mark.parametrize("keys", [None, [b"k", None]])
def test_many_records_are_handed_on_whole(keys: list[bytes | None] | None) -> None:
    """Whatever they are taken from is asked by the caller's own thread, once."""
    client, behind = object.__new__(Producer), Original(producer.Producer)
    client.__dict__ |= {"_portal": InThisThread(), "_producer": behind}
    given = None if keys is None else iter(keys)
    client.send_many("t", iter([b"v", None]), keys=given, partition=3, timestamp=5)
    handed = {"topic": "t", "values": [b"v", None], "keys": keys, "partition": 3, "timestamp": 5}
    assert behind.calls == [("send_many", handed)]


def test_rows_of_a_table_are_handed_on_whole() -> None:
    client, behind, rows = object.__new__(Producer), Original(producer.Producer), pa.table({"value": [b"v"]})
    client.__dict__ |= {"_portal": InThisThread(), "_producer": behind}
    client.send_arrow("t", rows, partition=3, timestamp=5)
    assert behind.calls == [("send_arrow", {"topic": "t", "rows": rows, "partition": 3, "timestamp": 5})]
