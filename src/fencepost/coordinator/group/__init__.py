"""Consumer groups and their positions."""

from fencepost.coordinator.group.answers import refuse_join, refuse_sync
from fencepost.coordinator.group.coordinator import CommitFor, Committed, GroupCoordinator
from fencepost.coordinator.group.offsets import Position
from fencepost.coordinator.group.settings import GroupSettings

__all__ = ["CommitFor", "Committed", "GroupCoordinator", "GroupSettings", "Position", "refuse_join", "refuse_sync"]
