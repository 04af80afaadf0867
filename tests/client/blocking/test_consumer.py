"""What a blocking consumer hands on is what it was given, and its listener is told what happened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client import consumer
from fencepost.client.blocking.consumer import Consumer, InThread
from fencepost.client.lent import Lent
from fencepost.client.rebalance_listener import RebalanceListener
from fencepost.client.records import ConsumerRecord
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import Offset, TopicPartition

AT = TopicPartition("t", 0)


class Asked:
    """Stands in for the asyncio consumer, and notes what it is asked."""

    def __init__(self, *_: str, **__: Any) -> None:
        self.calls: list[Any] = []
        self._forgotten = None
        self.fails = False
        self.iterated, self.settled = list[ConsumerRecord](), list[int]()
        self._fetcher = SimpleNamespace(
            take_back=lambda: self.calls.append("take back"),
            settle=lambda: self.settled.append(len(self.iterated)),
            followed={},
            lending=SimpleNamespace(lend=lambda *_: None),
        )

    async def commit(self, offsets: Any = None) -> None:
        self.calls.append(offsets)

    error: Exception | None = None

    def commit_async(self, offsets: Any, callback: Any) -> None:
        callback(offsets, self.error)

    async def poll(self, *_: float) -> list[Any]:
        return []

    async def poll_batch(self, *_: float) -> None:
        return None

    async def __anext__(self) -> ConsumerRecord:
        self.iterated.append(ConsumerRecord("t", 0, Offset(len(self.iterated)), 0, None, None, ()))
        return self.iterated[-1]

    async def close(self, timeout_ms: float | None = None) -> None:
        self.calls.append(timeout_ms)
        if self.fails:
            raise OSError("it does not end well")


@pytest.fixture
def blocking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    monkeypatch.setattr(consumer, "Consumer", Asked)
    made = Consumer("t", bootstrap_servers="127.0.0.1:9")
    yield made
    made._portal.close()


def asked(blocking: Consumer) -> Asked:
    found: Any = blocking._consumer
    assert isinstance(found, Asked)
    return found


def test_what_is_given_is_what_is_committed(blocking: Consumer) -> None:
    blocking.commit({AT: 3})
    blocking.commit()
    assert asked(blocking).calls == [{AT: 3}, None]


def test_what_was_lent_is_taken_back_before_more_is_asked_for(blocking: Consumer) -> None:
    assert [next(blocking), next(blocking)] == asked(blocking).iterated
    assert asked(blocking).settled == [0, 1], "before each of them"


@pytest.mark.parametrize("call", [Consumer.poll, Consumer.poll_batch, Consumer.__next__])
def test_what_comes_for_an_interrupted_caller_is_handed_out_again(
    blocking: Consumer, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(work: Any, in_vain: Any = None) -> None:
        in_vain(asyncio.run(work))
        raise KeyboardInterrupt

    monkeypatch.setattr(blocking._portal, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(blocking)
    assert asked(blocking).calls == ["take back"]


@pytest.mark.parametrize("is_lent", [False, True])
@pytest.mark.parametrize(
    "call", [Consumer.poll, Consumer.poll_batch, Consumer.__next__, Consumer.commit, Consumer.close]
)
def test_what_became_of_a_commit_is_told_by_the_next_call_in_its_thread_and_once(
    blocking: Consumer, call: Any, is_lent: bool
) -> None:
    """Also where the next record is at hand, and though some callbacks fail, as who asks for what was cancelled."""
    told = list[tuple[str, bool]]()

    def ask_for_what_was_cancelled() -> None:
        raise asyncio.CancelledError

    blocking._callbacks_due += [lambda: 1 / 0, ask_for_what_was_cancelled]

    def tell(name: str) -> None:
        told.append((name, threading.current_thread() is threading.main_thread()))

    blocking._callbacks_due += [partial(tell, "first"), partial(tell, "second")]
    record = ConsumerRecord("t", 0, Offset(0), 0, None, None, ())
    if is_lent:
        blocking._lent = cast(Lent, SimpleNamespace(next=lambda _: record))
    call(blocking)
    assert told == [("first", True), ("second", True)]
    if call is not Consumer.close:
        call(blocking)
    assert len(told) == 2


@pytest.mark.parametrize("error", [None, OSError("it was not stored")])
def test_a_callback_is_called_in_the_thread_of_the_next_call_and_the_future_is_done_before(
    blocking: Consumer, error: Exception | None
) -> None:
    told: list[tuple[Any, Exception | None, bool]] = []

    def tell(positions: Any, why: Exception | None) -> None:
        told.append((positions, why, threading.current_thread() is threading.main_thread()))

    asked(blocking).error = error
    position = OffsetAndMetadata(1)
    done = blocking.commit_async({AT: position}, tell)
    assert done.exception(5) is error
    assert told == []
    blocking.poll()
    assert told == [({AT: position}, error, True)]


@pytest.mark.parametrize("fails", [False, True])
def test_closing_takes_as_long_as_it_may_and_ends_the_thread_whatever_becomes_of_it(
    blocking: Consumer, fails: bool
) -> None:
    asked(blocking).fails = fails
    if fails:
        with pytest.raises(OSError, match="does not end well"):
            blocking.close(5)
    else:
        blocking.close(5)
    assert asked(blocking).calls == [5]
    assert not blocking._portal._thread.is_alive()


class Told(RebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append(f"revoked {partitions[0].partition}")

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(f"assigned {partitions[0].partition}")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append(f"lost {partitions[0].partition}")


def test_a_listener_is_told_each_thing_by_its_name() -> None:
    listener = Told()
    threaded = InThread(listener)

    async def tell() -> None:
        await threaded.on_partitions_assigned([TopicPartition("t", 1)])
        await threaded.on_partitions_revoked([TopicPartition("t", 2)])
        await threaded.on_partitions_lost([TopicPartition("t", 3)])

    asyncio.run(tell())
    assert listener.told == ["assigned 1", "revoked 2", "lost 3"]


def test_what_is_paused_can_be_told_while_partitions_come_and_go() -> None:
    """The caller's thread is told without the event loop, which goes on with a rebalance meanwhile."""
    followed: dict[TopicPartition, Any] = {}

    class Changing:
        """A partition; another one comes whenever somebody looks at it."""

        @property
        def paused(self) -> bool:
            followed[TopicPartition("t", len(followed))] = Changing()
            return True

    followed[AT] = Changing()
    with Consumer("t", bootstrap_servers="127.0.0.1:9") as blocking:
        blocking._consumer._fetcher.followed = followed
        assert blocking.paused() == [AT]
        blocking._consumer._fetcher.followed = {}
