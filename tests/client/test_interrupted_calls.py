"""A blocking caller that is interrupted when its records are there already: they are not lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.broker import Broker, running_broker
from fencepost.client import OffsetAndMetadata, TopicPartition, portal
from fencepost.client.blocking import Admin, Consumer, ExactlyOnce, Producer

AT = TopicPartition("t", 0)
RECORDS = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    with running_broker(settings=settings | {"group.initial.rebalance.delay.ms": 0}) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(servers, transactional_id="filler") as filler:
            filler.init_transactions()
            for half in range(2):
                with filler.transaction():
                    for number in range(RECORDS // 2):
                        filler.send("t", b"%d" % (half * (RECORDS // 2) + number), partition=0)
        yield broker


def interrupt(call: Callable[[], Any], patch: pytest.MonkeyPatch) -> None:
    """Have it interrupted when what it waits for has ended with a result."""

    class Interrupted(portal.Flag):
        waits = 0

        def wait(self) -> None:
            Interrupted.waits += 1
            first = Interrupted.waits == 1
            super().wait()
            if first:
                raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(portal, "Flag", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            call()


def interrupt_taking(take: Callable[[Consumer], object], consumer: Consumer, patch: pytest.MonkeyPatch) -> None:
    """The same where nothing is lent to the thread, which it would take without waiting."""
    consumer.next_offsets()
    interrupt(lambda: take(consumer), patch)


def one_by_one(consumer: Consumer) -> list[int]:
    return [int(next(consumer).value or b"")]


def three(consumer: Consumer) -> list[int]:
    return [int(record.value or b"") for record in consumer.poll(5000, 3)]


@pytest.mark.parametrize("delivery", ["offset_order", "commit_order"])
@pytest.mark.parametrize("take", [one_by_one, three])
def test_records_come_again_and_are_not_committed_before(
    broker: Broker, take: Callable[[Consumer], list[int]], delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "delivery": delivery}
    how["fetch_max_wait_ms"] = 20
    found = list[int]()
    with Consumer("t", auto_commit_interval_ms=1, **how) as consumer:
        while len(found) < RECORDS:
            interrupt_taking(take, consumer, monkeypatch)
            # Behind each half there is a marker.
            assert consumer.position(AT) <= len(found) + len(found) // (RECORDS // 2)
            consumer.commit()
            interrupt_taking(take, consumer, monkeypatch)
            found += take(consumer)
        assert found == list(range(RECORDS))
        consumer.commit()
        interrupt(lambda: consumer.poll(10), monkeypatch)  # nothing came
        assert consumer.poll(10) == []
        consumer.seek(AT, 0)
        interrupt_taking(take, consumer, monkeypatch)
        consumer.pause([AT])
        assert consumer.poll(10) == []
        consumer.resume([AT])
        assert take(consumer)[0] == 0
        interrupt_taking(take, consumer, monkeypatch)
        consumer.seek(AT, OffsetAndMetadata(5))
        assert take(consumer)[0] == 5


def test_they_are_committed_by_nobody_who_leaves_then(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
    with Consumer("t", **how) as consumer:
        assert three(consumer) == [0, 1, 2]
        interrupt(lambda: three(consumer), monkeypatch)
    with Consumer("t", **how) as consumer:
        assert three(consumer) == [3, 4, 5]


def test_a_loop_of_transactions_hands_them_out_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    servers, found = broker.bootstrap_servers, list[int]()
    with (
        Consumer("t", bootstrap_servers=servers, group_id="g", auto_commit=False, fetch_max_wait_ms=20) as consumer,
        Producer(servers, transactional_id="id") as producer,
    ):
        loop = ExactlyOnce(consumer, producer, max_records=7)
        while len(found) < RECORDS:
            interrupt(lambda: next(loop), monkeypatch)
            with next(loop) as transaction:
                found += [int(record.value or b"") for record in transaction.records]
    assert found == list(range(RECORDS))
