"""What is asked of a consumer or a producer after `close`, or by a listener meanwhile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.test_producer import simulate

from fencepost.broker import running_broker
from fencepost.client import ClosedError, Consumer, RebalanceListener, TopicPartition, blocking
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)

CONSUMER_ANSWERS: dict[str, Callable[[Consumer], Any]] = {
    "subscription": lambda reader: reader.subscription(),
    "assignment": lambda reader: reader.assignment(),
    "paused": lambda reader: reader.paused(),
    "group_metadata": lambda reader: reader.group_metadata(),
    "position": lambda reader: reader.position(AT),
    "next_offsets": lambda reader: reader.next_offsets(),
    "open_transactions": lambda reader: reader.open_transactions(),
    "seek": lambda reader: reader.seek(AT, 0),
    "seek_to_committed": lambda reader: reader.seek_to_committed(),
    "pause": lambda reader: reader.pause([AT]),
    "resume": lambda reader: reader.resume([AT]),
    "topics": lambda reader: reader.topics(),
    "partitions_for_topic": lambda reader: reader.partitions_for_topic("t"),
    "seek_to_beginning": lambda reader: reader.seek_to_beginning(),
    "seek_to_end": lambda reader: reader.seek_to_end(),
    "lag": lambda reader: reader.lag([]),
}


async def ask(reader: Consumer, call: str) -> None:
    answer = CONSUMER_ANSWERS[call](reader)
    if inspect.isawaitable(answer):
        await answer


@pytest.mark.parametrize("call", CONSUMER_ANSWERS)
def test_a_closed_consumer_says_so_whatever_it_is_asked(call: str) -> None:
    """As the Java client does: what it had is somebody else's by now."""

    async def scenario(world: World) -> None:
        async with Consumer("t", group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("r")) as reader:
            await reader.poll(10)
        with pytest.raises(ClosedError, match="is closed: make a new one"):
            await ask(reader, call)

    simulate(scenario)


def test_a_listener_may_ask_the_consumer_that_is_being_closed() -> None:
    reader: Consumer
    told: list[Any] = []

    class Asking(RebalanceListener):
        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            told.extend([reader.assignment() == partitions, reader.subscription(), reader.paused()])
            told.extend([await reader.lag([]), len(await reader.lag())])
            told.extend([reader.position(AT), reader.group_metadata().group_id, len(reader.next_offsets())])

    async def scenario(world: World) -> None:
        nonlocal reader
        reader = Consumer(group_id="group", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        reader.subscribe("t", listener=Asking())
        while not reader.assignment():
            await reader.poll(100)
        await reader.close()
        assert told == [True, ["t"], [], {}, 2, 0, "group", 2]

    simulate(scenario)


def test_flushing_a_closed_producer_has_nothing_to_wait_for() -> None:
    with running_broker() as broker:
        writer = blocking.Producer(broker.bootstrap_servers)
        sent = writer.send("t", b"")
        writer.close()
        writer.flush()
        assert sent.result().offset == 0
        with pytest.raises(ClosedError):
            writer.partitions_for("t")
