"""Fetch sessions (KIP-227) as a reader keeps them: against the sessions of nodes, whatever becomes of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.session_world import BY_ID, BY_NAME, PARTITIONS, WITHOUT_SESSIONS, World

from fencepost.client.errors import BrokerError
from fencepost.client.fetch_session import FetchSession, SessionRequest, Wanted
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.fetch_sessions import BEGIN, CLOSE, NO_SESSION
from fencepost.protocol.messages import FetchResponse
from fencepost.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from fencepost.protocol.types import TopicPartition

A, B, C = PARTITIONS[:3]
ID, OTHER = UUID(int=1), UUID(int=2)


# What is said of a session


def answer(*told: TopicPartition, session_id: int = 5, error: int = 0, topic_id: UUID = ID) -> FetchResponse:
    responses = [
        FetchableTopicResponse(
            topic=at.topic,
            topic_id=topic_id,
            partitions=[PartitionData(partition_index=at.partition, error_code=0, high_watermark=1, records=b"")],
        )
        for at in told
    ]
    return FetchResponse(error_code=error, session_id=session_id, responses=responses)


def wanted(*partitions: TopicPartition, offset: int = 0, topic_id: UUID = ID) -> dict[TopicPartition, Wanted]:
    return dict.fromkeys(partitions, Wanted(topic_id, offset))


def begun(version: int = BY_NAME) -> FetchSession:
    """A session 5 of partitions A and B, of which the node has told all."""
    session = FetchSession()
    assert session.ask(wanted(A, B), version)[:2] == (NO_SESSION, BEGIN)
    session.answered(answer(A, B))
    return session


def kept(session: FetchSession) -> list[dict[Any, Any]]:
    return [found for name in FetchSession.__slots__ if isinstance(found := getattr(session, name), dict)]


def test_only_what_has_changed_is_named() -> None:
    session = begun()
    assert session.ask(wanted(A, B), BY_NAME) == SessionRequest(5, 1, {}, [])
    session.answered(answer())
    assert session.ask(wanted(A) | wanted(B, offset=7), BY_NAME) == SessionRequest(5, 2, wanted(B, offset=7), [])
    session.answered(answer(B))
    assert session.ask(wanted(A, C), BY_NAME) == SessionRequest(5, 3, wanted(C), [(B, ID)])


@pytest.mark.parametrize(("version", "forgotten"), [(BY_ID, [(A, ID)]), (BY_NAME, [])])
def test_of_a_topic_that_was_made_anew_the_former_is_forgotten_by_its_id(version: int, forgotten: list[Any]) -> None:
    """By its name both would be: what a request forgets leaves last."""
    session = begun(version)
    asked = session.ask(wanted(A, topic_id=OTHER) | wanted(B), version)
    assert asked == SessionRequest(5, 1, wanted(A, topic_id=OTHER), forgotten)


def test_of_topics_that_come_and_go_nothing_is_kept() -> None:
    session = begun(BY_ID)
    ids = [ID, *(UUID(int=number) for number in range(10, 14))]
    for topic_id in ids[1:]:
        session.ask(wanted(A, topic_id=topic_id) | wanted(B, topic_id=OTHER), BY_ID)
        session.answered(answer(A, topic_id=topic_id))
    assert not any(topic_id in found for topic_id in ids[:-1] for found in kept(session))
    assert session.answered(answer(B, topic_id=OTHER)) is not None


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_where_a_log_ends_is_known_of_what_is_wanted_and_of_nothing_else(version: int) -> None:
    """As long as nothing new is told; of what was forgotten, or made anew, it is not known any more."""
    session = begun(version)
    session.ask(wanted(A), version)
    told = session.answered(answer())
    assert told is not None and [*told.ends] == [A]
    session.ask(wanted(A, B), version)
    told = session.answered(answer(B))
    assert told is not None and [*told.ends] == [A, B]
    session.ask(wanted(A, B, topic_id=OTHER), version)
    told = session.answered(answer())
    assert told is not None and [*told.ends] == ([A, B] if version == BY_NAME else [])


def test_names_and_ids_are_not_mixed_in_a_session() -> None:
    session = begun(BY_ID)
    assert session.ask(wanted(A, B), BY_NAME) == SessionRequest(5, BEGIN, wanted(A, B), [])
    session.answered(answer(A, B, session_id=6))
    assert session.ask(wanted(A), BY_ID) == SessionRequest(6, BEGIN, wanted(A), [])


def test_a_node_of_before_there_were_sessions_is_told_of_none() -> None:
    session = begun()
    for _ in range(2):
        assert session.ask(wanted(A), WITHOUT_SESSIONS) == SessionRequest(NO_SESSION, CLOSE, wanted(A))
        assert session.answered(answer(A, session_id=NO_SESSION)) is not None
    assert session.end() is None
    assert session.ask(wanted(A), BY_NAME) == SessionRequest(NO_SESSION, BEGIN, wanted(A), [])


def lost(_: FetchSession) -> None:
    """No answer comes."""


def answered(told: FetchResponse) -> Callable[[FetchSession], Any]:
    return lambda session: session.answered(told)


def raising(error: type[Exception], told: FetchResponse) -> Callable[[FetchSession], None]:
    def end(session: FetchSession) -> None:
        with pytest.raises(error):
            session.answered(told)

    return end


def refused(code: ErrorCode) -> Callable[[FetchSession], Any]:
    return answered(answer(session_id=NO_SESSION, error=code))


@pytest.mark.parametrize(
    ("end", "session_id"),
    [
        pytest.param(lost, 5, id="lost"),
        pytest.param(FetchSession.begin_anew, 5, id="another connection"),
        pytest.param(refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), NO_SESSION, id="not found"),
        pytest.param(refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH), 5, id="epoch"),
        pytest.param(refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR), 5, id="topic id"),
        pytest.param(answered(answer(session_id=NO_SESSION)), NO_SESSION, id="closed by the node"),
        pytest.param(answered(answer(session_id=9)), 5, id="another session"),
        pytest.param(raising(ProtocolError, answer(C)), 5, id="not asked"),
        pytest.param(
            raising(BrokerError, answer(session_id=NO_SESSION, error=ErrorCode.UNKNOWN_SERVER_ERROR)), 5, id="refused"
        ),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_what_is_not_answered_as_it_should_be_begins_anew(
    end: Callable[[FetchSession], Any], session_id: int, times: int
) -> None:
    """And has the node close what it may have."""
    session = begun()
    session.ask(wanted(A, B), BY_NAME)
    end(session)
    for _ in range(times):
        assert session.ask(wanted(A, B), BY_NAME) == SessionRequest(session_id, BEGIN, wanted(A, B), [])
    session.answered(answer(A, B, session_id=6))
    assert session.ask(wanted(A, B), BY_NAME) == SessionRequest(6, 1, {}, [])


def test_who_gets_no_room_asks_for_all_and_for_a_session_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.ask(wanted(A, B), BY_NAME) == SessionRequest(NO_SESSION, BEGIN, wanted(A, B), [])
        found = session.answered(answer(A, B, session_id=NO_SESSION))
        assert found is not None and list(found.partitions) == [A, B]
    assert session.end() is None


def test_what_the_first_answer_leaves_out_is_not_taken_for_read() -> None:
    session = FetchSession()
    session.ask(wanted(A, B), BY_NAME)
    session.answered(answer(A))
    assert session.ask(wanted(A, B), BY_NAME) == SessionRequest(5, BEGIN, wanted(A, B), [])


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_node_that_refuses_to_begin_is_not_asked_for_ever_without_a_word(code: ErrorCode) -> None:
    session = FetchSession()
    session.ask(wanted(A), BY_NAME)
    with pytest.raises(BrokerError, match=code.name):
        session.answered(answer(error=code))


def test_an_answer_about_the_former_topic_of_a_name_is_not_taken() -> None:
    session = begun(BY_ID)
    session.ask(wanted(A, topic_id=OTHER), BY_ID)
    with pytest.raises(ProtocolError):
        session.answered(answer(A, topic_id=ID))


def test_a_session_is_ended_once() -> None:
    session = begun()
    assert session.end() == SessionRequest(5, CLOSE, {})
    assert session.end() is None
    assert session.ask(wanted(A), BY_NAME) == SessionRequest(NO_SESSION, BEGIN, wanted(A), [])


# Against nodes


@given(
    st.lists(
        st.tuples(st.sampled_from([*World().steps, *["fetch"] * 8]), st.sampled_from(PARTITIONS), st.integers(0, 11))
    )
)
@settings(max_examples=400)
def test_a_node_takes_for_wanted_what_is_wanted_whatever_happens(steps: list[tuple[str, TopicPartition, int]]) -> None:
    world = World()
    for step, at, number in steps:
        world.steps[step](at, number)
    # Then all is well, and everything is read to its end, each record once.
    world.refresh()
    world.paused.clear()
    for at, log in world.logs.items():
        log.error = ErrorCode.NONE
        world.take(at)
        world.seek(at, log.start)
    world.read.clear()
    for turn in range(100):
        for node in range(2):
            world.fetch(node, 1)
        for at in PARTITIONS:
            if turn % 2:
                world.take(at)
    expected = [
        (at, world.ids[at.topic], offset) for at, log in world.logs.items() for offset in range(log.start, log.end)
    ]
    assert sorted(world.read, key=str) == sorted(expected, key=str)
    for node in range(2):
        has_session = world.sessions[node]._next_epoch != BEGIN
        assert not world.wanted(node) or has_session == (world.nodes[node].version > WITHOUT_SESSIONS)
