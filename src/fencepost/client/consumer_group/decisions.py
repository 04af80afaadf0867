"""The states of a member of a group, and the next one after each event (KIP-848, "Consumer Group Member States").

OUTSIDE --join--> JOINING --given--> RECONCILING --taken--> STABLE --given--> RECONCILING --taken--> ...

Whoever loses its place is OUTSIDE, gives up what it had, and joins anew.  Pure functions beside tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from fencepost.protocol.errors import ErrorCode

#: Member epochs that say what a member wants.
JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
"""Of a static member: whoever comes with its group_instance_id has its partitions."""


class State(Enum):
    """The states of a member, as it knows them itself."""

    OUTSIDE = auto()
    """No member: its partitions may be another member's.  It joins when records are asked for."""
    JOINING = auto()
    """Asks with epoch 0 to be let in, again and again."""
    STABLE = auto()
    """Has the partitions that the coordinator gave."""
    RECONCILING = auto()
    """Was given other partitions than it has: when records are asked for it gives up, and takes."""
    REPLACED = auto()
    """Another consumer with its group_instance_id has its place, for good."""


class Event(Enum):
    """The events that change the state of a member."""

    JOIN = auto()
    """Records are asked for."""
    KEPT = auto()
    """The coordinator has answered, and gives nothing new."""
    GIVEN = auto()
    """The coordinator has answered, and gives other partitions than the member has."""
    TAKEN = auto()
    """The member has the partitions that it was given last."""
    LOST = auto()
    """The coordinator does not know it, or not with its epoch; or refuses it."""
    LEFT = auto()
    """It has left: it was closed, or nobody asked for records for too long."""
    REPLACED = auto()
    """Its group_instance_id is another member's."""


_OUT: Final = {Event.LOST: State.OUTSIDE, Event.LEFT: State.OUTSIDE, Event.REPLACED: State.REPLACED}

#: state -> what happens -> the state after it; for each pair there is one
TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.OUTSIDE: {
        **_OUT,
        Event.JOIN: State.JOINING,
        Event.KEPT: State.OUTSIDE,
        Event.GIVEN: State.OUTSIDE,
        Event.TAKEN: State.OUTSIDE,
    },
    State.JOINING: {
        **_OUT,
        Event.JOIN: State.JOINING,
        Event.KEPT: State.STABLE,
        Event.GIVEN: State.RECONCILING,
        Event.TAKEN: State.STABLE,
    },
    State.STABLE: {
        **_OUT,
        Event.JOIN: State.STABLE,
        Event.KEPT: State.STABLE,
        Event.GIVEN: State.RECONCILING,
        Event.TAKEN: State.STABLE,
    },
    State.RECONCILING: {
        **_OUT,
        Event.JOIN: State.RECONCILING,
        Event.KEPT: State.RECONCILING,
        Event.GIVEN: State.RECONCILING,
        Event.TAKEN: State.STABLE,
    },
    State.REPLACED: dict.fromkeys(Event, State.REPLACED),
}

#: The states in which the coordinator counts on the member.
MEMBERS: Final = (State.STABLE, State.RECONCILING)
#: Those in which it says that it lives.
HEARTBEATING: Final = (State.JOINING, *MEMBERS)
#: Those in which something is to be done before records are handed out.
UNSETTLED: Final = (State.OUTSIDE, State.JOINING, State.RECONCILING, State.REPLACED)


class Verdict(Enum):
    """What an answer to a heartbeat means for the member that sent it."""

    TAKEN = auto()
    AGAIN = auto()
    """Send the heartbeat again, with everything in it, after a pause."""
    LOST = auto()
    """The partitions are lost; then it joins anew, with epoch 0."""
    REPLACED = auto()
    COMPLAINT = auto()
    """The member stays one, and the next `join` raises the error, once: heartbeats go on, and it may pass."""
    REFUSED = auto()
    """The next `join` raises the error; the one after it joins anew."""


#: error -> what it means.  Not listed: AGAIN if the error is retriable, else REFUSED.
VERDICTS: Final[Mapping[ErrorCode, Verdict]] = {
    ErrorCode.NONE: Verdict.TAKEN,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.LOST,
    ErrorCode.FENCED_MEMBER_EPOCH: Verdict.LOST,
    ErrorCode.STALE_MEMBER_EPOCH: Verdict.LOST,
    ErrorCode.FENCED_INSTANCE_ID: Verdict.REPLACED,
    # Its predecessor, which was killed, has it until its session ends: at most a minute in Apache Kafka.
    ErrorCode.UNRELEASED_INSTANCE_ID: Verdict.AGAIN,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.COMPLAINT,
    ErrorCode.UNSUPPORTED_ASSIGNOR: Verdict.REFUSED,
    ErrorCode.GROUP_MAX_SIZE_REACHED: Verdict.REFUSED,
    ErrorCode.INVALID_REGULAR_EXPRESSION: Verdict.REFUSED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.REFUSED,
    ErrorCode.INVALID_REQUEST: Verdict.REFUSED,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.REFUSED,
}

#: What else it means for who has nothing to lose, and is no member yet.
_OF_WHO_JOINS: Final = {Verdict.LOST: Verdict.AGAIN, Verdict.COMPLAINT: Verdict.REFUSED}
#: verdict -> what happens to the member by it; TAKEN depends on what is given, the others leave it as it is
EVENTS: Final[Mapping[Verdict, Event]] = {
    Verdict.LOST: Event.LOST,
    Verdict.REFUSED: Event.LOST,
    Verdict.REPLACED: Event.REPLACED,
}


def after(state: State, event: Event) -> State:
    """The state of a member after an event in `state`."""
    return TRANSITIONS[state][event]


def verdict_of(error: ErrorCode, state: State) -> Verdict:
    """What an answer with this error, or none, means for a member in this state."""
    known = VERDICTS.get(error, Verdict.AGAIN if error.retriable else Verdict.REFUSED)
    return _OF_WHO_JOINS.get(known, known) if state is State.JOINING else known


def epoch_of_leaving(group_instance_id: str | None) -> int:
    """The epoch with which a member says that it leaves; with a group_instance_id: for a while."""
    return LEAVE if group_instance_id is None else LEAVE_FOR_A_WHILE
