"""A blocking client that nobody closes: what it was handed goes out, its group is left, and its thread ends."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.client.forgetting import what_is_said_of_clients_that_go

from fencepost.broker import Broker, running_broker
from fencepost.client import NewTopic, RebalanceListener
from fencepost.client.blocking import Admin, Consumer, ExactlyOnce, Producer
from fencepost.client.portal import Portal

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_broker(settings={"num.partitions": 1, "group.initial.rebalance.delay.ms": 0}) as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t"), NewTopic("out")])
        yield running


def portals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fencepost-client"]


@pytest.fixture(autouse=True)
def every_thread_ends(broker: Broker) -> Iterator[None]:  # noqa: ARG001 - it is there until then
    before = set(portals())
    yield
    gc.collect()
    for thread in set(portals()) - before:
        thread.join(60)
        assert not thread.is_alive(), "the thread of a client that is forgotten stays"


class Holding(RebalanceListener):
    """One that leads to its consumer, as many do: the two are found by the cycle collector only."""

    consumer: Consumer


def a_producer(servers: str) -> None:
    Producer(servers).send("t", b"1", partition=0)


def a_transactional_producer(servers: str) -> None:
    producer = Producer(servers, transactional_id="id")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"aborted", partition=0).result()


def a_consumer(servers: str) -> None:
    next(Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest"))


def a_member(servers: str) -> None:
    consumer, listener = Consumer(bootstrap_servers=servers, group_id="g"), Holding()
    listener.consumer = consumer
    consumer.subscribe("t", listener=listener)
    next(consumer)


def an_admin(servers: str) -> None:
    Admin(servers).topics()


def one_that_could_not_be_made(servers: str) -> None:
    with pytest.raises(ValueError, match="delivery"):
        Consumer("t", bootstrap_servers=servers, delivery="by hand")


@pytest.mark.parametrize(
    "forget",
    [a_producer, a_transactional_producer, a_consumer, a_member, an_admin, one_that_could_not_be_made],
    ids=lambda forget: forget.__name__,
)
def test_the_thread_of_a_client_that_is_forgotten_ends(broker: Broker, forget: Callable[[str], None]) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"0", partition=0).result()
    forget(broker.bootstrap_servers)


def test_what_a_forgotten_producer_was_handed_is_sent_and_its_result_told(broker: Broker) -> None:
    deliveries = [Producer(broker.bootstrap_servers, linger_ms=300).send("t", b"%d" % n, partition=0) for n in range(3)]
    assert sorted(delivery.result().offset for delivery in reversed(deliveries)) == [0, 1, 2]
    with Consumer("t", bootstrap_servers=broker.bootstrap_servers) as reader:
        assert sorted(next(reader).value or b"" for _ in range(3)) == [b"0", b"1", b"2"]
    gc.collect()
    while portals():
        time.sleep(0.01)
    assert [delivery.result().partition for delivery in deliveries] == [0] * 3


def test_the_group_of_a_forgotten_consumer_goes_on_at_once_behind_what_it_had_done(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Producer(servers) as producer, Admin(servers) as admin:
        for number in range(5):
            producer.send("t", b"%d" % number, partition=0).result()
        a_member(servers)
        gc.collect()
        while admin.describe_groups(["g"])["g"].members:
            time.sleep(0.01)
        with Consumer("t", bootstrap_servers=servers, group_id="g") as heir:
            assert next(heir).value == b"0"  # whether it was done with this one nobody knows


def test_a_loop_keeps_the_consumer_that_nobody_else_has(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Producer(servers) as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, partition=0).result()
    made = ExactlyOnce(
        Consumer("t", bootstrap_servers=servers, group_id="g", auto_commit=False),
        Producer(servers, transactional_id="id"),
        max_records=1,
    )
    for number, transaction in enumerate(made):
        gc.collect()
        if number == 2:
            del made
            gc.collect()
        with transaction:
            assert transaction.records[0].value == b"%d" % number
            transaction.send("out", b"x")
        assert transaction.committed
        if number == 2:
            break


@pytest.mark.parametrize("kind", ["Producer(A)", "Consumer('t', bootstrap_servers=A, group_id='g')", "Admin(A)"])
def test_it_is_said_what_should_have_been_done(kind: str, broker: Broker) -> None:
    named: dict[str, Any] = {"A": broker.bootstrap_servers, "Producer": Producer, "Consumer": Consumer, "Admin": Admin}
    with pytest.warns(ResourceWarning, match=r"was not closed.*in a `with` .*block, or close\(\) it"):
        eval(kind, named)
    with what_is_said_of_clients_that_go() as said, eval(kind, named):
        pass
    assert said == [], "who is closed says nothing"


def test_a_process_ends_at_once_though_its_clients_are_at_work(broker: Broker) -> None:
    lines = [
        "from fencepost.client.blocking import *",
        "import threading",
        f"A = {broker.bootstrap_servers!r}",
        "p = [Producer(A, linger_ms=60_000) for _ in range(3)]",
        "c = Consumer('t', bootstrap_servers=A, group_id='g')",
        "threading.Thread(target=c.poll, args=(60_000,), daemon=True).start()",
        "def send():",
        "    while True: p[0].send('t', b'1')",
        "threading.Thread(target=send, daemon=True).start()",
        "p[1].send('t', b'1')",
        "Admin(A).topics()",
        "del p[2]",
    ]
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_what_is_asked_while_it_ends_is_answered_or_refused_and_nothing_is_begun_after() -> None:
    portal, ended = Portal(), list[str]()

    async def last() -> None:
        ended.append("last")

    portal.abandon(last)
    portal.abandon(last)
    portal._thread.join(60)
    portal.abandon(last)
    portal.close()
    assert ended == ["last"]


def test_a_transaction_keeps_the_consumer_when_the_loop_is_gone_too(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    Producer(servers).send("t", b"1", partition=0).result()
    reader = Consumer("t", bootstrap_servers=servers, group_id="g", auto_commit=False)
    with next(ExactlyOnce(reader, Producer(servers, transactional_id="id"))) as transaction:
        del reader
        gc.collect()
        transaction.send("out", b"x")
    assert transaction.committed
