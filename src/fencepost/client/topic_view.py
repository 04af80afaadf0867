"""What is known of a topic."""

from __future__ import annotations

import uuid
from typing import NamedTuple


class TopicView(NamedTuple):
    """A topic as of the last metadata: who leads each partition (-1: nobody)."""

    name: str
    topic_id: uuid.UUID
    leaders: dict[int, int]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)
