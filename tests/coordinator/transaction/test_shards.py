"""Of the ids that are due to be forgotten those stay that are used, or given up, before it is their turn."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fencepost.coordinator.transaction.shards import (
    TransactionalIdEntry,
    TransactionCoordinatorShard,
    TransactionCoordinatorShards,
)
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log.partition import Appended
from fencepost.protocol.types import Lsn, Milliseconds, Offset, ProducerId
from fencepost.runtime import at_once


class Log:
    """Takes whatever is appended."""

    leader_epoch = 0
    lsn = 0

    def __init__(self) -> None:
        self.appended: list[bytes] = []

    def append(self, batch: bytes, *_: object) -> Appended:
        self.appended.append(batch)
        return Appended(Offset(0), Offset(0), -1, Offset(0), lsn=Lsn(1))


@pytest.mark.parametrize("used", [(), ("a",), ("b", "c"), ("a", "b", "c")])
def test_what_was_used_meanwhile_is_not_forgotten(used: tuple[str, ...]) -> None:
    log = Log()
    shards = TransactionCoordinatorShards(cast(Any, None))
    shard = shards._loaded[0] = TransactionCoordinatorShard(0, cast(Any, log), cast(Any, log))
    for name in ("a", "b", "c"):
        shards.add(name, TransactionalIdEntry(TransactionMetadata(name, ProducerId(1)), shard))
    due = {"a", "b", "c"}
    work = shards.expire(lambda transaction: transaction.transactional_id in due, Milliseconds(1))
    next(work)
    due -= set(used)
    assert at_once(work) == len(due)
    assert set(shards.entries) == set(shard.entries) == set(used)
    assert len(log.appended) == bool(due)
