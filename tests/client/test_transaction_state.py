"""The producer's states and calls, as the tables say."""

from __future__ import annotations

import re

import pytest

from fencepost.client.errors import MisuseError
from fencepost.client.transaction_state import CALLS, TRANSITIONS, State, check_call, follow


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_taken_in_its_states_and_refused_with_a_reason_in_all_others(call: str, state: State) -> None:
    if state in CALLS[call]:
        check_call(call, state)
    else:
        with pytest.raises(MisuseError, match=re.escape(state.value)):
            check_call(call, state)


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
