"""The blocking face does what the asynchronous one does, over real sockets."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import client
from fencepost.broker import Broker, running_broker
from fencepost.client import OffsetAndMetadata, ProducerFencedError, TopicPartition, blocking
from fencepost.client.blocking import Admin, Consumer, ExactlyOnce, Producer
from fencepost.client.errors import ClosedError, MisuseError

AT = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    with running_broker(settings=settings | {"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


def fail_in(producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"aborted", partition=0)
        raise ZeroDivisionError


def test_a_transaction_is_written_and_read(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topic("t", partitions=1)
        assert "t" in admin.topics() and admin.partitions("t") == 1
    with Producer(servers, transactional_id="id") as producer:
        producer.init_transactions()
        with producer.transaction():
            sent = producer.send("t", b"kept", key=b"k", partition=0)
            producer.send_offsets_to_transaction({AT: 7}, "group")
        assert sent.result().offset == 0
        with pytest.raises(ZeroDivisionError):
            fail_in(producer)
        with Admin(servers) as admin:
            assert admin.list_transactions() == {"id": "CompleteAbort"}
        successor = Producer(servers, transactional_id="id")
        successor.init_transactions()
        successor.close()
        producer.begin_transaction()
        producer.send("t", b"zombie", partition=0)
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    with Consumer("t", bootstrap_servers=servers, group_id="readers") as consumer:
        record = next(consumer)
        assert (record.key, record.value) == (b"k", b"kept")
        assert consumer.poll(300) == []
        consumer.commit()
        assert consumer.position(AT) == consumer.end_offsets([AT])[AT]
    with Consumer(bootstrap_servers=servers, group_id="group") as consumer:
        position = consumer.committed([AT])[AT]
        assert position is not None and position.offset == 7


def test_a_closed_one_says_so(broker: Broker) -> None:
    producer = Producer(broker.bootstrap_servers)
    producer.close()
    with pytest.raises(MisuseError, match="closed"):
        producer.send("t", b"")


#: What the blocking face has no use for: it starts by itself, and its objects are closed.
ASYNCIO_ONLY = {"start", "abandon", "check_transactional", "as_of_now"}


def public(kind: type) -> dict[str, inspect.Signature]:
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(method) for name, method in methods if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin", "ExactlyOnce", "Transaction"])
def test_it_has_every_method_of_the_asyncio_client_with_the_same_parameters(name: str) -> None:
    theirs, ours = public(getattr(client, name)), public(getattr(blocking, name))
    assert {method: signature.parameters for method, signature in ours.items()} == {
        method: signature.parameters for method, signature in theirs.items() if method not in ASYNCIO_ONLY
    }


@pytest.mark.parametrize("name", [name for name in public(client.Admin) if name != "close"])
def test_the_admin_hands_on_every_argument_and_the_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {parameter: object() for parameter in public(client.Admin)[name].parameters if parameter != "self"}
    handed: list[Any] = []
    signature = inspect.signature(getattr(client.Admin, name))

    async def noted(*args: Any, **options: Any) -> str:
        handed.append(signature.bind(*args, **options).arguments)
        return "the answer"

    monkeypatch.setattr(client.Admin, name, noted)
    with blocking.Admin("127.0.0.1:1") as admin:
        answer = getattr(admin, name)(**given)
    assert {parameter: value for parameter, value in handed[0].items() if parameter != "self"} == given
    assert answer == (None if signature.return_annotation == "None" else "the answer")


@pytest.mark.parametrize(
    "kind", [getattr(of, name) for of in (client, blocking) for name in client.__all__ if hasattr(of, name)]
)
def test_every_public_method_says_what_it_does(kind: type) -> None:
    assert (kind.__doc__ or "").strip()
    silent = [
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and not (method.__doc__ or "").strip()
    ]
    assert silent == []


def copy_until(loop: ExactlyOnce, count: int, error: type[BaseException] | None = None) -> None:
    for transaction in loop:
        with transaction:
            for record in transaction.records:
                transaction.send("out", record.value)
            if error is not None:
                raise error
        assert transaction.committed
        count -= len(transaction.records)
        if count <= 0:
            loop.stop()


def test_records_are_read_and_written_in_one_transaction(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Producer(servers) as filler:
        for number in range(10):
            filler.send("t", b"%d" % number).result()
    with (
        Consumer("t", bootstrap_servers=servers, group_id="group", auto_commit=False) as consumer,
        Producer(servers, transactional_id="id") as producer,
    ):
        for error in (ZeroDivisionError, KeyboardInterrupt):
            with pytest.raises(error):
                copy_until(ExactlyOnce(consumer, producer, max_records=3), 10, error)
        copy_until(ExactlyOnce(consumer, producer, max_records=3), 10)
    with Consumer("out", bootstrap_servers=servers) as judge:
        found = [next(judge).value for _ in range(10)] + [record.value for record in judge.poll(300)]
    assert sorted(found, key=str) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("which", ["consumer", "producer"])
def test_a_loop_whose_client_was_closed_says_so(broker: Broker, which: str) -> None:
    servers = broker.bootstrap_servers
    with Producer(servers) as filler:
        filler.send("t", b"1").result()
    with (
        Consumer("t", bootstrap_servers=servers, group_id="group", auto_commit=False) as consumer,
        Producer(servers, transactional_id="id") as producer,
    ):
        loop = ExactlyOnce(consumer, producer)
        (consumer if which == "consumer" else producer).close()
        with pytest.raises(ClosedError):
            next(loop)


def test_records_are_looked_for_by_time_and_partitions_paused(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Producer(servers) as producer:
        for second in (1, 2):
            producer.send("t", b"%d" % second, partition=0, timestamp=second * 1000).result()
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([AT])
        assert consumer.offsets_for_times({AT: 1500}) == {AT: (1, 2000)}
        assert consumer.offsets_for_times({AT: 2001}) == {AT: None}
        assert [record.value for record in consumer.poll(5000)] != []
        consumer.seek(AT, 0)
        consumer.pause([AT])
        assert consumer.poll(300) == []
        consumer.resume([AT])
        assert next(consumer).value == b"1"


def test_transactions_come_in_commit_order(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topic("t", partitions=1)
    how: dict[str, Any] = {"group_id": "g", "auto_commit": False, "delivery": "commit_order"}
    with Producer(servers, transactional_id="one") as one, Producer(servers, transactional_id="two") as two:
        for producer in (one, two):
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(2):
                producer.send("t", b"one" if producer is one else b"two", partition=0).result()
        two.commit_transaction()
        with Consumer("t", bootstrap_servers=servers, **how) as consumer:
            assert next(consumer).value == b"two"
            assert [found.first_offset for found in consumer.open_transactions()] == [0]
            assert consumer.next_offsets() == {AT: OffsetAndMetadata(0, "commit-order/1 4 2")}
            consumer.commit()
        one.commit_transaction()
        with Consumer("t", bootstrap_servers=servers, **how) as consumer:
            assert [next(consumer).value for _ in range(3)] == [b"two", b"one", b"one"]
            consumer.seek(AT, OffsetAndMetadata(0, "commit-order/1 4 2"))
            assert next(consumer).value == b"two"
