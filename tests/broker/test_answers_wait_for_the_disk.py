"""The answer to whatever writes depends on what it wrote: none leaves before that is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.group_talk import Who, commit, find_group, txn_commit
from tests.broker.wire import add, batch, clients, end, init, init_answer, new_topic, on_the_loop, produce

from fencepost.broker.network.outgoing import Outgoing
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    OffsetDeleteRequest,
    OffsetForLeaderEpochRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import Lsn, ProducerIdAndEpoch

client = clients()


def of_a_broker(*added: tuple[str, ProducerIdAndEpoch, str]) -> AddPartitionsToTxnRequest:
    """Partition 0 of a topic to each of several transactions."""
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=pair.producer_id,
            producer_epoch=pair.producer_epoch,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        for name, pair, topic in added
    ]
    return AddPartitionsToTxnRequest(transactions=transactions)


def noted_lsns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each answer from now on depends on."""
    lsns: list[int] = []
    put = Outgoing.put

    def noted(outgoing: Outgoing, data: bytes, slot: Any, lsn: Lsn, durable: Lsn) -> bool:
        lsns.append(lsn)
        return put(outgoing, data, slot, lsn, durable)

    monkeypatch.setattr(Outgoing, "put", noted)
    return lsns


def test_every_answer_depends_on_what_its_request_wrote(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find_group(client)
    topic, storage = new_topic(client), client.broker.node.storage
    pair, other, hanging = init(client, "t"), init(client, "other"), init(client, "hanging")
    stranger, adding, second = (init(client, name) for name in ("stranger", "adding", "second"))
    offsets = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=pair[0], producer_epoch=pair[1], group_id="pending"
    )
    gone = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    position = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    marker = WritableTxnMarker(
        producer_id=hanging[0],
        producer_epoch=hanging[1],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    open_ = batch("x", pair=hanging, sequence=0, transactional=True)
    writes: dict[str, Callable[[], object]] = {
        "InitProducerId": lambda: init_answer(client, "new"),
        "Produce": lambda: produce(client, topic, batch("x")),
        "Produce in a transaction": lambda: produce(client, topic, open_, "hanging"),
        "WriteTxnMarkers": lambda: client.ask(WriteTxnMarkersRequest(markers=[marker]), 1),
        "AddPartitionsToTxn": lambda: add(client, "t", pair, topic),
        "AddPartitionsToTxn of a broker": lambda: client.ask(
            of_a_broker(("adding", adding, topic), ("t", pair, "unknown")), 5
        ),
        "AddPartitionsToTxn of a broker, behind what was added before": lambda: client.ask(
            of_a_broker(("adding", adding, topic), ("second", second, topic)), 5
        ),
        "AddOffsetsToTxn": lambda: client.ask(offsets, 4),
        "TxnOffsetCommit": lambda: txn_commit(client, "other", other, topic, 1),
        "TxnOffsetCommit of no member": lambda: txn_commit(  # its transaction has begun nevertheless
            client, "stranger", stranger, topic, 1, who=Who("nobody", 1)
        ),
        "EndTxn": lambda: end(client, "t", pair),
        "OffsetCommit": lambda: commit(client, topic, 1, group="h"),
        "OffsetDelete": lambda: client.ask(OffsetDeleteRequest(group_id="h", topics=[position])),
        "OffsetCommit again": lambda: commit(client, topic, 1, group="h"),
        "DeleteGroups": lambda: client.ask(DeleteGroupsRequest(groups_names=["h"])),
        "DeleteRecords": lambda: client.ask(DeleteRecordsRequest(topics=[gone], timeout_ms=1000)),
    }
    lsns = noted_lsns(monkeypatch)
    for name, write in writes.items():
        written = on_the_loop(client.broker, lambda: storage.lsn)
        lsns.clear()
        write()
        (lsn,) = lsns
        assert lsn > written, name


def test_the_end_of_an_epoch_is_told_when_it_is_durable(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the newest epoch is that of the log, which may be ahead of the disk."""
    topic = new_topic(client)
    lsns = noted_lsns(monkeypatch)
    produce(client, topic, batch("x"))
    epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    client.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[epoch])]))
    written, told = lsns
    assert told >= written > 0
