"""The producer's states and calls: what the tables say, against what they are to say in words."""

from __future__ import annotations

import re

import pytest

from fencepost.client.errors import MisuseError
from fencepost.client.transaction_state import CALLS, TRANSITIONS, State, check_call, completion, follow

S = State
#: What is open, in whatever way it may still end.
OPEN = {S.IN_TRANSACTION, S.PREPARED, S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR}


def may_be_called(call: str, state: State) -> bool:
    """In words: what a transaction has begun with ends it, and what has failed can only be aborted."""
    match call:
        case "init_transactions":
            return state is S.UNINITIALIZED
        case "begin_transaction":
            return state is S.READY
        case "send" | "send_offsets_to_transaction":
            return state is S.IN_TRANSACTION  # nothing comes behind what was prepared, or is being ended
        case "prepare_transaction":
            return state in (S.IN_TRANSACTION, S.PREPARED)  # again: to be told once more
        case "complete_transaction":
            # What another process prepared, too; again, where its end has begun and is not confirmed.
            return state in (S.UNINITIALIZED, S.PREPARED, S.COMMITTING, S.ABORTING, S.READY)
        case "commit_transaction":
            return state in OPEN - {S.ABORTING, S.ABORTABLE_ERROR}
        case _:
            assert call == "abort_transaction"
            return state in OPEN - {S.COMMITTING}  # it may be committed by then


def may_follow(state: State, following: State) -> bool:
    """In words: what has begun to end in one way does not end in the other, unless it failed."""
    if following is S.FATAL_ERROR:
        return state is not S.FATAL_ERROR
    match following:
        case S.UNINITIALIZED:
            return state is S.INITIALIZING
        case S.INITIALIZING:
            return state is S.UNINITIALIZED
        case S.READY:
            return state in (S.INITIALIZING, S.COMMITTING, S.ABORTING)
        case S.IN_TRANSACTION:
            return state is S.READY
        case S.PREPARED:
            return state in (S.IN_TRANSACTION, S.INITIALIZING)  # or it was kept from an earlier producer
        case S.COMMITTING:
            return state in (S.IN_TRANSACTION, S.PREPARED)
        case S.ABORTING:
            return state in (S.IN_TRANSACTION, S.PREPARED, S.ABORTABLE_ERROR)
        case _:
            return state in OPEN - {S.ABORTABLE_ERROR}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_may_be_made_where_the_words_say(call: str, state: State) -> None:
    assert (state in CALLS[call]) == may_be_called(call, state)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("is_this_one", [True, False])
def test_what_has_begun_to_end_is_completed_in_no_other_way(state: State, is_this_one: bool) -> None:
    """It may be committed by then, or aborted."""
    wanted, other = (S.COMMITTING, S.ABORTING) if is_this_one else (S.ABORTING, S.COMMITTING)
    if state is other or state not in CALLS["complete_transaction"]:
        with pytest.raises(MisuseError, match=re.escape(state.value)):
            completion(state, is_this_one=is_this_one)
    else:
        is_open = state in OPEN
        assert completion(state, is_this_one=is_this_one) is (wanted if is_open else None)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("following", State)
def test_a_state_follows_another_where_the_words_say(state: State, following: State) -> None:
    assert (following in TRANSITIONS[state]) == may_follow(state, following)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_taken_in_its_states_and_refused_with_a_reason_in_all_others(call: str, state: State) -> None:
    if state in CALLS[call]:
        check_call(call, state)
    else:
        with pytest.raises(MisuseError, match=re.escape(state.value)):
            check_call(call, state)


@pytest.mark.parametrize("state", sorted(OPEN | {S.READY}, key=str))
def test_who_initializes_twice_is_told_that_it_was_done(state: State) -> None:
    """Not to begin a transaction first, and then initialize."""
    with pytest.raises(MisuseError, match=r"^init_transactions\(\) was called before, and once is enough: "):
        check_call("init_transactions", state)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("following", State)
def test_only_the_states_of_the_table_follow(state: State, following: State) -> None:
    if following in TRANSITIONS[state]:
        assert follow(state, following) is following
    else:
        with pytest.raises(AssertionError):
            follow(state, following)


def test_every_state_but_the_fatal_one_can_be_left_and_reached() -> None:
    reached = {State.UNINITIALIZED} | {after for following in TRANSITIONS.values() for after in following}
    assert reached == set(State)
    assert [state for state, following in TRANSITIONS.items() if not following] == [State.FATAL_ERROR]
