"""Requests that name very many things: no step of the event loop handles all of them, whatever the API.

A step is measured by the calls of functions in it, which are the same on every machine.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.broker.group_talk import join
from tests.broker.wire import (
    Client,
    batch,
    connections_of,
    fetch,
    init,
    new_topic,
    on_the_loop,
    produce,
    produce_request,
    serving,
    values,
    wait_until,
)

from fencepost.broker import Broker
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.network.registry import SERVED, Reply
from fencepost.broker.network.request_context import RequestContext
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.log.partition import Appended
from fencepost.log.producer_state import Origin
from fencepost.protocol import partitioning
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.layout import Field, default_of, fields_of
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.describe_producers import TopicRequest as DescribedTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from fencepost.protocol.partitioning import java_hash
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import NO_LEADER_EPOCH, Epoch, Offset, ProducerId, TopicPartition
from fencepost.runtime import Slices

MANY = 2_000
MOST_CALLS = 12_000
"""In one step.  A call takes some 50 to 100 ns: six for each of 100,000 things, the most that a request may name, take
less than 50 ms."""
WRITTEN = 1_000
MOST_CALLS_TO_WRITE = 36_000
"""In one step, which appends 400 batches, each by 50 calls or, of a transaction, 75: some 3 ms."""

MEANT = {"session_id": 0, "session_epoch": -1, "acks": -1, "isolation_level": 1}
"""Numbers without which a request is refused as a whole, or not answered."""

Place = tuple[str, ...]
"""The names of the fields that lead to a list."""


def sent_in(version: int, cls: Any) -> list[Field]:
    return [field for field in fields_of(cls) if field.wire.in_version(version)]


def lists(cls: Any, version: int) -> Iterator[Place]:
    """Every list of a request, and those in its items."""
    for field in sent_in(version, cls):
        if field.kind == "array":
            yield (field.name,)
            if field.of.kind == "struct":
                for place in lists(field.of.of, version):
                    yield (field.name, *place)


def filled(cls: Any, version: int, place: Place, number: int = 0) -> Any:
    """A message with MANY items in the list at `place`, and one in each list on the way there."""
    message = cls.__new__(cls)
    for field in fields_of(cls):
        value = default_of(field)
        if isinstance(value, list):
            value = []
        if field in sent_in(version, cls) and field.wire.tag is None:
            value = [] if field.kind == "array" else item(field, version, (), number)
        if place and field.name == place[0]:
            numbers = range(MANY) if len(place) == 1 else (number,)
            value = [item(field.of, version, place[1:], each) for each in numbers]
        setattr(message, field.name, value)
    return message


def item(field: Field, version: int, place: Place, number: int) -> Any:
    return filled(field.of, version, place, number) if field.kind == "struct" else something(field, number)


def something(field: Field, number: int) -> Any:
    """A value; every number has another one, where there are as many."""
    if field.name in MEANT:
        return MEANT[field.name]
    match field.kind:
        case "string":
            # Not in their order: sorting what is in order is no work.
            return f"{number * 7919 % MANY}-x"
        case "binary" | "batches":
            return b""
        case "uuid":
            return uuid.UUID(int=number + 5)
        case "boolean":
            return True
        case "int8":
            return number % 100 + 1
        case _:
            return number + 1


@contextmanager
def calls_of_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str]]]:
    """How many functions each step of the broker's event loop calls, and what it was."""
    steps: list[tuple[int, str]] = []
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        calls = 0

        def count(_: Any, event: str, __: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            run(handle)
        finally:
            sys.setprofile(None)
        steps.append((calls, repr(handle)))

    gc.disable()  # what other tests left would be finalized in one of these steps
    try:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", measured)
            yield steps
            on_the_loop(broker, lambda: None)
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with serving(auto_create_topics_enable=False) as made:
        yield made


PLACES = [
    (api, newest, place)
    for api, served in sorted(SERVED.items())
    for newest in (served.newest(Settings()),)
    for place in lists(served.request, newest)
]


@pytest.mark.parametrize(
    ("api", "version", "place"),
    PLACES,
    ids=[f"{SERVED[api].request.__name__}-{'-'.join(place)}" for api, _, place in PLACES],
)
def test_no_step_handles_all_that_a_request_names(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, api: int, version: int, place: Place
) -> None:
    client = Client(broker)
    request = filled(SERVED[api].request, version, place)
    monkeypatch.setattr(broker.node, "slices", Slices(steps=1))
    with calls_of_steps(broker, monkeypatch) as steps:
        client.send(request, version=version)
        client.receive()
    client.close()
    longest = max(steps)
    assert longest[0] < MOST_CALLS, longest


OF_EVERYTHING = [
    (DescribeProducersRequest(topics=[DescribedTopic(name="written", partition_indexes=[0])]), None),
    (ListGroupsRequest(), None),
    (ListGroupsRequest(states_filter=["empty"], types_filter=["classic"]), 5),
    (OffsetFetchRequest(group_id="has-much", topics=None), 5),
]


@pytest.mark.parametrize(
    ("request_", "version"), OF_EVERYTHING, ids=[f"{type(request).__name__}-{v}" for request, v in OF_EVERYTHING]
)
def test_no_step_tells_of_all_that_there_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, request_: Any, version: int | None
) -> None:
    """A request of a few bytes asks for that."""
    client = Client(broker)
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]))
    position = CommittedOffset(Offset(1), NO_LEADER_EPOCH, "", on_the_loop(broker, broker.node.clock.now))

    def fill() -> None:
        commit, one = broker.node.groups.commit_offsets, TopicPartition("t", 0)
        for number in range(MANY):
            commit(CommitFor(f"has-little-{number}", "", None, -1), {one: position})
        everywhere = dict.fromkeys((TopicPartition("t", number) for number in range(MANY)), position)
        commit(CommitFor("has-much", "", None, -1), everywhere)
        if "written" not in broker.node.topics.by_name:
            broker.node.topics.create_at_once("written", 1)
        written = broker.node.storage.partition("written", 0)
        assert written is not None
        for number in range(5 * MANY):
            data = encode_batch(
                [(0, b"k", b"v", ())], producer_id=ProducerId(number), producer_epoch=Epoch(0), base_sequence=0
            )
            assert isinstance(written.append(data, Origin.CLIENT, broker.node.clock.now()), Appended)

    on_the_loop(broker, fill)
    monkeypatch.setattr(broker.node, "slices", Slices(steps=1))
    with calls_of_steps(broker, monkeypatch) as steps:
        client.send(request_, version=version)
        answer = client.receive()
    client.close()
    if isinstance(request_, ListGroupsRequest):
        told = answer.groups
    else:
        (told,) = (getattr(topic.partitions[0], "active_producers", topic.partitions) for topic in answer.topics)
    assert len(told) >= MANY
    longest = max(steps)
    assert longest[0] < MOST_CALLS, longest


def test_no_step_looks_at_every_partition_that_a_fetch_reads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one wait for all of them, or find out what is there when one of them is written to."""
    client, writer = Client(broker), Client(broker, patience=60)
    name, one = new_topic(writer, MANY), encode_batch([(0, b"k", b"v", ())])

    def fill() -> None:
        for number in range(MANY):
            partition = broker.node.storage.partition(name, number)
            assert partition is not None
            assert isinstance(partition.append(one, Origin.CLIENT, broker.node.clock.now()), Appended)

    on_the_loop(broker, fill)
    wait_until("all of them can be read", lambda: values(fetch(writer, name, partition=MANY - 1)) == ["v"])
    wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(MANY)]
    topics = [FetchTopic(topic=name, topic_id=broker.node.topics.by_name[name].topic_id, partitions=wanted)]
    monkeypatch.setattr(broker.node, "slices", Slices(steps=1))
    for min_bytes, written in ((1, 0), (1000 * MANY, 3)):
        with calls_of_steps(broker, monkeypatch) as steps:
            client.send(FetchRequest(max_wait_ms=1500, min_bytes=min_bytes, topics=topics))
            for _ in range(written):
                assert writer.silent_for(0.2)
                assert produce(writer, name, one).error_code == ErrorCode.NONE
            answers = client.receive().responses[0].partitions
        assert len(answers) == MANY and all(each.records for each in answers)
        assert len(answers[0].records) == (1 + written) * len(one)
        longest = max(steps)
        assert longest[0] < MOST_CALLS, longest
    client.close()
    writer.close()


@pytest.mark.parametrize("is_transactional", [False, True])
def test_no_step_goes_through_all_partitions_that_are_written_to(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_transactional: bool
) -> None:
    """90,000 batches were checked in steps of 25 ms."""
    client = Client(broker, patience=60)
    name, id_ = new_topic(client, WRITTEN), "writes-much" if is_transactional else None
    data = batch("v") if id_ is None else batch("v", pair=init(client, id_), sequence=0, transactional=True)
    request = produce_request(client, name, [data] * WRITTEN, id_)
    monkeypatch.setattr(broker.node, "slices", Slices(steps=1))
    with calls_of_steps(broker, monkeypatch) as steps:
        client.send(request)
        answers = client.receive().responses[0].partition_responses
    client.close()
    assert len(answers) == WRITTEN and {each.error_code for each in answers} == {0}
    longest = max(steps)
    assert longest[0] < MOST_CALLS_TO_WRITE, longest


class State(str):
    """The name of a state that counts how often any is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def lower(self) -> State:
        return self

    def __eq__(self, other: object) -> bool:
        State.compared += 1
        return str.__eq__(self, other)


def test_the_states_that_are_asked_for_are_not_gone_through_for_each_group() -> None:
    """90,000 of them and a thousand groups took a second in one step."""
    names: list[str] = [State(f"state-{number}") for number in range(10)]
    (served,) = (each for each in SERVED.values() if each.request is ListGroupsRequest)
    with serving() as broker:
        client = Client(broker)
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]))

        def ask() -> None:
            position = CommittedOffset(Offset(1), NO_LEADER_EPOCH, "", broker.node.clock.now())
            for number in range(10):
                group = CommitFor(f"listed-{number}", "", None, -1)
                broker.node.groups.commit_offsets(group, {TopicPartition("t", 0): position})
            context = RequestContext(connections_of(broker)[0].peer, 5, "wire")
            for request in (ListGroupsRequest(states_filter=names), ListGroupsRequest(types_filter=names)):
                reply = served.handler(request, context, broker.node)
                assert isinstance(reply, Reply) and reply.response.groups == []

        on_the_loop(broker, ask)
        client.close()
    assert State.compared < 10


LONG_IDS = [f"{number}-{'x' * 32_000}" for number in range(20)]
OF_LONG_IDS = [
    (FindCoordinatorRequest(key_type=0, coordinator_keys=LONG_IDS), None),
    (DescribeGroupsRequest(groups=LONG_IDS), None),
    (DeleteGroupsRequest(groups_names=LONG_IDS), None),
    (DescribeTransactionsRequest(transactional_ids=LONG_IDS), None),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in LONG_IDS]), None),
    (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=each, producer_id=1, producer_epoch=0, verify_only=True, topics=[]
                )
                for each in LONG_IDS
            ]
        ),
        5,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version"), OF_LONG_IDS, ids=[type(request).__name__ for request, _ in OF_LONG_IDS]
)
def test_no_step_looks_up_all_of_many_long_ids(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, request_: Any, version: int | None
) -> None:
    """Which partition an id lives in depends on each letter: 900 of 16,000 took 0.7 s in one step."""
    client = Client(broker)
    for key_type in (0, 1):
        client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]))
    letters = [0]

    def counted(text: str) -> int:
        letters[-1] += len(text)
        return java_hash(text)

    run = asyncio.Handle._run

    def step(handle: asyncio.Handle) -> None:
        letters.append(0)
        run(handle)

    monkeypatch.setattr(broker.node, "slices", Slices(steps=1))
    with monkeypatch.context() as patch:
        patch.setattr(partitioning, "java_hash", counted)
        patch.setattr(asyncio.Handle, "_run", step)
        client.send(request_, version=version)
        client.receive()
    client.close()
    assert 0 < max(letters) <= 3 * len(LONG_IDS[0])
    assert sum(letters) >= len(LONG_IDS) * len(LONG_IDS[0])


def test_what_is_named_twice_is_told_once(broker: Broker) -> None:
    """Or a request of some hundred kilobytes would be answered with all that a group has, a hundred thousand times."""
    client = Client(broker)
    topic = new_topic(client)
    joined = join(client, group="told-once")
    assert joined.error_code == 0
    assert len(client.ask(DescribeGroupsRequest(groups=["told-once", "nobody"] * 50)).groups) == 2
    assert len(client.ask(DescribeTransactionsRequest(transactional_ids=["x", "y"] * 50)).transaction_states) == 2
    groups = [OffsetFetchRequestGroup(group_id="told-once", topics=None)] * 50
    groups += [OffsetFetchRequestGroup(group_id="told-once", topics=[])] * 2
    assert len(client.ask(OffsetFetchRequest(groups=groups)).groups) == 1 + 2, "what names nothing costs nothing"
    asked = [
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=keys)
        for name in (topic, "nowhere")
        for keys in (None, [], ["retention.ms"])
    ]
    told = client.ask(DescribeConfigsRequest(resources=asked * 20)).results
    assert [each.resource_name for each in told].count(topic) == 1 + 20
    assert max(len(each.configs) for each in told) > 1
    client.close()
