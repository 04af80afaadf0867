"""Positions that are lost: begin anew where the log has no such offset, and where the topic was made anew."""

from __future__ import annotations

from fencepost.client.fetcher import Fetcher
from fencepost.client.positions import Positions
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.messages.list_offsets import EARLIEST
from fencepost.protocol.types import TopicPartition


async def find_lost_positions(fetcher: Fetcher, places: Positions) -> None:
    """Seek followed partitions whose log lacks the position to one that it has.  Raises NoOffsetError, BrokerError."""
    seeks = {at: followed.seeks for at, followed in fetcher.followed.items()}
    anew = fetcher.made_anew()
    if anew:
        for at, offset in (await places.ends(list(anew), EARLIEST)).items():
            _seek_unless_sought(fetcher, at, offset, seeks[at])
            if at in fetcher.followed:
                fetcher.followed[at].topic_id = anew[at]
            fetcher.working.pop(at, None)
    lost = {at: (fetcher.followed[at].committed(), parted) for at, parted in fetcher.lost().items()}
    parted = {at: places.where_it_parted(at, was, there) for at, (was, there) in lost.items() if there is not None}
    found = {at: position for at, position in parted.items() if position is not None}
    gone = {at: was for at, (was, _) in lost.items() if at not in found}
    for at, position in ((await places.instead_of(gone, led_only=True)) | found).items():
        _seek_unless_sought(fetcher, at, position, seeks[at])
    fetcher.out_of_range.clear()


def _seek_unless_sought(fetcher: Fetcher, at: TopicPartition, position: int | OffsetAndMetadata, seeks: int) -> None:
    """Seek, unless the caller has sought since `seeks` seeks were counted, or the partition is read no more."""
    if at in fetcher.followed and fetcher.followed[at].seeks == seeks:
        fetcher.followed[at].seek(position)
