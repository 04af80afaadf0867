"""The table of transitions against facts §1.1 and §1.2, written out here a second time."""

from __future__ import annotations

import pytest

from fencepost.coordinator.transaction.state import BY_WIRE_NAME, COMPLETION, TRANSITIONS, State

#: id, name in code, name on the wire
STATES = """
0 EMPTY Empty
1 ONGOING Ongoing
2 PREPARE_COMMIT PrepareCommit
3 PREPARE_ABORT PrepareAbort
4 COMPLETE_COMMIT CompleteCommit
5 COMPLETE_ABORT CompleteAbort
6 DEAD Dead
7 PREPARE_EPOCH_FENCE PrepareEpochFence
"""

#: target <- current states (PREPARE_EPOCH_FENCE is one step with PREPARE_ABORT here, so it is neither)
LEGAL = """
EMPTY <- EMPTY COMPLETE_COMMIT COMPLETE_ABORT
ONGOING <- EMPTY ONGOING COMPLETE_COMMIT COMPLETE_ABORT
PREPARE_COMMIT <- ONGOING
PREPARE_ABORT <- ONGOING EMPTY COMPLETE_COMMIT COMPLETE_ABORT
COMPLETE_COMMIT <- PREPARE_COMMIT
COMPLETE_ABORT <- PREPARE_ABORT
DEAD <- EMPTY COMPLETE_COMMIT COMPLETE_ABORT
"""


@pytest.mark.parametrize("line", STATES.strip().splitlines())
def test_numbers_and_names_are_kafkas(line: str) -> None:
    number, name, wire_name = line.split()
    state = State(int(number))
    assert state.name == name
    assert state.wire_name == wire_name
    assert BY_WIRE_NAME[wire_name] is state
    assert len(State) == 8


def test_transitions_are_those_of_the_facts_and_no_others() -> None:
    legal = {
        (State[current], State[target])
        for line in LEGAL.strip().splitlines()
        for target, currents in [line.split(" <- ")]
        for current in currents.split()
    }
    assert set(TRANSITIONS) == legal
    assert all(TRANSITIONS.values()), "somebody may ask for each of them"


def test_completion_follows_the_table() -> None:
    for prepared, completed in COMPLETION.items():
        assert (prepared, completed) in TRANSITIONS
        assert [to for of, to in TRANSITIONS if of is prepared] == [completed], "a decision only goes forward"
