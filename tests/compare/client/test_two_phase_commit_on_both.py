"""Transactions that one process prepares and another one completes, on an Apache Kafka as on Fencepost (KIP-939)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.compare.client.playing import Node, play, take
from tests.compare.client.versions import noted_versions
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes

from fencepost.client import Producer, UnsupportedByBrokerError

pytestmark = pytest.mark.compare


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with two_nodes(settings, only_kafka={"unstable.api.versions.enable": "true"}) as nodes:
        yield nodes


def taking_part(node: Node, two_phase: bool) -> Producer:
    return node.writer(transactional_id=f"{node.topic}-id", transaction_two_phase_commit_enable=two_phase)


@pytest.mark.parametrize("two_phase", [False, True])
def test_another_process_completes_what_was_prepared(node: Node, two_phase: bool) -> None:
    async def scenario(node: Node) -> None:
        async with taking_part(node, two_phase) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send(node.topic, b"first", partition=0)
            kept = str(await writer.prepare_transaction())
        async with taking_part(node, two_phase) as other:
            for _ in range(2):
                assert await other.complete_transaction(kept)
            await other.init_transactions()
            async with other.transaction():
                await other.send(node.topic, b"next", partition=0)
        async with taking_part(node, two_phase) as later:
            assert not await later.complete_transaction(kept)
        async with node.reader() as reader:
            assert await take(reader, 2) == [b"first", b"next"]

    with noted_versions() as noted:
        play(scenario, node)
    assert noted["InitProducerId"] == {6 if two_phase else 5}


def test_apache_kafka_keeps_none_for_who_takes_the_id_over(node: Node, both: TwoNodes) -> None:
    async def scenario(node: Node) -> None:
        async with taking_part(node, True) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send(node.topic, b"first", partition=0)
            kept = str(await writer.prepare_transaction())
        async with taking_part(node, True) as other:
            if node.address == both.kafka.bootstrap:
                with pytest.raises(UnsupportedByBrokerError, match=r"call complete_transaction\(\) first"):
                    await other.init_transactions(keep_prepared=True)
            else:
                await other.init_transactions(keep_prepared=True)
            assert await other.complete_transaction(kept)
        async with node.reader() as reader:
            assert await take(reader, 1) == [b"first"]

    play(scenario, node)
