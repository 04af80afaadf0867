"""Many topics of one request are made and deleted in few writes to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.metadata.test_topic_lifecycle import Node, nothing
from tests.broker.metadata.test_topics import create, shown, topic
from tests.broker.wire import Client, clients, on_the_loop
from tests.log.log_doubles import run

from fencepost.broker.metadata.topic import DELETED, PREFIX, NewTopic, Topic
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.log.disk import DiskFull
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.runtime import Work

client = clients()


class Counted:
    """A store that takes so many changes at once at most, as one on a disk that is nearly full; it counts writes."""

    def __init__(self, store: Any, most: int) -> None:
        self.get, self.list, self.close, self._write = store.get, store.list, store.close, store.write
        self._most = most
        self.writes = 0
        self.largest = 0

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        self.writes += 1
        self.largest = max(self.largest, len(changes))
        if len(changes) > self._most or any("full" in key for key in changes):
            raise DiskFull("no space is left for the metadata")
        return bool(self._write(changes))


@pytest.mark.parametrize("most", [1000, 9, 2])
def test_topics_of_one_request_are_written_down_together(most: int) -> None:
    """Everybody waits for the disk at each write; one that cannot be taken is refused, and no other one with it."""

    async def main() -> None:
        node = Node(1)
        await node.create("there")
        store = node.topics._store = Counted(node.store, most)
        names = [f"t{number}" for number in range(40)]
        order = ["full", *names[:20], "full-too", "there", "a b", *names[20:]]
        wanted = [NewTopic(name, 1, {}) for name in order]
        found = await node.topics.create_together(wanted, node.slices)
        topics = [node.topics.by_name[name] for name in names]
        assert topics == [found.pop(name) for name in names]
        errors = {name: each.error for name, each in found.items() if isinstance(each, TopicRefused)}
        assert errors == {
            "full": ErrorCode.KAFKA_STORAGE_ERROR,
            "full-too": ErrorCode.KAFKA_STORAGE_ERROR,
            "there": ErrorCode.TOPIC_ALREADY_EXISTS,
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert most < 1000 or store.writes < 30
        store.writes = 0
        refused = await node.slices.run(node.topics.withdraw_together(topics))
        assert not refused and list(node.topics.by_name) == ["there"]
        assert most < 1000 or store.writes == 1
        await node.topics.remove(topics, nothing, node.slices)
        node.topics._store = node.store
        for name in ("full", "full-too", *names):
            await node.create(name)

    run(main())


def test_a_topic_that_is_made_anew_is_not_withdrawn_for_the_deleted_one() -> None:
    async def main() -> None:
        node = Node(1)
        await node.create("t")
        old = node.topics.by_name["t"]
        await node.delete("t", settle=True)
        await node.create("t")
        refused = await node.slices.run(node.topics.withdraw_together([old]))
        assert refused["t"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "t" in node.topics.by_name

    run(main())


@pytest.mark.parametrize("count", range(6))
def test_more_topics_than_one_write_has_are_all_made_and_deleted(
    client: Client, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for api in ("create_topics", "delete_topics", "metadata"):
        monkeypatch.setattr(f"fencepost.broker.apis.{api}.TOGETHER", 2)
    wrong = [ErrorCode.INVALID_TOPIC_EXCEPTION]
    names = [f"made-{number}" for number in range(count)]
    made = create(client, topic("a b"), *(topic(name) for name in names))
    assert [each.name for each in made] == ["a b", *names]
    assert [each.error_code for each in made] == wrong + [0] * count
    asked = [f"asked-{number}" for number in range(count)]
    found = shown(client, "a b", *asked, *names, make=True)
    assert [(each.name, each.error_code) for each in found[1:]] == [(name, 0) for name in (*asked, *names)]
    assert len({each.topic_id for each in found}) == 1 + 2 * count
    states = [DeleteTopicState(name=name) for name in (*asked, "nowhere", *names)]
    deleted = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [each.error_code for each in deleted] == [0] * count + unknown + [0] * count
    assert {each.error_code for each in shown(client, "nowhere", *asked, *names)} == {unknown[0]}


def test_a_request_waits_for_the_disk_once_for_a_hundred_topics(client: Client) -> None:
    topics = client.broker.node.topics
    store = on_the_loop(client.broker, lambda: Counted(topics._store, 1000))
    on_the_loop(client.broker, lambda: setattr(topics, "_store", store))
    asked, made = [f"asked-{number}" for number in range(201)], [f"made-{number}" for number in range(201)]

    def writes() -> int:
        store.writes, before = 0, store.writes
        return before

    assert all(each.error_code == 0 for each in shown(client, *asked, make=True))
    assert writes() == 3
    assert all(each.error_code == 0 for each in create(client, *(topic(name) for name in made)))
    assert writes() == 3
    states = [DeleteTopicState(name=name) for name in (*asked, *made)]
    assert all(
        each.error_code == 0 for each in client.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6).responses
    )
    assert writes() == 5


def test_what_is_forgotten_of_many_deleted_topics_is_written_in_pieces() -> None:
    """With each change a hundred: one write of all would have everybody wait."""

    async def main() -> None:
        node = Node(1)
        wanted = [NewTopic(f"t{number}", 1, {}) for number in range(250)]
        await node.topics.create_together(wanted, node.slices)
        topics = list(node.topics.by_name.values())
        await node.slices.run(node.topics.withdraw_together(topics))
        await node.topics.remove(topics, nothing, node.slices)
        assert len(node.store.list(DELETED)) == 250
        store = node.topics._store = Counted(node.store, 1000)
        left = []
        for number in range(4):
            await node.create(f"next-{number}")
            left.append(len(node.store.list(DELETED)))
        assert (left, store.largest) == ([150, 50, 0, 0], 101)

    run(main())


def test_topics_of_one_request_are_refused_from_the_one_on_that_the_disk_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        node = Node(1)
        monkeypatch.setattr(node.storage.space, "has_room_for", lambda count: count <= 7)
        wanted = [NewTopic(name, count, {}) for name, count in {"a": 4, "b": 4, "c": 3, "d": 1}.items()]
        found = await node.topics.create_together(wanted, node.slices)
        assert list(node.topics.by_name) == ["a", "c"]
        assert {name for name, each in found.items() if isinstance(each, TopicRefused)} == {"b", "d"}

    run(main())


def test_topics_whose_making_was_given_up_can_be_made_by_the_next_one_who_asks() -> None:
    async def main() -> None:
        node = Node(1)
        wanted = [NewTopic(name, 1, {}) for name in "abc"]
        node.topics._going |= dict.fromkeys("abc", asyncio.get_running_loop().create_future())
        making = asyncio.ensure_future(node.topics.create_together(wanted, node.slices))
        await asyncio.sleep(0.01)
        making.cancel()
        await asyncio.wait([making])
        node.topics._going.clear()
        found = await node.topics.create_together(wanted, node.slices)
        assert list(found.values()) == list(node.topics.by_name.values())

    run(main())


def test_who_asks_for_a_topic_that_somebody_else_is_making_waits_for_it(client: Client) -> None:
    topics, name = client.broker.node.topics, "t"

    def make() -> None:
        topics._coming.pop(name).set_result(None)
        topics.create_at_once(name, 1)

    def begin() -> None:
        loop = asyncio.get_running_loop()
        topics._coming[name] = loop.create_future()
        loop.call_later(0.05, make)

    on_the_loop(client.broker, lambda: asyncio.get_running_loop().call_soon(begin))
    assert [each.error_code for each in shown(client, "other", name, make=True)] == [0, 0]


@pytest.mark.parametrize("forgets", [True, False])
def test_a_topic_of_which_something_is_left_keeps_none_of_the_same_request_waiting(forgets: bool) -> None:
    """It takes as long as the groups take to be read: who wants one of the others finds it meanwhile."""

    def forget(_: Collection[str]) -> Work[bool]:
        yield
        return forgets

    async def main() -> None:
        node = Node(1)
        topics = node.topics
        topics._going["left"], topics._unforgotten["left"] = asyncio.get_running_loop().create_future(), forget
        wanted = [NewTopic(name, 1, {}) for name in ("a", "left", "b")]
        making = asyncio.ensure_future(topics.create_together(wanted, node.slices))
        await asyncio.sleep(0.01)
        assert list(topics.by_name) == ["a", "b"] and list(topics._coming) == ["left"]
        await asyncio.wait_for(topics.made("a"), 1)
        await node.delete("a", settle=True)
        await node.create("a")
        topics._going.pop("left").set_result(None)
        found = await making
        assert isinstance(found["left"], Topic if forgets else TopicRefused)
        assert ("left" in topics.by_name) == forgets and found["b"] is topics.by_name["b"]
        assert not topics._coming

    run(main())


@pytest.mark.parametrize("flush", ["durable", "os"])
def test_a_topic_that_is_there_can_be_deleted_and_made_again_while_others_of_its_request_are_made(flush: str) -> None:
    async def main() -> None:
        node = Node(1, flush, steps=1)
        topics = node.topics
        wanted = [NewTopic(f"t{number}", 2, {}) for number in range(90)]
        making = asyncio.ensure_future(topics.create_together(wanted, node.slices))
        while "t0" not in topics.by_name:  # noqa: ASYNC110
            await asyncio.sleep(0)
        old = topics.by_name["t0"]
        topics.withdraw(old)
        again = asyncio.ensure_future(topics.create("t0", 1, {}, node.slices))
        found = await making
        assert list(topics._coming) == ["t0"]
        new, _ = await asyncio.gather(again, topics.remove([old], nothing, node.slices))
        assert topics.by_name["t0"] is new is not old is found["t0"]
        assert found.keys() == topics.by_name.keys() == {new.name for new in wanted}
        assert not topics._coming
        await node.end()

    run(main())


NAMES = ("a", "b", "c.d", "c_d", "e")
REQUEST = st.tuples(st.booleans(), st.permutations(NAMES), st.integers(1, len(NAMES)), st.integers(0, 12))
"""Whether topics are made or deleted, which, and after how many turns of the loop since the one before."""


@settings(deadline=None, max_examples=60)
@given(st.lists(REQUEST, min_size=2, max_size=8), st.booleans(), st.integers(1, 9))
def test_requests_about_the_same_topics_at_once_are_all_answered_and_each_topic_is_made_for_one(
    requests: list[tuple[bool, list[str], int, int]], forgets: bool, most: int
) -> None:
    def forget(_: Collection[str]) -> Work[bool]:
        yield
        return forgets

    async def main() -> None:
        node = Node(1, steps=1)
        topics = node.topics
        topics._store = Counted(node.store, most)
        made, deleted = list[Topic](), list[Topic]()

        async def make(names: list[str]) -> None:
            found = await topics.create_together([NewTopic(name, 1, {}) for name in names], node.slices)
            assert found.keys() == set(names)
            made.extend(each for each in found.values() if isinstance(each, Topic))

        async def delete(names: list[str]) -> None:
            known = [topics.by_name[name] for name in names if name in topics.by_name]
            refused = await node.slices.run(topics.withdraw_together(known))
            gone = [topic for topic in known if topic.name not in refused]
            deleted.extend(gone)
            await topics.remove(gone, forget, node.slices)

        works = []
        for makes, names, count, turns in requests:
            works.append(asyncio.ensure_future((make if makes else delete)(names[:count])))
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await asyncio.gather(*works)
        assert len(set(made)) == len(made) and len(set(deleted)) == len(deleted)
        assert set(topics.by_name.values()) == set(made) - set(deleted)
        assert {name.removeprefix(PREFIX) for name in node.store.list(PREFIX)} == topics.by_name.keys()
        assert not topics._coming and not topics._going
        assert not {"c.d", "c_d"} <= topics.by_name.keys()
        await node.end()

    run(main())
