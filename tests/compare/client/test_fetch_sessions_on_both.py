"""Many readers share few fetch sessions (KIP-227), which others close and use meanwhile: each reads everything once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.compare.client.playing import Node, play
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes

from fencepost.client import Consumer, fetcher
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError
from fencepost.client.fetch_session import FetchSession
from fencepost.protocol.fetch_sessions import CLOSE
from fencepost.protocol.messages import FetchRequest

pytestmark = pytest.mark.compare

SLOTS = 8
"""Apache Kafka spreads them over eight caches: fewer are none."""
READERS = 12
PARTITIONS = 3
RECORDS = 600


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    with two_nodes({"max.incremental.fetch.session.cache.slots": str(SLOTS)}) as nodes:
        yield nodes


def sessions_of(reader: Consumer) -> list[FetchSession]:
    return [session for session in reader._fetcher._sessions._sessions.values() if session.session_id]


async def disturb(readers: Sequence[Consumer], cluster: Cluster, chance: random.Random) -> None:
    """Close a session of somebody, or use its next epoch, every now and then."""
    await cluster.refresh([])
    while True:
        await asyncio.sleep(0.02)
        known = sessions_of(chance.choice(readers))
        if known:
            epoch = chance.choice((CLOSE, known[0]._epoch + 1))
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, session_id=known[0].session_id, session_epoch=epoch, topics=[]
            )
            await cluster.call(next(iter(cluster.nodes)), request, most=13 if known[0]._by_id else 12)


async def read_all(reader: Consumer, answered: list[Any]) -> None:
    """Every record, of each partition in its order; `answered` gets what nodes said to requests."""
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    while sum(map(len, found.values())) < RECORDS:
        for record in await reader.poll(1000, max_records=7):
            found[record.partition].append(int(record.value or b"-1"))
    assert found == {number: list(range(number, RECORDS, PARTITIONS)) for number in range(PARTITIONS)}
    assert await reader.poll(300) == []
    answered.append([session.session_id for session in sessions_of(reader)])


@pytest.mark.parametrize("by_id", [True, False])
def test_each_reads_everything_once_while_sessions_are_closed_and_used_by_others(
    node: Node, by_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []
    answered = FetchSession.answered

    def counted(self: FetchSession, response: Any) -> Any:
        try:
            answer = answered(self, response)
        except BrokerError as error:
            raise AssertionError(f"a node refused a fetch: {error}") from error
        if answer is None:
            lost.append(response.error_code)
        return answer

    monkeypatch.setattr(FetchSession, "answered", counted)
    if not by_id:
        monkeypatch.setattr(fetcher, "_have_ids", lambda _: False)

    async def scenario(node: Node) -> None:
        readers = [Consumer(bootstrap_servers=node.address, fetch_max_wait_ms=30) for _ in range(READERS)]
        for reader in readers:
            reader.assign([node.at(number) for number in range(PARTITIONS)])
        ended: list[list[int]] = []
        cluster = Cluster(node.address)
        trouble = asyncio.ensure_future(disturb(readers, cluster, random.Random(1)))
        reads = asyncio.gather(*(read_all(reader, ended) for reader in readers))
        async with node.writer() as writer:
            for number in range(RECORDS):
                await writer.send(node.topic, b"%d" % number, partition=number % PARTITIONS)
                await asyncio.sleep(0.005)
            await writer.flush()
        await reads
        assert not trouble.done(), trouble
        trouble.cancel()
        # What is being begun anew is answered: of a session that nobody was told of nobody can say that it is over.
        await asyncio.gather(*(reader.poll(300) for reader in readers))
        assert {bool(ids) for ids in ended} == {True, False}, "some have a session, others found no room"
        # Who has none goes first: his last fetch, which he does not wait for, would be given the place of another, as
        # Apache Kafka looks for one when it answers.
        with_place = [reader for reader in readers if sessions_of(reader)]
        for reader in readers:
            if reader not in with_place:
                await reader.close()
        await asyncio.sleep(1)
        for reader in with_place:
            await reader.close()
        await cluster.close()
        # Their places are free: a reader that comes now gets one.
        async with Consumer(bootstrap_servers=node.address, fetch_max_wait_ms=30) as late:
            late.assign([node.at(0)])
            while not sessions_of(late):
                await late.poll(100)

    play(scenario, node, PARTITIONS)
    assert {*lost} == {70, 71}, "FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH"
