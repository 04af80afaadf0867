"""What a thread is given for a record that it handed over, whoever waits for it and stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker import Broker, running_broker
from fencepost.client import portal
from fencepost.client.blocking import Admin, Producer
from fencepost.client.delivery import Delivery
from fencepost.client.errors import ClosedError


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", partitions=1)
        yield broker


def test_a_result_can_be_had_after_somebody_who_waited_for_it_was_interrupted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another thread: the record is everybody's."""
    told = list[object]()

    class Interrupted(portal.Flag):
        waits = 0

        def wait(self) -> None:
            Interrupted.waits += 1
            if Interrupted.waits == 1:
                for _ in range(3):  # what was asked for is waiting by then
                    stepped = threading.Event()
                    producer._portal.wake(stepped.set)
                    assert stepped.wait(60)
                raise KeyboardInterrupt
            super().wait()

    def wait(sent: Delivery[object]) -> None:
        try:
            told.append(sent.result())
        except BaseException as error:
            told.append(error)

    with Producer(broker.bootstrap_servers, linger_ms=1000) as producer:
        producer.send("t", b"0").result()
        sent = producer.send("t", b"1")
        other = threading.Thread(target=wait, args=[sent], daemon=True)
        with monkeypatch.context() as patched:
            patched.setattr(portal, "Flag", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                sent.result()
        other.start()
        result = sent.result()
        other.join(60)
    assert (result.offset, told) == (1, [result])


def test_what_ended_together_with_the_client_is_told_and_not_that_it_is_closed() -> None:
    """As where its thread ends since nobody has the client any more: it sends what it was handed before."""
    future: asyncio.Future[int] = asyncio.new_event_loop().create_future()

    class Ending(portal.Portal):
        def __init__(self) -> None: ...

        def call(self, work: Any, *_: Any) -> Any:
            work.close()
            future.set_result(7)
            raise ClosedError("closed")

    assert Delivery(Ending(), future).result() == 7
