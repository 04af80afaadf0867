"""librdkafka reads a compacted topic while it is compacted: of every key the newest value, and offsets only go up."""

from __future__ import annotations

from itertools import count
from random import Random

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker import running_broker

SETTINGS = {"log.cleaner.backoff.ms": "20", "group.initial.rebalance.delay.ms": "0"}
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def consumer(address: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
        }
    )
    made.subscribe(["table"])
    return made


class Table:
    """What a consumer has read."""

    def __init__(self, address: str) -> None:
        self.consumer = consumer(address)
        self.values: dict[bytes, bytes] = {}
        self.offset = -1
        self.records = 0

    def read(self) -> bool:
        """Some more; true at the end of the log."""
        message = self.consumer.poll(10)
        assert message is not None, "nothing comes any more"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return True
        key, value, offset = message.key(), message.value(), message.offset()
        assert isinstance(key, bytes) and offset is not None and offset > self.offset
        self.offset, self.records = offset, self.records + 1
        self.values.pop(key, None)
        if value is not None:
            self.values[key] = value
        return False


def test_it_reads_the_newest_values_while_the_log_is_cleaned() -> None:
    random, expected, sent = Random(1), dict[bytes, bytes](), 0
    with running_broker(settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("table", 1, config=TOPIC)])["table"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4", "linger.ms": 5})
        meanwhile = Table(broker.bootstrap_servers)
        for rounds in count():
            if rounds >= 12 and broker.node.cleaner.metrics.passes > 1:
                break
            assert rounds < 200, "the log is not cleaned"
            for _ in range(200):
                key, value = b"k%d" % random.randrange(40), random.randbytes(4000)
                if random.random() < 0.1:
                    producer.produce("table", key=key, value=None)
                    expected.pop(key, None)
                else:
                    producer.produce("table", key=key, value=value)
                    expected[key] = value
                sent += 1
            producer.flush(10)
            while not meanwhile.read():
                pass
        meanwhile.consumer.close()
        assert meanwhile.values == expected
        after = Table(broker.bootstrap_servers)
        while not after.read():
            pass
        after.consumer.close()
        assert after.values == expected
        assert after.records < sent / 2
