"""Markers that this node writes into its own partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, cast

import pytest
from tests.broker.wire import Client, ended, init, new_topic, serving, wait_until

from fencepost.broker.leader.markers import AT_ONCE, LocalMarkers, PacedMarkers
from fencepost.coordinator.transaction.markers import Marker, Results
from fencepost.log.partition import Appended
from fencepost.protocol.batch import read_header
from fencepost.protocol.control import ControlRecord, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddPartitionsToTxnRequest, DescribeTransactionsRequest
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.types import Epoch, LeaderEpoch, Lsn, Offset, ProducerId, TopicPartition
from fencepost.runtime import Slices

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
        self, batch: bytes, _origin: object, now: int, *, marker_transaction_version: int, control: ControlRecord
    ) -> Appended:
        assert now == NOW
        self.given.append((batch, marker_transaction_version, control))
        return Appended(Offset(0), Offset(0), -1, Offset(0), Lsn(1))


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("coordinator_epoch", [0, 1, 7, 2**31 - 1])
def test_what_a_partition_is_told_of_a_marker_is_what_the_marker_says(
    commit: bool, coordinator_epoch: LeaderEpoch
) -> None:
    log = _Log()
    markers = LocalMarkers(cast(Any, log), cast(Any, None), cast(Any, log))
    marker = Marker(ProducerId(5), Epoch(3), coordinator_epoch, commit, 2)
    at = TopicPartition("t", 0)
    assert markers.write(marker, [at]) == {at: ErrorCode.NONE}
    ((batch, version, control),) = log.given
    assert control == read_control_record(batch)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp, version) == (5, 3, NOW, 2)


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE])
@pytest.mark.parametrize("far", [False, True])
def test_others_are_served_while_a_transaction_of_very_many_partitions_ends(count: int, far: bool) -> None:
    turns, written_in = 0, []

    class Leaders:
        def write(self, _: Marker, partitions: Sequence[TopicPartition]) -> Results | Awaitable[Results]:
            written_in.append((turns, len(partitions)))
            results = dict.fromkeys(partitions, ErrorCode.NONE)
            return asyncio.sleep(0, results) if far else results

    def tick() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(tick)

    async def main() -> None:
        tick()
        places = [TopicPartition("t", number) for number in range(count)]
        told = PacedMarkers(Leaders(), Slices(steps=1)).write(
            Marker(ProducerId(5), Epoch(3), LeaderEpoch(0), True, 2), places
        )
        if count <= AT_ONCE and not far:
            assert isinstance(told, dict), "at once, with what it ends"
        results = await told if not isinstance(told, dict) else told
        assert list(results) == places and set(results.values()) == {ErrorCode.NONE}

    asyncio.run(main())
    assert max(number for _, number in written_in) <= AT_ONCE
    assert len({turn for turn, _ in written_in}) == len(written_in), "one part in each turn of the loop"


def test_a_transaction_of_very_many_partitions_is_complete_when_all_have_their_markers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, together = LocalMarkers.write, []

    def noted(local: LocalMarkers, marker: Marker, partitions: Sequence[TopicPartition]) -> Results:
        together.append(len(partitions))
        return write(local, marker, partitions)

    monkeypatch.setattr(LocalMarkers, "write", noted)
    with serving() as broker:
        client = Client(broker)
        topic, count = new_topic(client, 3 * AT_ONCE), 3 * AT_ONCE
        pair = init(client, "wide")
        places = [AddPartitionsToTxnTopic(name=topic, partitions=list(range(count)))]
        request = AddPartitionsToTxnRequest(
            transactional_id="wide", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, topics=places
        )
        told = client.ask(request, 3).results_by_topic[0].results_by_partition
        assert {each.partition_error_code for each in told} == {ErrorCode.NONE}
        ended(client, "wide", pair, commit=True)

        def state() -> str:
            described = client.ask(DescribeTransactionsRequest(transactional_ids=["wide"])).transaction_states
            return str(described[0].transaction_state)

        wait_until("it is complete", lambda: state() == "CompleteCommit")
        for index in range(count):
            partition = broker.node.storage.partition(topic, index)
            assert partition is not None and partition.log_end_offset == 1
    assert together == [AT_ONCE] * 3
