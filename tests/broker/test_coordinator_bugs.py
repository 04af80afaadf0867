"""Bugs of coordinators that show only with a whole broker around them (facts §13.2, §13.5), each under its number."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.broker.group_talk import committed_offset, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    clients,
    end,
    fetch,
    init,
    init_answer,
    killed_copy,
    new_topic,
    produce,
)

from fencepost.broker import running_broker
from fencepost.log.disk import File, LocalDisk, SyncDone
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnRequest, InitProducerIdRequest, WriteTxnMarkersRequest
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import ProducerIdAndEpoch

client = clients()


def part_of(pair: ProducerIdAndEpoch) -> bytes:
    return batch("v", pair=pair, sequence=0, transactional=True)


@pytest.mark.parametrize("kill", [False, True])
def test_kafka_15552_no_producer_id_is_given_again_after_a_restart(tmp_path: Path, kill: bool) -> None:
    """The rest of a block is lost rather than given twice."""
    given: list[int] = []
    asked = InitProducerIdRequest(transaction_timeout_ms=1)
    for life, count in enumerate((1001, 1, 1001)):
        data = tmp_path / f"{life if kill else 0}"
        with running_broker(data=data, settings=SETTINGS) as broker:
            client = Client(broker)
            client.send(*[asked] * count)
            given += [client.receive().producer_id for _ in range(count)]
            client.close()
            if kill:
                killed_copy(broker, tmp_path / f"{life + 1}")
    assert len(dict.fromkeys(given)) == len(given) == 2003


def slow_down(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every sync takes so long."""
    sync = LocalDisk.sync

    def later(disk: LocalDisk, files: Sequence[File], done: SyncDone) -> None:
        asyncio.get_running_loop().call_later(seconds, sync, disk, files, done)

    patch.setattr(LocalDisk, "sync", later)


@pytest.mark.parametrize("version", range(6))
def test_kafka_16047_a_fence_waits_for_the_disk_however_short_its_time_out_is(
    client: Client, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin's fence comes with a time-out of 1 ms, which is that of transactions and not of what is written."""
    topic, pair = new_topic(client), init(client, "t")
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    slow_down(monkeypatch, 0.03)
    told = [init_answer(client, "t", timeout_ms=1, version=version) for _ in range(2)]
    assert [each.error_code for each in told] == [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    assert told[1].producer_epoch > pair.producer_epoch
    assert end(client, "t", pair).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(("version", "told"), [(0, 0), (1, 0), (2, ErrorCode.INVALID_PRODUCER_EPOCH)])
@pytest.mark.parametrize("what", ["records", "offsets"])
def test_kafka_19446_a_leader_is_told_the_version_of_the_marker(
    client: Client, what: str, version: int, told: int
) -> None:
    """A marker of transaction.version 2 has a larger epoch than what it ends, or it is late and ends the wrong one."""
    find_group(client)
    topic, pair = new_topic(client), init(client, "t")
    if what == "records":
        assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
        place = WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    else:
        assert txn_commit(client, "t", pair, topic, 5) == [ErrorCode.NONE]
        index = client.broker.node.groups.partition_for("g")
        place = WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[index])
    marker = WritableTxnMarker(
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        transaction_result=True,
        topics=[place],
        coordinator_epoch=0,
        transaction_version=version,
    )
    answer = client.ask(WriteTxnMarkersRequest(markers=[marker]))
    assert answer.markers[0].topics[0].partitions[0].error_code == told
    if what == "records":
        assert fetch(client, topic).last_stable_offset == (0 if told else 2)
    else:
        assert (committed_offset(client, topic, stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT) == bool(told)


# What the one is told whom another has replaced: PRODUCER_FENCED is final, and only coordinators know of it (KIP-588)


@pytest.mark.parametrize("version", range(3, 14))
def test_kafka_10687_a_leader_never_tells_a_producer_that_it_is_fenced(client: Client, version: int) -> None:
    topic, zombie = new_topic(client), init(client, "t")
    pair = init(client, "t")
    assert produce(client, topic, part_of(zombie), "t", version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    assert produce(client, topic, part_of(zombie), "t", version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


FENCED, OLD = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


def test_kafka_9911_a_coordinator_says_so_in_versions_that_know_of_it(client: Client) -> None:
    find_group(client)
    topic, zombie = new_topic(client), init(client, "t")
    init(client, "t")
    offsets = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=zombie.producer_id, producer_epoch=zombie.producer_epoch, group_id="g"
    )
    told = {
        "InitProducerId": [init_answer(client, "t", zombie, version=version).error_code for version in (3, 4, 5)],
        "AddPartitionsToTxn": [add(client, "t", zombie, topic, version=version) for version in range(6)],
        "AddOffsetsToTxn": [client.ask(offsets, version).error_code for version in range(5)],
        "EndTxn": [end(client, "t", zombie, version=version).error_code for version in range(6)],
        "TxnOffsetCommit": [txn_commit(client, "t", zombie, topic, 1, version=version)[0] for version in range(7)],
    }
    assert told == {
        "InitProducerId": [OLD, FENCED, FENCED],
        "AddPartitionsToTxn": [OLD, OLD, FENCED, FENCED, FENCED, FENCED],
        "AddOffsetsToTxn": [OLD, OLD, FENCED, FENCED, FENCED],
        "EndTxn": [OLD, OLD, FENCED, FENCED, FENCED, FENCED],
        "TxnOffsetCommit": [OLD] * 7,
    }
