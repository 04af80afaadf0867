"""Retention and expiry of producers, done for every partition at intervals."""

from __future__ import annotations

from fencepost.log.commit_log import StorageFailed
from fencepost.log.data_directory import is_gone
from fencepost.log.storage import Storage
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Work


def upkeep(storage: Storage, now: Milliseconds) -> Work[None]:
    """Retention and expiry of producers, once over all partitions; a step for each at the least."""
    to_drop = False
    for partition in storage.partitions():
        if storage.partition(partition.topic, partition.index) is partition:  # not deleted meanwhile
            partition.retain(now)
            to_drop |= partition.has_segments_to_drop
            yield from partition.producers.expire(now, partition.settings.producer_id_expiration_ms)
        yield
    if to_drop:
        storage.checkpoint_soon()


def watch_space(storage: Storage, now: Milliseconds) -> Work[None]:
    """Warn of a disk that gets full, and free what can be freed on a full one; done every few seconds.

    A node whose directory was taken away ends, before more is acknowledged that nobody finds again.
    """
    if is_gone(storage.disk, storage.path):
        storage.fail(StorageFailed(f"{storage.path} is gone"))
        return
    partitions = sum(1 for _ in storage.partitions())
    while storage.space.hold(partitions):
        yield
    storage.space.watch()
    yield
    if storage.space.is_short:
        storage.removals.hurry()
        yield from upkeep(storage, now)
        storage.checkpoint_soon(storage.space.size)  # it frees the commit log before it
