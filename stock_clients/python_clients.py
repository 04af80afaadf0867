"""The clients that are Python: Fencepost's own, confluent-kafka, aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from fencepost.client import BrokerError, TopicPartition
from fencepost.client.blocking import Producer
from fencepost.protocol.errors import ErrorCode
from stock_clients.scenario import Client, Names, Told

PATIENCE = 20  # seconds
#: What the clients log is not what they tell the application.
SILENT = logging.Logger("silent", logging.CRITICAL + 1)


def told(call: Callable[..., object], *arguments: Any, **options: Any) -> Told:
    """Make a call and name the error that it raises."""
    try:
        call(*arguments, **options)
    except BrokerError as error:
        return Told(f"{type(error).__name__} {ErrorCode(error.code).name}")
    except Exception as error:
        return Told(type(error).__name__)
    return Told()


class FencepostProducer:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.producer = Producer(
            names.bootstrap,
            transactional_id=names.transactional_id,
            transaction_timeout_ms=names.timeout_ms,
            max_block_ms=PATIENCE * 1000,
        )

    def start(self) -> Told:
        return told(self.producer.init_transactions)

    def begin(self) -> Told:
        return told(self.producer.begin_transaction)

    def send(self, partition: int, value: str) -> Told:
        return told(lambda: self.producer.send(self.names.topic, value.encode(), partition=partition).result())

    def offsets(self, offset: int) -> Told:
        positions = {TopicPartition(self.names.topic, 0): offset}
        return told(self.producer.send_offsets_to_transaction, positions, self.names.group)

    def commit(self) -> Told:
        return told(self.producer.commit_transaction)

    def abort(self) -> Told:
        return told(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close()


class ConfluentProducer:
    def __init__(self, names: Names) -> None:
        self.names = names
        config = {
            "bootstrap.servers": names.bootstrap,
            "transactional.id": names.transactional_id,
            "transaction.timeout.ms": names.timeout_ms,
        }
        self.producer: Any = confluent_kafka.Producer(config, logger=SILENT)

    def _told(self, call: Callable[..., object], *arguments: Any) -> Told:
        try:
            call(*arguments)
        except confluent_kafka.KafkaException as error:
            return self._name(error.args[0])
        return Told()

    def _name(self, error: Any) -> Told:
        kind = "fatal" if error.fatal() else "abort" if error.txn_requires_abort() else ""
        return Told(error.name() + (f" ({kind})" if kind else ""))

    def start(self) -> Told:
        return self._told(self.producer.init_transactions, PATIENCE)

    def begin(self) -> Told:
        return self._told(self.producer.begin_transaction)

    def send(self, partition: int, value: str) -> Told:
        failed: Any = None

        def delivered(error: Any, _: object) -> None:
            nonlocal failed
            failed = error  # and no call: a fatal error may be on its way out of flush() meanwhile

        def send() -> None:
            self.producer.produce(self.names.topic, value.encode(), partition=partition, on_delivery=delivered)
            self.producer.flush(PATIENCE)

        refused = self._told(send)
        return refused or (self._name(failed) if failed else Told())

    def offsets(self, offset: int) -> Told:
        consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": self.names.bootstrap, "group.id": self.names.group}, logger=SILENT
        )
        positions = [confluent_kafka.TopicPartition(self.names.topic, 0, offset)]
        try:
            group = consumer.consumer_group_metadata()
            return self._told(self.producer.send_offsets_to_transaction, positions, group, PATIENCE)
        finally:
            consumer.close()

    def commit(self) -> Told:
        return self._told(self.producer.commit_transaction, PATIENCE)

    def abort(self) -> Told:
        return self._told(self.producer.abort_transaction, PATIENCE)

    def close(self) -> None:
        self.producer.purge()


class AiokafkaProducer:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda *_: None)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.producer: Any = None

    def _run(self, awaited: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(awaited, PATIENCE), self.loop).result()

    async def _start(self) -> None:
        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.names.bootstrap,
            transactional_id=self.names.transactional_id,
            transaction_timeout_ms=self.names.timeout_ms,
        )
        await self.producer.start()

    def start(self) -> Told:
        return told(lambda: self._run(self._start()))

    def begin(self) -> Told:
        return told(lambda: self._run(self.producer.begin_transaction()))

    def send(self, partition: int, value: str) -> Told:
        sending = self.producer.send_and_wait(self.names.topic, value.encode(), partition=partition)
        return told(lambda: self._run(sending))

    def offsets(self, offset: int) -> Told:
        positions = {aiokafka.TopicPartition(self.names.topic, 0): offset}
        return told(lambda: self._run(self.producer.send_offsets_to_transaction(positions, self.names.group)))

    def commit(self) -> Told:
        return told(lambda: self._run(self.producer.commit_transaction()))

    def abort(self) -> Told:
        return told(lambda: self._run(self.producer.abort_transaction()))

    def close(self) -> None:
        if self.loop.is_closed():
            return
        told(lambda: self._run(self.producer.stop()))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class KafkaPythonProducer:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.producer: Any = kafka.KafkaProducer(
            bootstrap_servers=names.bootstrap,
            transactional_id=names.transactional_id,
            transaction_timeout_ms=names.timeout_ms,
            max_block_ms=PATIENCE * 1000,
        )

    def start(self) -> Told:
        return told(self.producer.init_transactions)

    def begin(self) -> Told:
        return told(self.producer.begin_transaction)

    def send(self, partition: int, value: str) -> Told:
        def send() -> None:
            self.producer.send(self.names.topic, value.encode(), partition=partition).get(PATIENCE)

        return told(send)

    def offsets(self, offset: int) -> Told:
        positions = {kafka.TopicPartition(self.names.topic, 0): kafka.structs.OffsetAndMetadata(offset, "", -1)}
        return told(self.producer.send_offsets_to_transaction, positions, self.names.group)

    def commit(self) -> Told:
        return told(self.producer.commit_transaction)

    def abort(self) -> Told:
        return told(self.producer.abort_transaction)

    def close(self) -> None:
        told(self.producer.close, timeout=1)


#: distribution -> how its producer is made
PYTHON_CLIENTS: dict[str, Client] = {
    "fencepost": FencepostProducer,
    "confluent-kafka": ConfluentProducer,
    "aiokafka": AiokafkaProducer,
    "kafka-python": KafkaPythonProducer,
}


def version(client: str) -> str:
    return importlib.metadata.version(client)


LOGGERS = ("aiokafka", "kafka", "fencepost")


def quiet() -> None:
    """Keep the clients' own logs out of the way."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
