"""A record is handed over at once only where nothing has to come first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.sending import Sending
from fencepost.client.transaction_state import State
from fencepost.client.transactions import Transactions


class Scene:
    """A producer with room, a known topic and an open transaction."""

    def __init__(self) -> None:
        self.taken, self.chosen = list[Any](), 0
        self.topic_is_known, self.batch_is_full = True, False
        self.partitioner = SimpleNamespace(another=lambda topic: self.taken.append(("another", topic)))
        self.sender: Any = SimpleNamespace(is_full=False, append=self._append)
        cluster: Any = SimpleNamespace(
            home=SimpleNamespace(check=lambda: None),
            runtime=SimpleNamespace(clock=SimpleNamespace(now=lambda: 50)),
            deadline=lambda _: None,
        )
        placement: Any = SimpleNamespace(known=self._known, partitioner=self.partitioner)
        self.rules: Any = object.__new__(Transactions)
        self.rules._error, self.rules._started = None, False
        self.open_transaction(True)
        made: Any = Sending(cluster, placement, self.rules, 1000)
        self.sending = made
        self.sending.sender = self.sender

    def open_transaction(self, is_open: bool) -> None:
        self.rules._state = State.IN_TRANSACTION if is_open else State.READY

    def _append(self, *record: Any) -> tuple[str, bool]:
        self.taken.append(record)
        return "a future", self.batch_is_full

    def _known(self, *_: Any) -> int:
        self.chosen += 1
        return 3 if self.topic_is_known else -1

    def send(self, value: Any = b"v") -> Any:
        return self.sending.at_once("t", value, b"k", None, None, ())


def test_it_is_put_into_its_batch_and_noted() -> None:
    scene = Scene()
    assert scene.send() == "a future"
    assert scene.taken == [(("t", 3), 50, b"k", b"v", ())]
    assert scene.rules._started, "the end of the transaction is to be told"


@pytest.mark.parametrize("why", ["no transaction", "failed", "full", "closed", "no record", "unknown topic"])
def test_what_has_to_come_first_does(why: str) -> None:
    """Nothing is changed then; of what would be asked again nothing is asked but whether the topic is known."""
    scene = Scene()
    if why == "no transaction":
        scene.open_transaction(False)
    elif why == "failed":
        scene.rules._error = ValueError()
    elif why == "full":
        scene.sender.is_full = True
    elif why == "closed":
        scene.sending.sender = None
    elif why == "unknown topic":
        scene.topic_is_known = False
    assert scene.send("a str" if why == "no record" else b"v") is None
    assert scene.taken == [] and not scene.rules._started
    assert scene.chosen == (why == "unknown topic")


def test_answers_are_let_in_when_a_batch_is_full() -> None:
    asyncio.run(_answers_are_let_in(Scene(), []))


async def _answers_are_let_in(scene: Scene, answered: list[int]) -> None:
    scene.batch_is_full = True
    scene.send()
    assert scene.taken[-1] == ("another", "t")
    assert scene.send() is None
    asyncio.get_running_loop().call_soon(answered.append, 1)
    scene.batch_is_full = False

    async def check() -> Any:
        return scene.sender

    sent: Any = await scene.sending.send(check, "t", b"v", b"k", None, None, ())
    assert sent == "a future"
    assert answered == [1]
    assert scene.send() == "a future"
