"""Fetch (1) in sessions (KIP-227), as a client sees them; the rules themselves are in test_fetch_sessions."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest
from tests.broker.wire import (
    Client,
    batch,
    clients,
    ended,
    init,
    new_topic,
    produce,
    produce_request,
    serving,
    values,
    wait_until,
)

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FetchResponse,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from fencepost.protocol.types import ZERO_UUID

client = clients()
VERSIONS = range(7, 19)


class Session:
    """A session of one connection, which keeps count as clients do."""

    def __init__(self, client: Client, version: int = 18, committed: bool = False) -> None:
        self.client = client
        self.version = version
        self.committed = committed
        self.id = self.epoch = 0
        self.names: dict[Any, str] = {}

    def request(self, asked: dict[str, int], forgotten: list[str], **how: int) -> FetchRequest:
        """Partitions 0 of topics from these offsets on."""
        topics = []
        for name, offset in asked.items():
            wanted = FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=how.get("partition_max", 1 << 20)
            )
            topics.append(FetchTopic(topic=name, topic_id=self.id_of(name), partitions=[wanted]))
        return FetchRequest(
            max_wait_ms=how.get("wait_ms", 0),
            min_bytes=1,
            max_bytes=how.get("max_bytes", 1 << 20),
            isolation_level=int(self.committed),
            session_id=self.id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=self.id_of(name), partitions=[0]) for name in forgotten
            ],
        )

    def id_of(self, name: str) -> Any:
        known = self.client.broker.node.topics.by_name.get(name)
        topic_id = known.topic_id if known is not None else ZERO_UUID
        self.names[topic_id] = name
        return topic_id

    def send(self, asked: dict[str, int] | None = None, forgotten: list[str] | None = None, **how: int) -> None:
        self.client.send(self.request(asked or {}, forgotten or [], **how), version=self.version)

    def receive(self) -> dict[str, Any]:
        answer: FetchResponse = self.client.receive()
        assert answer.error_code == ErrorCode.NONE
        self.epoch = 1 if answer.session_id != self.id else self.epoch + 1
        self.id = answer.session_id
        return {topic.topic or self.names[topic.topic_id]: topic.partitions[0] for topic in answer.responses}

    def fetch(self, asked: dict[str, int] | None = None, forgotten: list[str] | None = None, **how: int) -> Any:
        """What the answer has, by topic."""
        self.send(asked, forgotten, **how)
        return self.receive()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_incremental_answer_has_only_news(client: Client, version: int) -> None:
    one, two = new_topic(client), new_topic(client)
    session = Session(client, version)
    assert list(session.fetch({one: 0, two: 0})) == [one, two]
    assert session.id > 0
    assert session.fetch() == {}
    produce(client, two, batch("a"))
    assert values(session.fetch()[two]) == ["a"]
    assert values(session.fetch()[two]) == ["a"], "it is there until the reader goes on"
    assert session.fetch({two: 1}) == {}
    produce(client, one, batch("b"))
    produce(client, two, batch("c"))
    assert list(session.fetch(forgotten=[two])) == [one]
    assert session.fetch({one: 1}) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_that_cannot_be_gone_on_with(client: Client, version: int) -> None:
    session = Session(client, version)
    session.fetch({new_topic(client): 0})
    for of, epoch, by, error in (
        (session.id + 1, 1, version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session.id, 2, version, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session.id, 1, 12 if version >= 13 else 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (-(2**31), 1, version, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        request = session.request({}, [])
        request.session_id, request.session_epoch = of, epoch
        answer = client.ask(request, by)
        told = of if error is ErrorCode.UNKNOWN_SERVER_ERROR else 0
        assert (answer.error_code, answer.session_id, answer.responses) == (error, told, [])
    assert session.fetch() == {}


@pytest.mark.parametrize("version", [4, 5, 6])
def test_before_version_7_there_are_no_sessions(client: Client, version: int) -> None:
    session = Session(client, version)
    session.fetch({new_topic(client): 0})
    assert (session.id, len(client.broker.node.fetch_sessions)) == (0, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_news_to_whoever_waits_for_what_is_committed(client: Client, commit: bool) -> None:
    idle, topic, pair = new_topic(client), new_topic(client), init(client, "t")
    session = Session(Client(client.broker), committed=True)
    session.fetch({idle: 0, topic: 0})
    session.send(wait_ms=20_000)
    produce(client, topic, batch("a", pair=pair, sequence=0, transactional=True), "t")
    assert session.client.silent_for(0.05)
    ended(client, "t", pair, commit=commit)
    told = session.receive()
    assert list(told) == [topic]
    assert values(told[topic]) == (["a"] if commit else [])
    session.client.close()


def test_a_wait_in_a_session_ends_with_nothing(client: Client) -> None:
    session = Session(client)
    session.fetch({new_topic(client): 0})
    began = time.monotonic()
    assert session.fetch(wait_ms=80) == {}
    assert time.monotonic() - began >= 0.08


def test_a_new_start_of_the_log_is_news(client: Client) -> None:
    topic = new_topic(client)
    produce(client, topic, batch("a"))
    session = Session(client)
    session.fetch({topic: 1})
    asked = DeleteRecordsPartition(partition_index=0, offset=1)
    client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000))
    assert session.fetch()[topic].log_start_offset == 1
    assert session.fetch() == {}
    assert session.fetch({topic: 0})[topic].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.fetch()[topic].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_else_is_new_is_told_with_what_ends_a_wait(client: Client) -> None:
    """The start of one log, the end of another that shows nothing yet; and not what is as it was."""
    idle, shorter, opened, written = (new_topic(client) for _ in range(4))
    produce(client, shorter, batch("a"))
    pair = init(client, "opens")
    session = Session(Client(client.broker), committed=True)
    session.fetch({written: 0, opened: 0, shorter: 1, idle: 0})
    session.send(wait_ms=20_000)
    asked = DeleteRecordsPartition(partition_index=0, offset=1)
    client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=shorter, partitions=[asked])], timeout_ms=1000))
    produce(client, opened, batch("b", pair=pair, sequence=0, transactional=True), "opens")
    assert session.client.silent_for(0.05)
    produce(client, written, batch("c"))
    told = session.receive()
    assert list(told) == [written, opened, shorter]
    assert values(told[written]) == ["c"]
    assert (told[opened].high_watermark, told[opened].last_stable_offset, told[opened].records) == (1, 0, b"")
    assert told[shorter].log_start_offset == 1
    session.client.close()


def test_a_partition_that_is_always_full_starves_nobody(client: Client) -> None:
    topics = [new_topic(client) for _ in range(3)]
    for topic in topics:
        for _ in range(3):
            assert client.ask(produce_request(client, topic, [batch("x" * 1000)])).responses
    session, offsets = Session(client), dict.fromkeys(topics, 0)
    read: list[str] = []
    changed = offsets
    while len(read) < 9:
        told = session.fetch(changed, max_bytes=100)
        (topic,) = [topic for topic, found in told.items() if found.records]
        offsets[topic] += 1
        read.append(topic)
        changed = {topic: offsets[topic]}
    # The answer that begins the session moves nobody in it.
    assert read == [topics[0], *topics, *topics, *topics[1:]]


def remove(client: Client, topic: str) -> None:
    answer = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000))
    assert answer.responses[0].error_code == ErrorCode.NONE


def make(client: Client, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=-1, assignments=[], configs=[])
    assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "again"), [(12, ErrorCode.NONE), (18, ErrorCode.INCONSISTENT_TOPIC_ID)])
def test_a_topic_that_is_deleted_and_made_again(client: Client, version: int, again: ErrorCode) -> None:
    """By its name it is the same topic, by its id it is not; a session knows the name of an id that it has seen."""
    kept, topic = new_topic(client), new_topic(client)
    session = Session(client, version)
    session.fetch({kept: 0, topic: 0})
    remove(client, topic)
    for _ in range(2):
        told = session.fetch()
        assert (list(told), told[topic].error_code) == ([topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    make(client, topic)
    produce(client, topic, batch("a"))
    told = session.fetch()
    assert (list(told), told[topic].error_code) == ([topic], again)
    if again:
        began = time.monotonic()
        assert session.fetch(wait_ms=20_000)[topic].error_code == again, "with an error nobody waits"
        assert time.monotonic() - began < 10


def test_a_deleted_topic_wakes_who_waits(client: Client) -> None:
    kept, topic = new_topic(client), new_topic(client)
    session = Session(Client(client.broker))
    session.fetch({kept: 0, topic: 0})
    session.send(wait_ms=20_000)
    assert session.client.silent_for(0.05)
    remove(client, topic)
    told = session.receive()
    assert (list(told), told[topic].error_code) == ([topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    session.client.close()


def test_an_unknown_topic_is_told_with_every_answer(client: Client) -> None:
    topic = new_topic(client)
    session = Session(client)
    assert list(session.fetch({"unknown": 0, topic: 0})) == [topic, "unknown"]
    assert list(session.fetch(wait_ms=50)) == ["unknown"]


def test_a_session_that_is_gone_on_with_from_elsewhere_while_a_request_waits(client: Client) -> None:
    topic, session = new_topic(client), Session(Client(client.broker))
    session.fetch({topic: 0})
    session.send(wait_ms=20_000)
    # The connection that waits has its epoch counted before the other one may use the next.
    wait_until("it waits", lambda: next(iter(client.broker.node.fetch_sessions._sessions.values())).epoch == 2)
    other = Session(client)
    other.id, other.epoch, other.names = session.id, 2, session.names
    assert other.fetch() == {}
    produce(client, topic, batch("a"))
    answer = session.client.receive()
    assert (answer.error_code, answer.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id)
    assert values(other.fetch()[topic]) == ["a"]
    session.client.close()


def test_a_node_keeps_no_more_sessions_than_it_is_told() -> None:
    with serving(max_incremental_fetch_session_cache_slots=1, min_incremental_fetch_session_eviction_ms=50) as broker:
        client = Client(broker)
        topic = new_topic(client)
        first, second = Session(client), Session(client)
        first.fetch({topic: 0})
        assert first.id != 0

        def gets_one() -> bool:
            second.id = second.epoch = 0
            assert list(second.fetch({topic: 0})) == [topic]
            return second.id != 0

        assert not gets_one()
        wait_until("the first one is given up", gets_one)
        answer = client.ask(first.request({}, []), first.version)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        client.close()


def test_a_session_is_as_old_as_its_first_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may have waited for long: a session that was not used for so long could be had by another reader."""
    topic, times = new_topic(client), count(1)
    monkeypatch.setattr("fencepost.broker.apis.fetch._now", lambda: next(times))
    for wait_ms, created in [(0, 1), (1, 3)]:
        reader = Session(client)
        reader.fetch({topic: 0}, wait_ms=wait_ms)
        session = client.broker.node.fetch_sessions._sessions[reader.id]
        assert (session.created, session.last_used) == (created, created)
