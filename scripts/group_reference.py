"""Write docs/reference/groups from the decisions about classic groups: states, and every cell.

    python scripts/group_reference.py

A test keeps the pages current.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import DOCS, table, write

from fencepost.coordinator.group.classic.decision import Await, Decision
from fencepost.coordinator.group.classic.group import TRANSITIONS, Awaiting, ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.classic.heartbeat import heartbeat
from fencepost.coordinator.group.classic.join import Join, check_first, join
from fencepost.coordinator.group.classic.leave import MemberIdentity, leave
from fencepost.coordinator.group.classic.offsets import (
    validate_offset_commit,
    validate_transactional_offset_commit,
)
from fencepost.coordinator.group.classic.responses import refuse_join
from fencepost.coordinator.group.classic.sync import Sync, sync
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse, SyncGroupResponse
from fencepost.protocol.types import Epoch, Milliseconds

FOLDER = DOCS / "reference" / "groups"
NOTHING = "-"
SETTINGS: Final = GroupSettings()
NOW: Final = Milliseconds(1)
GENERATION: Final = Epoch(3)
MINE, OTHER = (("range", b"topics"),), (("range", b"other topics"),)
CHANGING = (("sticky", b"topics"),)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicGroupState


class Who(NamedTuple):
    """A caller, as it names itself."""

    member_id: str
    group_instance_id: str | None = None
    generation_id: int = GENERATION
    protocols: tuple[tuple[str, bytes], ...] = MINE
    #: JoinGroup v4 and later.
    require_known_member_id: bool = True


def member(name: str, instance: str | None = None, awaiting: Awaiting | None = None) -> Member:
    """A member of the group of every situation."""
    return Member(
        member_id=name,
        group_instance_id=instance,
        client_id="client",
        client_host="/host",
        session_timeout_ms=Milliseconds(10_000),
        rebalance_timeout_ms=Milliseconds(20_000),
        protocols=(*MINE, ("sticky", b"topics")) if instance is None else MINE,
        assignment=f"{name}'s".encode(),
        awaiting=awaiting,
    )


def group(state: ClassicGroupState, *members: Member, delay_left_ms: Milliseconds | None = None) -> ClassicGroup:
    """A group in its third generation, which has given out an id that is not used yet."""
    made = ClassicGroup("g", state, GENERATION, "consumer", "range" if members else None)
    made = made._replace(initial_delay_left_ms=delay_left_ms)
    return made.with_members(members).with_pending("pending")


def with_all(state: ClassicGroupState) -> ClassicGroup:
    """The leader, a follower, and a static member "s" with the instance "i"; nobody waits yet."""
    return group(state, member("leader"), member("follower"), member("s", "i"))


#: What the group is when the request comes; None: nobody knows it.
SITUATIONS: Final[Mapping[str, ClassicGroup | None]] = {
    "no such group": None,
    "Empty": group(EMPTY),
    "PreparingRebalance": with_all(PREPARING),
    "PreparingRebalance, only the caller is missing": group(
        PREPARING, member("leader", awaiting=Awaiting.JOIN), member("follower")
    ).without_pending(("pending",)),
    "PreparingRebalance, in the initial delay": group(
        PREPARING, member("leader", awaiting=Awaiting.JOIN), delay_left_ms=Milliseconds(0)
    ),
    "CompletingRebalance": with_all(COMPLETING),
    "Stable": with_all(STABLE),
    "Stable, one member": group(STABLE, member("leader")).without_pending(("pending",)),
}

JOINERS: Final[Mapping[str, Who]] = {
    "no id, v4+": Who(""),
    "no id, below v4": Who("", require_known_member_id=False),
    "a new instance": Who("", "j"),
    "the instance of a member, no id": Who("", "i"),
    "the same, changing the protocol": Who("", "i", protocols=CHANGING),
    "a pending id": Who("pending"),
    "follower": Who("follower", protocols=(*MINE, ("sticky", b"topics"))),
    "follower, other protocols": Who("follower", protocols=OTHER),
    "leader": Who("leader", protocols=(*MINE, ("sticky", b"topics"))),
    "a former id of a static member": Who("s-former", "i"),
    "an unknown id": Who("stranger"),
    "protocols that nobody has": Who("", protocols=(("other", b""),)),
}
MEMBERS: Final[Mapping[str, Who]] = {
    "leader": Who("leader"),
    "follower": Who("follower"),
    "static member": Who("s", "i"),
    "a generation behind": Who("follower", generation_id=GENERATION - 1),
    "a generation ahead": Who("follower", generation_id=GENERATION + 1),
    "a former id of a static member": Who("s-former", "i"),
    "an unknown instance": Who("s", "j"),
    "a pending id": Who("pending"),
    "an unknown id": Who("stranger"),
}
LEAVERS: Final[Mapping[str, Who]] = {
    "leader": Who("leader"),
    "follower": Who("follower"),
    "static member": Who("s", "i"),
    "an instance, no id": Who("", "i"),
    "a former id of a static member": Who("s-former", "i"),
    "an unknown instance": Who("", "j"),
    "a pending id": Who("pending"),
    "an unknown id": Who("stranger"),
}
COMMITTERS: Final[Mapping[str, Who]] = {"nobody": Who("", generation_id=-1), **MEMBERS}

#: What a caller is told, in words; and the group then, where it may be another.
Cell = Callable[[ClassicGroup | None, Who], str]


def told(before: ClassicGroup | None, answer: object, after: ClassicGroup) -> str:
    """An answer in a few words, and the state where it changes.  None: it waits."""
    state = EMPTY if before is None else before.state
    change = "" if after.state is state else f", then {after.state.value}"
    match answer:
        case None:
            return f"waits{change}"
        case JoinGroupResponse(error_code=error) | SyncGroupResponse(error_code=error):
            return (ErrorCode(error).name if error else "ok") + change
        case ErrorCode():
            return (answer.name if answer else "ok") + change
    raise AssertionError(f"no answer: {answer}")


def request_of(who: Who) -> Join:
    """What this caller asks of JoinGroup."""
    return Join(
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        client_id="client",
        client_host="/host",
        session_timeout_ms=Milliseconds(10_000),
        rebalance_timeout_ms=Milliseconds(20_000),
        protocol_type="consumer",
        protocols=who.protocols,
        new_member_id="new",
        require_known_member_id=who.require_known_member_id,
    )


def join_cell(of: ClassicGroup | None, who: Who) -> str:
    request, first = request_of(who), ClassicGroup("g")
    refused = check_first(first, request) if of is None else ErrorCode.NONE
    if refused:
        return told(of, refuse_join(refused), first)
    return _decided(of, join(of or first, request, SETTINGS, NOW))


def sync_cell(of: ClassicGroup | None, who: Who) -> str:
    if of is None:
        return ErrorCode.UNKNOWN_MEMBER_ID.name
    member_id, instance, generation, *_ = who
    request = Sync(member_id, instance, generation, protocol_type="consumer", protocol_name=None, assignments={})
    return _decided(of, sync(of, request, SETTINGS, NOW))


def _decided(
    of: ClassicGroup | None, decision: Decision[JoinGroupResponse | None] | Decision[SyncGroupResponse | None]
) -> str:
    """A request that waits may have been answered at once, where nobody else was waited for."""
    waits = [effect.member_id for effect in decision.effects if isinstance(effect, Await)]
    if waits and decision.group.members[waits[0]].awaiting is None:
        return f"ok, then {decision.group.state.value}"
    return told(of, decision.answer, decision.group)


def heartbeat_cell(of: ClassicGroup | None, who: Who) -> str:
    if of is None:
        return ErrorCode.UNKNOWN_MEMBER_ID.name
    return told(of, heartbeat(of, who.member_id, who.group_instance_id, who.generation_id).answer, of)


def leave_cell(of: ClassicGroup | None, who: Who) -> str:
    if of is None:
        return ErrorCode.UNKNOWN_MEMBER_ID.name
    decision = leave(of, [MemberIdentity(who.member_id, who.group_instance_id)], SETTINGS, NOW)
    return told(of, decision.answer[0], decision.group)


def commit_cell(of: ClassicGroup | None, who: Who) -> str:
    if of is None:
        return "ok" if who.generation_id < 0 else ErrorCode.GROUP_ID_NOT_FOUND.name
    return told(of, validate_offset_commit(of, *who[:3]), of)


def transactional_commit_cell(of: ClassicGroup | None, who: Who) -> str:
    if of is None:
        return "ok" if who.generation_id < 0 else ErrorCode.GROUP_ID_NOT_FOUND.name
    return told(of, validate_transactional_offset_commit(of, *who[:3]), of)


TABLES: Final[Mapping[str, tuple[Cell, Mapping[str, Who]]]] = {
    "JoinGroup": (join_cell, JOINERS),
    "SyncGroup": (sync_cell, MEMBERS),
    "Heartbeat": (heartbeat_cell, MEMBERS),
    "LeaveGroup": (leave_cell, LEAVERS),
    "OffsetCommit": (commit_cell, COMMITTERS),
    "TxnOffsetCommit": (transactional_commit_cell, COMMITTERS),
}


def is_possible(situation: str, who: Who) -> bool:
    """Whether there is such a caller in this situation: a member, a pending member, an instance that has a member."""
    of = SITUATIONS[situation]
    if who.member_id == "pending":
        return of is not None and "pending" in of.pending_members
    if who.member_id in ("leader", "follower", "s"):
        missing = situation != "PreparingRebalance, only the caller is missing" or who.member_id != "leader"
        return of is not None and who.member_id in of.members and missing
    return who.group_instance_id != "i" or (of is not None and "i" in of.static_members)


def requests_page() -> str:
    """Every request, by situation and caller."""
    lines = [
        "# Every cell",
        "",
        "What each request about a classic group is answered, by the state of the group (rows) and by who asks",
        '(columns). The group has a leader, a follower and a static member with the instance "i", and has given out',
        'an id that has not joined yet. "waits": answered when the generation begins (JoinGroup), or when the leader',
        "has assigned (SyncGroup). A state follows where it changes.",
        "Generated from the decisions of the coordinator; do not edit.",
    ]
    for name, (cell, callers) in TABLES.items():
        lines += ["", f"## {name}", ""]
        body = (
            [situation, *(cell(of, who) if is_possible(situation, who) else NOTHING for who in callers.values())]
            for situation, of in SITUATIONS.items()
        )
        lines += table(["state", *callers], body)
    return "\n".join(lines) + "\n"


def states_page() -> str:
    """The states, and what moves a group from one to another."""
    lines = [
        "# The states of a classic group",
        "",
        "Generated from the coordinator's own table; do not edit. A move that is not here never happens.",
        "",
    ]
    moves = ([old.value, new.value, "; ".join(each.value for each in why)] for (old, new), why in TRANSITIONS.items())
    lines += table(["from", "to", "because of"], moves)
    return "\n".join(lines) + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = {"states.md": states_page, "requests.md": requests_page}


def main() -> None:
    write({f"reference/groups/{name}": page for name, page in PAGES.items()})


if __name__ == "__main__":
    main()
