"""The leader epoch of this node's partitions: a newer one after each start that may have found less than was there.

Where the commit log has every append, a start brings back all that was acknowledged, and the leader goes on as the same
one.  Where it has not (--flush=os, a commit log that is lost or damaged), a power loss may have taken what consumers
have read already, and what is written then has the same offsets.  By the epoch they are told so (KIP-101, KIP-320); in
Apache Kafka every start of a broker begins a new one.  An epoch is the number of the start that began it.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.metadata.starts import Known
from fencepost.broker.metadata.store import MetadataStore
from fencepost.log import checkpoint_files, data_directory
from fencepost.log.disk import NothingLeft
from fencepost.log.storage import Storage
from fencepost.protocol.types import LeaderEpoch

KEY: Final = "leader-epoch"
_IN_FILES: Final = range(1 << 30)
"""Epochs that are believed of files, which have no checksum: there is room for many starts behind them."""


def settle(
    store: MetadataStore, storage: Storage, known: Known, *, may_lack_records: bool, rebuilt: bool
) -> LeaderEpoch:
    """The epoch of this start, 0 at first: before partitions are opened, to be written when the start is counted.

    `rebuilt`: whether the metadata was lost.  Then, and where it is older than the logs, the last epoch is not known.
    """
    found = store.get(KEY)
    last = 0 if found is None else int(found.value)
    if not (may_lack_records or rebuilt or known.metadata_is_older):
        return LeaderEpoch(last)
    return LeaderEpoch(max(known.next_number, last + 1, _newest_in_files(storage) + 1 if rebuilt else 0))


def _newest_in_files(storage: Storage) -> int:
    """The newest one that the file of any partition names, -1 for none: the number of starts may be lost as well."""
    disk, newest = storage.disk, -1
    for each in data_directory.partitions_in(disk, storage.path, {}):
        try:
            starts = checkpoint_files.read_leader_epochs(disk, storage.path / f"{each.topic}-{each.index}")
        except NothingLeft:
            raise
        except OSError:
            continue
        newest = max([newest, *(epoch for epoch, _ in starts or () if epoch in _IN_FILES)])
    return newest
