"""Everything that an admin asks is answered alike by an Apache Kafka and by Fencepost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.admin.script import ANSWERS, Script
from tests.compare.client.playing import PATIENCE, Node, play, take
from tests.compare.nodes.connection import Connection, wait_until
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes

from fencepost.client import Consumer, MisuseError, Producer
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId

pytestmark = pytest.mark.compare

#: Newest version of Produce that does not add the partition to the transaction by itself.
_ADDS_NOTHING = 11


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    """Their leaders take a transaction's records without asking its coordinator, as those before KIP-890 did."""
    settings = {"group.initial.rebalance.delay.ms": "0", "transaction.partition.verification.enable": "false"}
    with two_nodes(settings) as nodes:
        yield nodes


def test_every_answer_to_an_admin_is_the_same(node: Node) -> None:
    async def scenario() -> list[tuple[str, Any]]:
        def producer(**options: Any) -> Producer:
            return Producer(node.address, **options)

        def consumer(*topics: str, **options: Any) -> Consumer:
            return Consumer(*topics, bootstrap_servers=node.address, **options)

        async with asyncio.timeout(PATIENCE), node.admin() as admin:
            return await Script(node.topic, admin, producer, consumer).all()

    told = asyncio.run(scenario())
    different = [(one, other) for one, other in zip(told, ANSWERS, strict=True) if one != other]
    assert different == []


def write_without_a_coordinator(node: Node, producer_id: int, epoch: int) -> None:
    """A record of a transaction that no coordinator knows to be in this partition."""
    records = encode_batch(
        [(0, None, b"hangs", ())],
        producer_id=ProducerId(producer_id),
        producer_epoch=Epoch(epoch),
        base_sequence=0,
        transactional=True,
    )
    part = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=node.topic, partition_data=[part])
    request = ProduceRequest(transactional_id=f"{node.topic}-id", acks=-1, timeout_ms=30_000, topic_data=[topic])
    connection = Connection(node.address)

    def is_written() -> bool:
        answer = connection.ask(request, _ADDS_NOTHING)
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        assert error in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # whoever leads it may not know yet
        return error is ErrorCode.NONE

    wait_until(is_written, PATIENCE, "a leader that knows it")
    connection.hang_up()


def test_a_hanging_transaction_is_found_and_aborted(node: Node) -> None:
    async def scenario(node: Node) -> None:
        name = f"{node.topic}-id"
        async with node.admin() as admin:
            async with node.writer(transactional_id=name) as writer:
                await writer.init_transactions()
            known = await admin.describe_transaction(name)
            assert known is not None
            write_without_a_coordinator(node, known.producer_id, known.producer_epoch)
            await node.write(b"after")
            for_ever = 2**60
            assert await admin.find_hanging_transactions([node.topic], max_transaction_timeout_ms=for_ever) == []
            (found,) = await admin.find_hanging_transactions([node.topic])  # what it wrote is from 1970
            assert (found.partition, found.start_offset) == (node.at(0), 0)
            assert (found.producer_id, found.transactional_id) == (known.producer_id, name)
            with pytest.raises(MisuseError, match="begins at offset 1"):
                await admin.abort_transaction(node.at(0), 1)
            async with node.reader() as reader:
                assert await reader.poll(500) == []
                await admin.abort_transaction(found.partition, found.start_offset)
                assert await take(reader, 1) == [b"after"]
            assert await admin.find_hanging_transactions([node.topic]) == []

    play(scenario, node)
