"""The blocking face does what the asynchronous one does, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.broker import Broker, running_broker
from fencepost.client import ProducerFencedError, TopicPartition
from fencepost.client.blocking import Admin, Consumer, Producer
from fencepost.client.errors import MisuseError

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
