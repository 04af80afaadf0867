"""The result of a pure decision about a classic group: the next group, answers, and timers.

A decision is a function of (group, request or timer, settings, now); it never touches a clock, a file, a future or a
timer.  `group.membership` appends what it says, holds it in memory, sets the timers, and answers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse, SyncGroupResponse
from fencepost.protocol.types import Milliseconds


class TimerKind(Enum):
    """The kinds of timers of a group; the value says what is over when one rings."""

    SESSION = "the session of a member, or of a member id that was given out"
    REBALANCE = "a phase of the rebalance: the initial delay, joining, or syncing"


class Timer(NamedTuple):
    """One timer of a group."""

    kind: TimerKind
    #: Whose session it is; "" for the rebalance.
    member_id: str = ""


REBALANCE: Final = Timer(TimerKind.REBALANCE)


def session(member_id: str) -> Timer:
    """The timer of a member's session."""
    return Timer(TimerKind.SESSION, member_id)


class SetTimer(NamedTuple):
    """An effect: the timer rings once, `delay_ms` from now on; if it was set already, then and not before."""

    timer: Timer
    delay_ms: Milliseconds


class CancelTimer(NamedTuple):
    """An effect: this timer does not ring any more; nothing if it is not set."""

    timer: Timer


class Await(NamedTuple):
    """An effect: the request that is decided waits, until there is an `Answer` to this member."""

    member_id: str
    request: Awaiting


class Answer(NamedTuple):
    """An effect: the response to the request of this member that waits."""

    member_id: str
    response: JoinGroupResponse | SyncGroupResponse


Effect: TypeAlias = SetTimer | CancelTimer | Await | Answer

A = TypeVar("A")


class Change(NamedTuple):
    """The result of some steps of a decision: the group after them, and the effects to carry out, in this order."""

    group: ClassicGroup
    effects: tuple[Effect, ...] = ()
    #: The group is another one for the journal: it must be appended.
    is_stored: bool = False

    def then(self, step: Callable[[ClassicGroup], Change]) -> Change:
        """The result of this and of another step after it, which begins with the group as it is then."""
        following = step(self.group)
        effects = self.effects + following.effects
        return Change(following.group, effects, self.is_stored or following.is_stored)


class Decision(NamedTuple, Generic[A]):
    """If `if_refused` is there, append `group` to the journal; hold it, do the `effects` in their order, answer.

    `if_refused` tells from the journal's error what is decided where it does not take the record; that needs none.
    """

    group: ClassicGroup
    #: To the request itself; None where it waits, or where there is none.
    answer: A
    effects: tuple[Effect, ...] = ()
    if_refused: Callable[[ErrorCode], Decision[A]] | None = None


def decided(change: Change, answer: A, if_refused: Callable[[ErrorCode], A]) -> Decision[A]:
    """The decision to answer so when the change is stored, if it must be; refused, it counts in memory all the same."""
    if not change.is_stored:
        return Decision(change.group, answer, change.effects)

    def refused(error: ErrorCode) -> Decision[A]:
        return Decision(change.group, if_refused(error), change.effects)

    return Decision(change.group, answer, change.effects, refused)
