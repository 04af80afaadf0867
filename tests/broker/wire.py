"""A client that is nothing but a socket: it sends what it is told and gives back what comes, message by message."""

from __future__ import annotations

import itertools
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fencepost.broker import Broker, running_broker
from fencepost.broker.authorizer import Authorizer
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.batch import headers
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.control import ABORT, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    RESPONSES,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic, PartitionData
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
)
from fencepost.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, TopicProduceData
from fencepost.protocol.records import decode_batch, encode_batch
from fencepost.protocol.types import ZERO_UUID, Epoch, ProducerId, ProducerIdAndEpoch

NOW = 1_700_000_000_000
HELLO = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
MEGABYTE = 1 << 20
SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
    # Time-outs and expiries ring within moments.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10,
}
T = TypeVar("T")
_numbers = itertools.count()


def connections_of(broker: Broker) -> list[Connection]:
    """The connections that a broker has; may be asked by another thread, while they come and go."""
    return [each for each in list(broker.node.connections) if isinstance(each, Connection)]


def held(broker: Broker) -> int:
    """Bytes of answers that the node holds for clients."""

    def count() -> int:
        return sum(
            sum(map(len, [*each._out._output, *each._out._rest]))
            + sum(len(slot.data or b"") for slot in each._out.slots)
            + (each._transport.get_write_buffer_size() if each._transport is not None else 0)
            for each in connections_of(broker)
        )

    return on_the_loop(broker, count)


class Client:
    """One connection.  Whatever is not answered within `patience` seconds fails the test.

    `source`: the address that it comes from; `to`: what the broker's is called.
    """

    def __init__(
        self, broker: Broker, patience: float = 10, client_id: str = "wire", source: str = "", to: str | None = None
    ) -> None:
        self.broker = broker
        self._client_id = client_id
        self._socket = socket.create_connection(
            (to or broker.host, broker.port), timeout=patience, source_address=(source, 0) if source else None
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = 0
        self._expected: list[tuple[int, int, int]] = []

    def frame(self, request: Any, version: int | None = None) -> bytes:
        """The bytes of a request, whose answer is then expected."""
        api = request.__schema__.api
        wanted = SERVED[api].newest(Settings()) if version is None else version
        self._next += 1
        self._expected.append((self._next, api, wanted))
        return encode_request(request, wanted, self._next, self._client_id)

    def send(self, *requests: Any, version: int | None = None) -> None:
        self.send_bytes(b"".join(self.frame(request, version) for request in requests))

    def forget_last(self) -> None:
        """The request sent last is one that is not answered."""
        self._expected.pop()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Any:
        """The next answer; it must be that of the oldest request that is not answered yet."""
        correlation_id, api, version = self._expected.pop(0)
        data = self.read(int.from_bytes(self.read(4), "big"))
        answered, response = decode_response(RESPONSES[api], data, version)
        assert answered == correlation_id, "answers come in the order of the requests"
        return response

    def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version=version)
        return self.receive()

    def read(self, count: int) -> bytes:
        """So many bytes of what comes."""
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError(f"the connection ended after {len(data)} of {count} bytes")
            data += more
        return data

    def is_closed(self) -> bool:
        """Whether the broker ends this connection, without another byte."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def silent_for(self, seconds: float) -> bool:
        """Whether nothing comes."""
        patience = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(patience)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def serving(authorizer: Authorizer | None = None, **settings: object) -> Iterator[Broker]:
    """A broker with quick settings; `settings` with underscores for dots."""
    given = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    with running_broker(settings=given, authorizer=authorizer) as broker:
        yield broker


def clients() -> Any:
    """A fixture: a connection to a broker of its own."""

    @pytest.fixture
    def client() -> Iterator[Client]:
        with serving() as broker:
            connected = Client(broker)
            yield connected
            connected.close()

    return client


def on_the_loop(broker: Broker, call: Callable[[], T]) -> T:
    """Call something in the broker's own thread: its state is nobody else's."""
    done: Future[T] = Future()
    assert broker.failed is not None
    broker.failed.get_loop().call_soon_threadsafe(lambda: done.set_result(call()))
    return done.result(10)


def killed_copy(broker: Broker, to: Path) -> Path:
    """A copy of a node's directory as kill -9 would leave it: nothing is made or removed in it meanwhile."""
    data = broker.node.storage.path
    without_lock = shutil.ignore_patterns(".lock")
    return on_the_loop(broker, lambda: Path(shutil.copytree(data, to, ignore=without_lock)))


def wait_until(what: str, holds: Callable[[], bool], seconds: float = 10) -> None:
    """Ask until it is so; for what time brings, where there is nothing to be woken by."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if holds():
            return
        pause.wait(0.005)
    raise AssertionError(f"not within {seconds} s: {what}")


# Requests that most tests need


def new_topic(client: Client, partitions: int = 1, **configs: str) -> str:
    """Make a topic of a name not used before."""
    name = f"topic{next(_numbers)}"
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    wanted = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=settings
    )
    (created,) = client.ask(CreateTopicsRequest(topics=[wanted])).topics
    assert created.error_code == ErrorCode.NONE, created
    return name


def batch(
    *values: str,
    pair: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = NOW,
) -> bytes:
    """A record batch; each record is a millisecond later than the one before it."""
    records = [(timestamp + n, b"key", value.encode(), ()) for n, value in enumerate(values)]
    return encode_batch(
        records,
        producer_id=ProducerId(pair[0]),
        producer_epoch=Epoch(pair[1]),
        base_sequence=sequence,
        transactional=transactional,
    )


def produce_request(
    client: Client, topic: str, data: Sequence[bytes | None], transactional_id: str | None = None, acks: int = -1
) -> ProduceRequest:
    """One batch for each partition from 0 on."""
    known = client.broker.node.topics.by_name.get(topic)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=known.topic_id if known is not None else ZERO_UUID,
                partition_data=[PartitionProduceData(index=n, records=records) for n, records in enumerate(data)],
            )
        ],
    )


def produce(
    client: Client,
    topic: str,
    data: bytes | None,
    transactional_id: str | None = None,
    *,
    acks: int = -1,
    version: int | None = None,
) -> PartitionProduceResponse:
    """Write to partition 0."""
    answer = client.ask(produce_request(client, topic, [data], transactional_id, acks), version)
    written: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return written


def fetch_request(
    client: Client,
    topic: str,
    offset: int = 0,
    *,
    committed: bool = True,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition: int = 0,
    leader_epoch: int = -1,
) -> FetchRequest:
    known = client.broker.node.topics.by_name.get(topic)
    wanted = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=leader_epoch
    )
    topic_id = known.topic_id if known is not None else ZERO_UUID
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )


def fetch(client: Client, topic: str, offset: int = 0, *, version: int | None = None, **how: Any) -> PartitionData:
    """What is there, once all that the node has appended is durable: markers are shown some time after they are."""
    storage = client.broker.node.storage
    wait_until("everything is durable", lambda: storage.durability.lsn >= storage.lsn)
    answer = client.ask(fetch_request(client, topic, offset, **how), version)
    fetched: PartitionData = answer.responses[0].partitions[0]
    return fetched


def values(fetched: PartitionData) -> list[str]:
    """What an application is given of this answer: no control records, and nothing aborted (facts §8.2)."""
    assert fetched.error_code == ErrorCode.NONE, fetched
    assert fetched.records is not None, "records are never null"
    upcoming = sorted((entry.first_offset, entry.producer_id) for entry in fetched.aborted_transactions or [])
    aborted: list[int] = []
    found = []
    for at, header in headers(fetched.records):
        while upcoming and upcoming[0][0] <= header.last_offset:
            aborted.append(upcoming.pop(0)[1])
        if header.is_control:
            marker = read_control_record(fetched.records, at, header)
            if marker is not None and marker.type == ABORT and header.producer_id in aborted:
                aborted.remove(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [(record.value or b"").decode() for record in decode_batch(fetched.records, at, header)]
    return found


def list_offset(
    client: Client, topic: str, timestamp: int, *, committed: bool = True, version: int | None = None
) -> ListOffsetsPartitionResponse:
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )
    found: ListOffsetsPartitionResponse = client.ask(request, version).topics[0].partitions[0]
    return found


def init_answer(
    client: Client,
    transactional_id: str | None,
    pair: tuple[int, int] = (-1, -1),
    *,
    timeout_ms: int = 60_000,
    version: int | None = None,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=pair[0],
        producer_epoch=pair[1],
    )
    answer: InitProducerIdResponse = client.ask(request, version)
    return answer


def find_coordinator(client: Client, key: str, key_type: int = 1) -> None:
    """Have the internal topic made, as every client does first."""
    (found,) = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])).coordinators
    assert found.error_code == ErrorCode.NONE, found


def init(
    client: Client, transactional_id: str, pair: tuple[int, int] = (-1, -1), *, timeout_ms: int = 60_000
) -> ProducerIdAndEpoch:
    """Find the coordinator and get a pair; what a stale transaction asks for, try again, is done."""
    find_coordinator(client, transactional_id)
    answer = init_answer(client, transactional_id, pair, timeout_ms=timeout_ms)
    if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        answer = init_answer(client, transactional_id, pair, timeout_ms=timeout_ms)
    assert answer.error_code == ErrorCode.NONE, answer
    return ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)


def add(
    client: Client, transactional_id: str, pair: ProducerIdAndEpoch, topic: str, partition: int = 0, *, version: int = 3
) -> int:
    """AddPartitionsToTxn of one partition; its error."""
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[partition])]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], topics=topics
        )
        result = client.ask(request, version).results_by_topic[0]
        return int(result.results_by_partition[0].partition_error_code)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], topics=topics
    )
    answer = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
    result = answer.results_by_transaction[0].topic_results[0]
    return int(result.results_by_partition[0].partition_error_code)


def end(
    client: Client, transactional_id: str, pair: ProducerIdAndEpoch, *, commit: bool = True, version: int = 5
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
    )
    answer: EndTxnResponse = client.ask(request, version)
    return answer


def ended(
    client: Client, transactional_id: str, pair: ProducerIdAndEpoch, *, commit: bool = True
) -> ProducerIdAndEpoch:
    """End a transaction by v5; the next pair."""
    answer = end(client, transactional_id, pair, commit=commit)
    assert answer.error_code == ErrorCode.NONE, answer
    return ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)
