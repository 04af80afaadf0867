"""Fetch sessions (KIP-227): what a request asks for, what of the results its reader is told, and who gets a session."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.leader.fetch_sessions import (
    LARGEST_ID,
    SMALLEST_ID,
    Asked,
    Fetching,
    FetchSessions,
    SessionAnswer,
    partitions_of,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.fetch_sessions import BEGIN, CLOSE, LAST_SESSION_EPOCH, NO_SESSION
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchTopic, ForgottenTopic, PartitionData
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Milliseconds

BY_NAME, BY_ID = 12, 13
MINUTE = 60_000
EVICTION = 2 * MINUTE
IDS = {name: uuid.UUID(int=n + 1) for n, name in enumerate("abcdef")}


class Reader:
    """One reader, and a log of which it says itself what is in it."""

    def __init__(self, sessions: FetchSessions | None = None, version: int = BY_NAME) -> None:
        self.sessions = FetchSessions(10, Milliseconds(EVICTION), random.Random(1)) if sessions is None else sessions
        self.version = version
        self.id = NO_SESSION
        self.epoch = 0
        self.log: dict[str, PartitionData] = {}
        self.now = 0

    def request(self, asked: Sequence[str] = (), forgotten: Sequence[str] = (), offset: int = 0) -> FetchRequest:
        """Partitions are named a0, a1, b0: topic and number."""
        topics = [
            FetchTopic(
                topic=at[0],
                topic_id=IDS[at[0]],
                partitions=[FetchPartition(partition=int(at[1]), fetch_offset=offset, partition_max_bytes=100)],
            )
            for at in asked
        ]
        left = [ForgottenTopic(topic=at[0], topic_id=IDS[at[0]], partitions=[int(at[1])]) for at in forgotten]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=left,
        )

    def begin(self, *asked: str, forgotten: Sequence[str] = (), offset: int = 0) -> Fetching | ErrorCode:
        request = self.request(asked, forgotten, offset)
        named = finish(partitions_of(request, self.version, Pace()))
        return self.sessions.begin(request, named, self.version, Milliseconds(self.now))

    def tell(self, fetching: Fetching | ErrorCode) -> SessionAnswer:
        assert isinstance(fetching, Fetching)
        results = [(asked, self.log.get(name_of(asked.key), partition())) for asked in fetching.partitions]
        return self.sessions.tell(fetching, results, Milliseconds(self.now))

    def fetch(self, *asked: str, forgotten: Sequence[str] = (), offset: int = 0) -> list[str]:
        """Ask and be told, as a client goes on with its session; the partitions that are told."""
        told = self.tell(self.begin(*asked, forgotten=forgotten, offset=offset))
        assert told.error == ErrorCode.NONE
        self.epoch = 1 if told.session_id != self.id else self.epoch + 1
        self.id = told.session_id
        return [name_of(asked.key) for asked, _ in told.partitions]


def name_of(key: tuple[object, int]) -> str:
    topic = key[0] if isinstance(key[0], str) else next(name for name, id in IDS.items() if id.int == key[0])
    return f"{topic}{key[1]}"


def names(fetching: Fetching | ErrorCode) -> list[str]:
    assert isinstance(fetching, Fetching)
    return [name_of(asked.key) for asked in fetching.partitions]


def partition(
    high_watermark: int = 0,
    start: int = 0,
    records: bytes = b"",
    error: int = 0,
    diverging: EpochEndOffset | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=start,
        records=records,
        diverging_epoch=diverging,
    )


FAILED = partition(-1, -1, error=ErrorCode.OFFSET_OUT_OF_RANGE)


# Which requests belong to a session


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_epoch_0_begins_a_session_and_the_next_ones_go_on(version: int) -> None:
    reader = Reader(version=version)
    assert reader.fetch("a0", "b0") == ["a0", "b0"], "the first answer has everything"
    assert reader.id > 0
    first = reader.id
    for _ in range(3):
        assert reader.fetch() == []
        assert reader.id == first
    assert (reader.epoch, len(reader.sessions)) == (4, 1)


def test_epoch_minus_1_asks_without_a_session() -> None:
    reader = Reader()
    reader.epoch = CLOSE
    assert reader.fetch("a0") == ["a0"]
    assert (reader.id, len(reader.sessions)) == (NO_SESSION, 0)


@pytest.mark.parametrize(("epoch", "left"), [(CLOSE, 0), (BEGIN, 1)])
def test_a_full_request_closes_the_session_that_it_names(epoch: int, left: int) -> None:
    reader = Reader()
    reader.fetch("a0")
    old = reader.id
    reader.epoch = epoch
    assert reader.fetch("a0", "b0") == ["a0", "b0"]
    assert len(reader.sessions) == left
    assert reader.id != old
    reader.id, reader.epoch = old, 2
    assert reader.begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, 2, 3, -2, LAST_SESSION_EPOCH])
def test_a_session_is_gone_on_with_by_its_next_epoch_only(epoch: int) -> None:
    reader = Reader()
    reader.fetch("a0")
    if epoch:
        reader.epoch = epoch
        assert reader.begin() is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        reader.epoch = 1
    assert reader.fetch() == []
    reader.epoch -= 1
    assert reader.begin() is ErrorCode.INVALID_FETCH_SESSION_EPOCH, "an epoch is used once"


def test_after_the_last_epoch_comes_1() -> None:
    reader = Reader()
    reader.fetch("a0")
    (session,) = reader.sessions._sessions.values()
    session.epoch = reader.epoch = LAST_SESSION_EPOCH
    assert reader.fetch() == []
    reader.epoch = 1
    assert reader.fetch() == []


@pytest.mark.parametrize(("began", "goes_on"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_a_session_stays_with_names_or_with_ids(began: int, goes_on: int) -> None:
    reader = Reader(version=began)
    reader.fetch("a0")
    reader.version = goes_on
    assert reader.begin() is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    reader.version = began
    assert reader.fetch() == [], "it was not touched"


@pytest.mark.parametrize(
    ("session", "error"),
    [
        (7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (-7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (SMALLEST_ID - 1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (LARGEST_ID + 1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_sessions_that_nobody_knows(session: int, error: ErrorCode) -> None:
    reader = Reader()
    reader.id, reader.epoch = session, 1
    assert reader.begin("a0") is error


# What is read


def test_partitions_are_added_changed_and_forgotten() -> None:
    reader = Reader()
    reader.fetch("a0", "a1", "b0")
    assert reader.fetch("c0", forgotten=["a1", "f5"]) == ["c0"], "what is added is news"
    fetching = reader.begin("b0", offset=9)
    assert names(fetching) == ["a0", "b0", "c0"], "what changes keeps its place"
    assert isinstance(fetching, Fetching)
    assert [asked.wanted.fetch_offset for asked in fetching.partitions] == [0, 9, 0]


def test_a_partition_that_is_named_and_forgotten_is_forgotten() -> None:
    reader = Reader()
    reader.fetch("a0", "b0")
    assert names(reader.begin("c0", "b0", forgotten=["b0", "c0"])) == ["a0"]


def test_a_session_without_partitions_ends() -> None:
    reader = Reader()
    reader.fetch("a0")
    assert reader.fetch(forgotten=["a0"]) == []
    assert (reader.id, len(reader.sessions)) == (NO_SESSION, 0)
    reader = Reader()
    reader.fetch()
    assert reader.id != NO_SESSION, "one may begin empty"
    assert reader.fetch() == []
    assert reader.id == NO_SESSION


def test_what_was_asked_for_with_the_end_of_a_session_is_read_without_one() -> None:
    reader = Reader()
    reader.fetch("a0")
    assert reader.fetch("a0", "b0", forgotten=["a0", "b0"]) == ["a0", "b0"]
    assert reader.id == NO_SESSION


@pytest.mark.parametrize("epoch", [BEGIN, CLOSE])
def test_of_a_partition_named_twice_the_last_word_counts_in_the_first_place(epoch: int) -> None:
    reader = Reader()
    reader.epoch = epoch
    request = reader.request(["a0", "b0", "a0"])
    request.topics[2].partitions[0].fetch_offset = 5
    fetching = reader.sessions.begin(request, finish(partitions_of(request, BY_NAME, Pace())), BY_NAME, Milliseconds(0))
    assert names(fetching) == ["a0", "b0"]
    assert isinstance(fetching, Fetching)
    assert fetching.partitions[0].wanted.fetch_offset == 5


# What is told


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (partition(5, 2), False),
        (partition(5, 2, b"records"), True),
        (partition(6, 2), True),
        (partition(4, 2), True),
        (partition(5, 3), True),
        (FAILED, True),
        (partition(5, 2, error=ErrorCode.UNKNOWN_SERVER_ERROR), True),
        (partition(5, 2, diverging=EpochEndOffset(epoch=0, end_offset=3)), True),
    ],
)
def test_only_news_is_told(now: PartitionData, told: bool) -> None:
    reader = Reader()
    reader.log["a0"] = partition(5, 2)
    reader.fetch("b0", "a0")
    reader.log["a0"] = now
    assert reader.fetch() == (["a0"] if told else [])
    reader.log["a0"] = partition(now.high_watermark, now.log_start_offset)
    assert reader.fetch() == [], "it is known now"


def test_errors_are_told_every_time_and_so_is_their_end() -> None:
    reader = Reader()
    reader.log["a0"] = partition(5, 2)
    reader.fetch("a0")
    reader.log["a0"] = FAILED
    assert reader.fetch() == reader.fetch() == ["a0"]
    reader.log["a0"] = partition(5, 2)
    assert reader.fetch() == ["a0"]
    assert reader.fetch() == []


def test_whoever_gave_records_goes_to_the_end() -> None:
    """So that those behind a partition that is always full come up as well."""
    reader = Reader()
    for at in ("a0", "a1", "b0"):
        reader.log[at] = partition(9)
    reader.fetch("a0", "a1", "b0")
    reader.log["a0"] = partition(9, records=b"records")
    reader.log["a1"] = partition(10)
    assert reader.fetch() == ["a0", "a1"]
    assert names(reader.begin()) == ["a1", "b0", "a0"], "a new high watermark moves nobody"


def test_a_session_is_read_in_the_order_of_its_first_answer() -> None:
    """There those that cannot be read come last."""
    reader = Reader()
    fetching = reader.begin("a0", "b0", "c0")
    assert isinstance(fetching, Fetching)
    first, *rest = fetching.partitions
    told = reader.sessions.tell(fetching, [(asked, partition()) for asked in (*rest, first)], Milliseconds(0))
    reader.id, reader.epoch = told.session_id, 1
    assert names(reader.begin()) == ["b0", "c0", "a0"]


def test_an_answer_that_was_overtaken_is_none() -> None:
    """The same session from elsewhere, while a request waits."""
    reader = Reader()
    reader.fetch("a0")
    waiting = reader.begin()
    reader.epoch += 1
    assert reader.fetch() == []
    assert reader.tell(waiting) == SessionAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, reader.id, ())


def test_a_session_that_is_closed_while_a_request_waits_still_answers_it() -> None:
    reader = Reader()
    reader.fetch("a0")
    waiting = reader.begin()
    old = reader.id
    reader.epoch = CLOSE
    reader.fetch()
    assert reader.tell(waiting) == SessionAnswer(ErrorCode.NONE, old, [])


# Who gets a session (KIP-227, "Session caching")


def reader_of(sessions: FetchSessions, partitions: int, now: int) -> Reader:
    reader = Reader(sessions)
    reader.now = now
    reader.fetch(*(f"a{n}" for n in range(partitions)))
    return reader


def test_where_there_is_no_room_everything_is_asked_for_every_time() -> None:
    sessions = FetchSessions(2, Milliseconds(EVICTION), random.Random(1))
    assert all(reader_of(sessions, 1, 0).id for _ in range(2))
    third = reader_of(sessions, 5, 0)
    assert (third.id, len(sessions)) == (NO_SESSION, 2)
    assert reader_of(FetchSessions(0, Milliseconds(EVICTION), random.Random(1)), 1, 0).id == NO_SESSION


def test_a_session_that_is_long_unused_makes_room() -> None:
    sessions = FetchSessions(2, Milliseconds(EVICTION), random.Random(1))
    unused, used = reader_of(sessions, 3, 0), reader_of(sessions, 3, 0)
    used.now = MINUTE
    used.fetch()
    assert reader_of(sessions, 1, EVICTION).id == NO_SESSION
    assert reader_of(sessions, 1, EVICTION + 1).id != NO_SESSION
    assert unused.begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert used.fetch() == []


@pytest.mark.parametrize(("size", "gets"), [(2, False), (3, True)])
def test_a_larger_session_takes_the_place_of_a_smaller_one_that_is_not_new(size: int, gets: bool) -> None:
    sessions = FetchSessions(2, Milliseconds(EVICTION), random.Random(1))
    small, large = reader_of(sessions, 2, 0), reader_of(sessions, 4, 0)
    for now in (EVICTION, EVICTION + 1):
        assert reader_of(sessions, size, now).id == NO_SESSION, "both are new, or were when they were last used"
        for reader in (small, large):
            reader.now = now
            reader.fetch()
    assert bool(reader_of(sessions, size, EVICTION + 2).id) == gets
    assert (small.begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND) == gets
    assert large.fetch() == []


def test_session_ids_are_those_that_apache_kafka_may_give() -> None:
    sessions = FetchSessions(50, Milliseconds(EVICTION), random.Random(1))
    ids = [reader_of(sessions, 1, 0).id for _ in range(50)]
    assert len(dict.fromkeys(ids)) == 50
    assert all(0 < session <= LARGEST_ID for session in ids)


@pytest.mark.parametrize("last", range(-1, 5))
def test_only_who_has_read_the_newest_leader_epoch_or_knows_of_none_has_all_without_a_look(last: int) -> None:
    """Any other may have parted, and is told so though there are no records."""
    wanted = FetchPartition(partition=0, fetch_offset=7, last_fetched_epoch=last, partition_max_bytes=1)
    asked = Asked(("a", 0), "a", IDS["a"], wanted)
    asked.high_watermark, asked.log_start_offset = 7, 0
    ends: Any = SimpleNamespace(high_watermark=7, log_start_offset=0, leader_epoch=3)
    assert asked.has_all(ends, 7) is (last in (-1, 3))
