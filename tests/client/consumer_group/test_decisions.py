"""What becomes of a member: every pair of the tables, and every answer, against what KIP-848 says in words."""

from __future__ import annotations

import itertools

import pytest

from fencepost.client.consumer_group.decisions import (
    EVENTS,
    HEARTBEATING,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    MEMBERS,
    TRANSITIONS,
    UNSETTLED,
    Event,
    State,
    Verdict,
    after,
    epoch_of_leaving,
    verdict_of,
)
from fencepost.protocol.errors import ErrorCode

PAIRS = list(itertools.product(State, Event))
#: Each once, and what a newer broker may say.
ANSWERS = list(itertools.product(ErrorCode, State))


def expected(state: State, event: Event) -> State:
    """In words: who is replaced stays so, who is outside comes in by joining only, a member has what it was given."""
    if State.REPLACED is state or event is Event.REPLACED:
        return State.REPLACED
    if event in (Event.LOST, Event.LEFT):
        return State.OUTSIDE
    if event is Event.JOIN:
        return State.JOINING if state is State.OUTSIDE else state
    if state is State.OUTSIDE:
        return State.OUTSIDE
    if event is Event.TAKEN:
        return State.STABLE
    if event is Event.GIVEN:
        return State.RECONCILING
    return State.STABLE if state is State.JOINING else state


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_event_in_every_state_leads_where_the_words_say(state: State, event: Event) -> None:
    assert after(state, event) is expected(state, event)


def test_the_table_has_every_pair() -> None:
    assert {state: set(events) for state, events in TRANSITIONS.items()} == {state: set(Event) for state in State}


def test_a_member_that_joined_and_took_what_it_was_given_is_settled_and_nobody_else() -> None:
    assert [state for state in State if state not in UNSETTLED] == [State.STABLE]
    assert {*MEMBERS} == {*HEARTBEATING} - {State.JOINING} == {*State} - {State.OUTSIDE, State.JOINING, State.REPLACED}


@pytest.mark.parametrize(("error", "state"), ANSWERS)
def test_every_answer_means_what_the_words_say(error: ErrorCode, state: State) -> None:
    joins = state is State.JOINING
    match error:
        case ErrorCode.NONE:
            wanted = Verdict.TAKEN
        case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.STALE_MEMBER_EPOCH:
            wanted = Verdict.AGAIN if joins else Verdict.LOST
        case ErrorCode.FENCED_INSTANCE_ID:
            wanted = Verdict.REPLACED
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            wanted = Verdict.REFUSED if joins else Verdict.COMPLAINT
        case ErrorCode.UNRELEASED_INSTANCE_ID:
            wanted = Verdict.AGAIN
        case _:
            wanted = Verdict.AGAIN if error.retriable else Verdict.REFUSED
    assert verdict_of(error, state) is wanted


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_ends_a_membership_or_leaves_it_as_it_is(verdict: Verdict) -> None:
    ends = verdict in (Verdict.LOST, Verdict.REFUSED, Verdict.REPLACED)
    assert (verdict in EVENTS) is ends
    if ends:
        assert all(after(state, EVENTS[verdict]) not in HEARTBEATING for state in State)


def test_a_static_member_goes_for_a_while_and_others_for_good() -> None:
    assert (epoch_of_leaving(None), epoch_of_leaving("i")) == (LEAVE, LEAVE_FOR_A_WHILE) == (-1, -2)
