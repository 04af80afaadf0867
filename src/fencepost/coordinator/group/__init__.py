"""Consumer groups and their committed offsets."""

from fencepost.coordinator.group.answers import Answered
from fencepost.coordinator.group.classic.leave import MemberIdentity
from fencepost.coordinator.group.classic.responses import refuse_join, refuse_sync
from fencepost.coordinator.group.coordinator import CommitFor, Committed, GroupCoordinator
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.settings import GroupSettings

__all__ = [
    "Answered",
    "CommitFor",
    "Committed",
    "CommittedOffset",
    "GroupCoordinator",
    "GroupSettings",
    "MemberIdentity",
    "refuse_join",
    "refuse_sync",
]
