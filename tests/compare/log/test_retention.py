"""What retention and DeleteRecords leave of a partition of one segment, next to a running Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compare.nodes.connection import wait_until
from tests.compare.nodes.two_nodes import two_nodes

pytestmark = pytest.mark.compare

OLD = 3_600_000
"""Milliseconds ago; of the topics that keep what is as old as that `retention.ms` is twice as much."""
CHECKED_EVERY_MS = 300
_PATIENCE = 60.0
ROUNDS = 8
"""Of looking at retention that a node is given."""
SHORT, LONG = {"retention.ms": "1000"}, {"retention.ms": str(2 * OLD)}
SMALL = {"retention.ms": "-1", "retention.bytes": "100"}

Ends = list[tuple[int, int]]


class Node:
    """A node, and topics with one partition."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._transactions: list[Producer] = []

    def make(self, topic: str, settings: dict[str, str]) -> None:
        wanted = NewTopic(topic, 1, 1, config=settings)
        self._admin.create_topics([wanted])[topic].result(30)

    def send(self, topic: str, *ages_ms: int) -> None:
        """A batch for each record, so old."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for age in ages_ms:
            producer.produce(topic, b"x" * 200, partition=0, timestamp=int(time.time() * 1000) - age)
            assert producer.flush(30) == 0

    def open_transaction(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0, timestamp=int(time.time() * 1000) - OLD)
        assert producer.flush(30) == 0
        self._transactions.append(producer)

    def delete(self, topic: str, before: int) -> None:
        place = TopicPartition(topic, 0, before)
        self._admin.delete_records([place])[place].result(30)

    def ends(self, topic: str) -> tuple[int, int]:
        """Where the log begins, and where it ends."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "none", "isolation.level": "read_uncommitted"}
        )
        try:
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
        finally:
            consumer.close()
        return start, end


class Case(NamedTuple):
    """Settings of a topic, how old its records are, and before which offset they are deleted."""

    settings: dict[str, str]
    ages: tuple[int, ...] = ()
    deleted_before: int | None = None

    def act(self, node: Node, topic: str) -> None:
        node.send(topic, *self.ages)
        if self.deleted_before is not None:
            node.delete(topic, self.deleted_before)


CASES = {
    "empty": Case(SHORT),
    "expired": Case(SHORT, (OLD, OLD)),
    "kept": Case(LONG, (OLD, OLD)),
    "one-is-young": Case({"retention.ms": str(OLD // 2)}, (OLD, 0, OLD)),
    "by-size": Case(SMALL, (0, 0, 0)),
    "by-size-in-small-segments": Case(SMALL | {"segment.bytes": "1048576"}, (OLD,) * 5),
    "compacted": Case(SHORT | {"cleanup.policy": "compact"}),
    "deleted-in-the-middle": Case(LONG, (0, 0, 0), 2),
    "deleted-whole": Case(LONG, (0, 0, 0), -1),
    "deleted-and-expired": Case(SHORT, (OLD, OLD), 1),
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Node, Node]]:
    settings = {"log.retention.check.interval.ms": str(CHECKED_EVERY_MS)}
    with two_nodes(settings, only_kafka={"log.initial.task.delay.ms": "100"}) as both:
        kafka, ours = (Node(address) for address in both.addresses)
        yield kafka, ours


def after_retention(nodes: tuple[Node, Node], topics: Sequence[str], have_come: str, at: Ends) -> tuple[Ends, Ends]:
    """The ends of these topics on both nodes, some rounds after one of them has got where it must get."""
    for number, node in enumerate(nodes):
        wait_until(lambda node=node, n=number: node.ends(have_come) == at[n], _PATIENCE, f"{have_come} at {at[number]}")  # type: ignore[misc]
    time.sleep(ROUNDS * CHECKED_EVERY_MS / 1000)
    theirs, ours = ([node.ends(topic) for topic in topics] for node in nodes)
    return theirs, ours


def test_retention_and_delete_records_leave_the_same(nodes: tuple[Node, Node]) -> None:
    for node in nodes:
        for name, case in CASES.items():
            node.make(name, case.settings)
        for name, case in CASES.items():
            case.act(node, name)
    theirs, ours = after_retention(nodes, list(CASES), "expired", [(2, 2), (2, 2)])
    print(theirs)
    assert ours == theirs


def test_retention_takes_nothing_of_an_open_transaction(nodes: tuple[Node, Node]) -> None:
    """Apache Kafka does (`fencepost.broker.differences`)."""
    for node in nodes:
        node.make("open", SHORT)
        node.send("open", OLD)
        wait_until(lambda node=node: node.ends("open") == (1, 1), _PATIENCE, "the first segment is gone")  # type: ignore[misc]
        node.open_transaction("open")
    assert after_retention(nodes, ["open"], "open", [(2, 2), (1, 2)]) == ([(2, 2)], [(1, 2)])
