"""A topic that was made anew is read from its beginning, under the id that it has now."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast

from fencepost.client.lost_positions import find_lost_positions
from fencepost.protocol.types import TopicPartition

AT = TopicPartition("t", 0)
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def test_the_next_fetch_asks_for_the_topic_that_is_there_now() -> None:
    sought: list[int] = []
    followed = SimpleNamespace(seeks=0, topic_id=OLD, seek=sought.append)
    fetcher = SimpleNamespace(
        followed={AT: followed}, made_anew=lambda: {AT: NEW}, lost=list, working={AT: 4}, out_of_range={AT: 4}
    )

    async def ends(partitions: list[TopicPartition], _: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def instead_of(lost: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return lost

    places = SimpleNamespace(ends=ends, instead_of=instead_of)
    asyncio.run(find_lost_positions(cast(Any, fetcher), cast(Any, places)))
    assert (sought, followed.topic_id) == ([0], NEW)
    assert (fetcher.working, fetcher.out_of_range) == ({}, {}), "what was known of the former one counts no more"
