"""Markers that this node writes into its own partitions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fencepost.broker.leader.markers import LocalMarkers
from fencepost.coordinator.transaction.markers import Marker
from fencepost.log.partition import Appended
from fencepost.protocol.batch import read_header
from fencepost.protocol.control import ControlRecord, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition

NOW = 1_700_000_000_000


class _Log:
    """Storage, its one partition and its clock: keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[bytes, int, ControlRecord]] = []

    def partition(self, *_: object) -> _Log:
        return self

    def now(self) -> int:
        return NOW

    def append(
        self, batch: bytes, _origin: object, *, marker_transaction_version: int, control: ControlRecord
    ) -> Appended:
        self.given.append((batch, marker_transaction_version, control))
        return Appended(0, 0, -1, 0, 1)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("coordinator_epoch", [0, 1, 7, 2**31 - 1])
def test_what_a_partition_is_told_of_a_marker_is_what_the_marker_says(commit: bool, coordinator_epoch: int) -> None:
    log = _Log()
    markers = LocalMarkers(cast(Any, log), cast(Any, None), cast(Any, log))
    marker = Marker(ProducerId(5), Epoch(3), coordinator_epoch, commit, 2)
    at = TopicPartition("t", 0)
    assert markers.write(marker, [at]) == {at: ErrorCode.NONE}
    ((batch, version, control),) = log.given
    assert control == read_control_record(batch)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp, version) == (5, 3, NOW, 2)
