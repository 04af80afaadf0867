"""What threads hand over to a blocking producer is written as if each had waited for the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import client
from fencepost.broker import Broker, running_broker
from fencepost.client import TopicPartition
from fencepost.client.blocking import Admin, Consumer, Delivery, Producer
from fencepost.client.errors import ClientError, ClosedError, TransactionAbortedError
from fencepost.client.interceptors import ProducerRecord


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker(settings={"transaction.state.log.num.partitions": 2}) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", partitions=1)
        yield broker


topics = (f"topic-{number}" for number in range(1 << 30))


def fresh(broker: Broker, partitions: int = 1) -> str:
    name = next(topics)
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def written(broker: Broker, topic: str, partitions: int = 1) -> list[list[bytes]]:
    """The committed records of each partition."""
    found = [list[bytes]() for _ in range(partitions)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        reader.assign(places)
        reader.seek_to_beginning(places)
        ends = reader.end_offsets(places)
        while True:
            for record in reader.poll(1000 if any(ends.values()) else 50, max_records=10_000):
                found[record.partition].append(record.value or b"")
            if all(reader.position(at) >= end for at, end in ends.items()):
                break
    return found


# What a send raises

WRONG: dict[str, dict[str, Any]] = {
    "a str as value": {"value": "v"},
    "a number as value": {"value": 5},
    "a memoryview as value": {"value": memoryview(b"v")},
    "a str as key": {"key": "k"},
    "headers that are none": {"headers": 5},
    "a str as headers": {"headers": "ab"},
    "a header without a value": {"headers": [("a",)]},
    "a header that is no pair": {"headers": [5]},
    "a str in a header": {"headers": [("a", "b")]},
    "a number as a header's name": {"headers": [(1, b"b")]},
    "half a character in a header's name": {"headers": [("\ud800", b"b")]},
    "a time before 1970": {"timestamp": -1},
    "a time beyond all": {"timestamp": 1 << 63},
    "a str as time": {"timestamp": "now"},
    "no such partition": {"partition": 99},
    "a negative partition": {"partition": -1},
    "a str as partition": {"partition": "0"},
    "True as partition": {"partition": True},
    "a number as topic": {"topic": 5},
    "a list as topic": {"topic": ["t"]},
    "no topic's name": {"topic": "not a topic!"},
    "a value that is too large": {"value": bytes(5001)},
    "a value that is a little too large": {"value": bytes(4990)},
    "a key that is too large": {"key": bytes(5000)},
    "headers that are too large": {"headers": [("a" * 2500, b"b" * 2500)]},
}


def raised(call: Callable[[], object]) -> tuple[type[BaseException], str] | None:
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("is_known", [False, True], ids=["at once", "of a topic that is known"])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_send_raises_what_that_of_the_asyncio_producer_does(
    broker: Broker, is_known: bool, transactional: bool
) -> None:
    options: dict[str, Any] = {"max_request_size": 5000, "max_block_ms": 2000}

    async def of_asyncio() -> dict[str, Any]:
        found = {}
        async with client.Producer(
            broker.bootstrap_servers, transactional_id="theirs" if transactional else None, **options
        ) as producer:
            if transactional:
                await producer.init_transactions()
                await producer.begin_transaction()
            if is_known:
                await producer.send("t", b"known")
            for what, wrong in WRONG.items():
                try:
                    await producer.send(**{"topic": "t", "value": b"v", **wrong})
                except Exception as error:
                    found[what] = type(error), str(error)
        return found

    theirs = asyncio.run(of_asyncio())
    with Producer(broker.bootstrap_servers, transactional_id="ours" if transactional else None, **options) as producer:
        if transactional:
            producer.init_transactions()
            producer.begin_transaction()
        if is_known:
            producer.send("t", b"known")
        for what, wrong in WRONG.items():
            given: dict[str, Any] = {"topic": "t", "value": b"v", **wrong}
            assert raised(lambda given=given: producer.send(**given)) == theirs.get(what), what  # type: ignore[misc]
        assert set(theirs) == set(WRONG)


def test_a_send_raises_at_once_where_no_record_is_taken(broker: Broker) -> None:
    with Producer(broker.bootstrap_servers, transactional_id="taken", max_block_ms=2000) as producer:
        send: Callable[[], object] = lambda: producer.send("t", b"v")  # noqa: E731
        moments: list[tuple[Callable[[], object], str]] = [
            (lambda: None, "it has no producer id yet"),
            (producer.init_transactions, "no transaction is open"),
            (producer.begin_transaction, ""),
            (producer.commit_transaction, "no transaction is open"),
            (producer.begin_transaction, ""),
            (producer.abort_transaction, "no transaction is open"),
            (producer.begin_transaction, ""),
            (producer.prepare_transaction, "its transaction is prepared"),
            (producer.commit_transaction, "no transaction is open"),
            (producer.close, "is closed"),
        ]
        for step, said in moments:
            step()
            for _ in range(3):
                found = raised(send)
                assert (found is None) if not said else (found is not None and said in found[1]), (step, found)


def test_what_is_changed_after_the_send_is_written_as_it_was(broker: Broker) -> None:
    topic = fresh(broker)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"known")
        value, key, header = bytearray(b"value"), bytearray(b"key"), bytearray(b"header")
        headers: Any = [("h", header), ["null", None]]
        given: Any = {"value": value, "key": key, "headers": headers}
        producer.send(topic, **given)
        value[:], key[:], header[:] = b"other", b"oth", b"others"
        headers.clear()
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0)])
        records = [next(reader) for _ in range(2)]
    assert (records[1].value, records[1].key) == (b"value", b"key")
    assert [tuple(each) for each in records[1].headers] == [("h", b"header"), ("null", None)]


class Noting:
    """An interceptor that changes what is sent."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=(record.value or b"") + b"!")

    def on_acknowledgement(self, *_: object) -> None:
        pass


def test_interceptors_see_each_record(broker: Broker) -> None:
    topic = fresh(broker)
    with Producer(broker.bootstrap_servers, interceptors=[Noting()]) as producer:
        for _ in range(3):
            producer.send(topic, b"v")
    assert written(broker, topic) == [[b"v!"] * 3]


def test_a_partitioner_is_asked_once_for_each_record_and_never_by_two_threads_at_once(broker: Broker) -> None:
    topic, asked, inside = fresh(broker, 2), list[bytes | None](), threading.Lock()

    def partitioner(_: str, key: bytes | None, __: Any) -> int:
        assert inside.acquire(blocking=False), "two at once"
        threading.Event().wait(0.0001)
        asked.append(key)
        inside.release()
        return len(asked) % 2

    def send(thread: int, producer: Producer) -> None:
        for number in range(50):
            producer.send(topic, b"", key=b"%d %d" % (thread, number))
        producer.send_many(topic, [b""] * 20, keys=[b"%d many %d" % (thread, number) for number in range(20)])

    with Producer(broker.bootstrap_servers, partitioner=partitioner) as producer:
        threads = [threading.Thread(target=send, args=(thread, producer)) for thread in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    assert len(asked) == len(set(asked)) == 3 * 70
    assert sum(map(len, written(broker, topic, 2))) == len(asked)


# Order, waiting, and what a call sees


def test_records_are_in_the_order_of_the_calls_whichever_they_were(broker: Broker) -> None:
    topic = fresh(broker)
    with Producer(broker.bootstrap_servers, max_request_size=5000) as producer:
        for number in range(0, 600, 6):
            producer.send(topic, b"%d" % number)
            producer.send(topic, b"%d" % (number + 1), headers=[("h", None)])
            producer.send_many(topic, [b"%d" % (number + 2), b"%d" % (number + 3)])
            producer.send(topic, b"%d" % (number + 4))
            producer.send(topic, b"%d" % (number + 5), headers=[("h", bytes(4850))])  # it may be too large
    assert written(broker, topic) == [[b"%d" % number for number in range(600)]]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_send_waits_while_the_buffer_is_full(broker: Broker, threads: int) -> None:
    topic, most, limit, size = fresh(broker), 0, 20_000, 500
    with Producer(broker.bootstrap_servers, buffer_bytes=limit, batch_bytes=4000) as producer:

        def send() -> None:
            nonlocal most
            for _ in range(1000):
                producer.send(topic, bytes(size))
                most = max(most, producer.statistics().buffer_used_bytes)

        working = [threading.Thread(target=send) for _ in range(threads)]
        for each in working:
            each.start()
        for each in working:
            each.join(60)
    assert limit // 2 < most <= limit + threads * (size + 100)
    assert len(written(broker, topic)[0]) == threads * 1000


def test_a_result_can_be_had_after_the_end_too(broker: Broker) -> None:
    topic = fresh(broker)
    with Producer(broker.bootstrap_servers, linger_ms=1000) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(100)]
        assert producer.statistics().records_waiting == 100
    assert [each.result().offset for each in sent] == list(range(100))
    assert producer.statistics().record_send_total == 100


ENDS = st.sampled_from(["commit", "abort"])


class Worker(threading.Thread):
    """Sends to a partition of its own until it is told to stop, and notes what was taken by its number."""

    def __init__(self, producer: Producer, topic: str, number: int, at_once: int) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic, self._number, self._at_once = producer, topic, number, at_once
        self.taken: list[tuple[int, Delivery[Any]]] = []
        self.stopped = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        number = 0
        try:
            while not self.stopped.is_set():
                try:
                    sent = self._producer.send(self._topic, b"%d" % number, partition=self._number)
                except ClosedError:
                    return
                except ClientError:  # no transaction is open
                    self.stopped.wait(0.0005)
                    continue
                self.taken.append((number, sent))
                number += 1
                if number % self._at_once == 0:
                    self.stopped.wait(0.0005)  # for the broker, which is in this process too
        except BaseException as error:
            self.error = error


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ends=st.lists(ENDS, max_size=5), at_once=st.lists(st.sampled_from([1, 7, 100]), min_size=1, max_size=3))
def test_what_was_taken_is_written_with_its_transaction_whatever_threads_do_meanwhile(
    broker: Broker, ends: list[str], at_once: list[int]
) -> None:
    """Threads send all the time, while one begins transactions and ends them, and closes the producer at last."""
    topic = fresh(broker, len(at_once))
    producer = Producer(broker.bootstrap_servers, transactional_id=topic)
    producer.init_transactions()
    workers = [Worker(producer, topic, number, most) for number, most in enumerate(at_once)]
    for worker in workers:
        worker.start()
    for end in ends:
        producer.begin_transaction()
        threading.Event().wait(0.003)
        if end == "commit":
            producer.flush()
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.begin_transaction()
    threading.Event().wait(0.003)
    producer.close()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive() and worker.error is None
    for number, found in enumerate(written(broker, topic, len(at_once))):
        committed, aborted = list[int](), list[int]()
        for record, sent in workers[number].taken:
            try:
                sent.result()
                committed.append(record)
            except TransactionAbortedError:
                aborted.append(record)
        shown = [int(value) for value in found]
        # What an abort came upon may have been acknowledged before.
        assert shown == [record for record in committed if record in set(shown)]
        assert not set(aborted) & set(shown)
        if "abort" not in ends:
            last = len(shown)
            assert shown == list(range(last)), "all that was taken in the transactions that were committed"


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at_once=st.lists(st.sampled_from([1, 7, 100]), min_size=1, max_size=4), wait=st.sampled_from([0.0, 0.002, 0.01]))
def test_what_was_taken_before_the_end_is_written(broker: Broker, at_once: list[int], wait: float) -> None:
    topic = fresh(broker, len(at_once))
    producer = Producer(broker.bootstrap_servers)
    workers = [Worker(producer, topic, number, most) for number, most in enumerate(at_once)]
    for worker in workers:
        worker.start()
    threading.Event().wait(wait)
    producer.close()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive() and worker.error is None
        assert [sent.result().offset for _, sent in worker.taken] == [number for number, _ in worker.taken]
    assert written(broker, topic, len(at_once)) == [[b"%d" % number for number, _ in each.taken] for each in workers]
