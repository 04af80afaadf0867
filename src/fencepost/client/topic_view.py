"""The metadata of one topic that a client keeps: name, id, and the leader of each partition."""

from __future__ import annotations

import uuid
from typing import NamedTuple


class TopicView(NamedTuple):
    """A topic as of the last Metadata response.  `leaders`: partition -> node id of its leader, -1 if it has none."""

    name: str
    topic_id: uuid.UUID
    leaders: dict[int, int]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)
