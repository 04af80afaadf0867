"""What a turn of the loop hands out: what comes in time, and nothing of before a rebalance; one asks at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.client.test_transaction_loop import AT, COUNT, Cluster, Reader, loop_of, process, virtually

from fencepost.client.errors import (
    CommitFailedError,
    MisuseError,
    TimedOutError,
    TransactionAbortableError,
)
from fencepost.client.transaction_loop import State
from fencepost.protocol.types import TopicPartition


def test_without_records_there_is_no_transaction() -> None:
    async def scenario() -> None:
        cluster = Cluster(0)
        loop, _ = loop_of(cluster)
        asyncio.get_running_loop().call_later(5, loop.stop)
        assert await loop.next() is None
        assert set(cluster.calls) == {"init_transactions", "poll"}
        assert await loop.next() is None

    virtually(scenario)


@pytest.mark.parametrize("linger_ms", [0, 1000])
def test_a_transaction_has_what_comes_in_time_and_no_more_than_it_may(linger_ms: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(1)
        loop, writer = loop_of(cluster, max_records=5, linger_ms=linger_ms)
        found: list[int] = []

        async def grow() -> None:
            for _ in range(20):
                await asyncio.sleep(0.3)
                cluster.count += 1

        growing = asyncio.ensure_future(grow())
        while sum(found) < 21:
            handed = await loop.next()
            assert handed is not None
            found.append(len(handed.records))
            await loop.begin(handed)
            for record in handed.records:
                writer.send(record.offset)
            await loop.end(handed, None)
        await growing
        assert cluster.output == list(range(21))
        assert max(found) <= 5
        assert (max(found) > 1) == (linger_ms > 0)

    virtually(scenario)


def test_what_comes_while_more_is_waited_for_is_taken_up_to_what_it_may_have() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        loop, _ = loop_of(cluster, max_records=5, linger_ms=2000)
        asking = asyncio.ensure_future(loop.next())
        await asyncio.sleep(0.5)
        cluster.count = 20
        handed = await asking
        assert handed is not None and [record.offset for record in handed.records] == [0, 1, 2, 3, 4]

    virtually(scenario)


def test_who_is_told_to_stop_waits_for_no_more_and_hands_out_what_there_is() -> None:
    async def scenario() -> None:
        cluster, now = Cluster(1), asyncio.get_running_loop().time
        loop, _ = loop_of(cluster, max_records=5, linger_ms=600_000)
        begun = now()
        asyncio.get_running_loop().call_later(5, loop.stop)
        handed = await loop.next()
        assert handed is not None and len(handed.records) == 1
        assert now() - begun < 6

    virtually(scenario)


class BeginsAtTheEnd(Reader):
    """A consumer whose group has no position, and keeps what is committed if it is not to refuse it."""

    begins_at_beginning = False

    def __init__(self, cluster: Cluster, refusals: list[Exception]) -> None:
        super().__init__(cluster)
        self.refusals = refusals
        self.stored: list[Mapping[TopicPartition, int]] = []

    async def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, object]:
        return {at: next((each[at] for each in self.stored if at in each), None) for at in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.stored.append(offsets)


@pytest.mark.parametrize("refusals", [0, 1, 3])
@pytest.mark.parametrize("kind", [CommitFailedError, TimedOutError])
def test_where_a_partition_was_begun_is_stored_before_anything_of_it_is_handed_out(
    refusals: int, kind: type[Exception]
) -> None:
    """However often that is refused: whoever has it next would begin at its end else, and what came would be lost."""

    async def scenario() -> None:
        cluster = Cluster(3)
        reader = BeginsAtTheEnd(cluster, [kind("not now") for _ in range(refusals)])
        loop, _ = loop_of(cluster, reader=reader)
        assert await loop.next() is not None
        assert [dict(each) for each in reader.stored] == [{AT: 0}]

    virtually(scenario)


def test_what_was_collected_before_a_rebalance_is_not_handed_out_with_what_comes_after_it() -> None:
    async def scenario() -> None:
        cluster = Cluster(1)
        loop, writer = loop_of(cluster, max_records=5, linger_ms=2000)

        async def rebalance() -> None:
            await asyncio.sleep(0.5)
            cluster.generation, cluster.count = 2, 3

        rebalancing = asyncio.ensure_future(rebalance())
        await process(cluster, loop, writer)
        await rebalancing
        assert cluster.output == [0, 1, 2]
        assert cluster.calls.count("commit_transaction") == 1

    virtually(scenario)


def test_an_outdated_generation_is_refused_and_read_again_in_the_next_one() -> None:
    """Between hand-out and commit the group went on without this member."""

    async def scenario() -> None:
        cluster = Cluster(3)
        loop, writer = loop_of(cluster, max_records=5)
        handed = await loop.next()
        assert handed is not None
        await loop.begin(handed)
        for record in handed.records:
            writer.send(record.offset)
        cluster.generation = 2
        assert await loop.end(handed, None)
        assert handed.state is State.ENDED
        await process(cluster, loop, writer)
        assert cluster.output == [0, 1, 2]

    virtually(scenario)


def test_an_epoch_that_has_passed_while_nothing_was_given_up_costs_no_transaction() -> None:
    """A member of a group with epochs gets new ones while its block works (KIP-848)."""

    async def scenario() -> None:
        cluster = Cluster(3)
        loop, writer = loop_of(cluster, max_records=5)
        reader: Any = loop._consumer
        reader.as_of_now = lambda member: member._replace(generation_id=cluster.generation)
        handed = await loop.next()
        assert handed is not None
        await loop.begin(handed)
        for record in handed.records:
            writer.send(record.offset)
        cluster.generation = 2
        assert await loop.end(handed, None)
        assert handed.state is State.COMMITTED
        assert cluster.output == [0, 1, 2]

    virtually(scenario)


@pytest.mark.parametrize("entered", [False, True])
def test_what_is_not_entered_or_not_left_is_put_back_and_refused(entered: bool) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        loop, writer = loop_of(cluster)
        handed = await loop.next()
        assert handed is not None
        if entered:
            await loop.begin(handed)
            writer.send(99)
        with pytest.raises(MisuseError, match="not left" if entered else "not entered"):
            await loop.next()
        for call in (loop.begin(handed), loop.end(handed, None)):
            with pytest.raises(MisuseError):
                await call
        await process(cluster, loop, writer)
        assert cluster.output == list(range(COUNT))

    virtually(scenario)


@pytest.mark.parametrize("call", ["begin_transaction", "commit_transaction", "abort_transaction"])
def test_nobody_asks_while_a_transaction_begins_or_ends(call: str) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        loop, writer = loop_of(cluster)
        cluster.faults[call] = [(TimedOutError("nobody answered"), False)]
        if call == "abort_transaction":
            cluster.faults["block"] = [(TransactionAbortableError("abort it"), False)]
        working = asyncio.ensure_future(process(cluster, loop, writer))
        await asyncio.sleep(0.01)  # it waits to try again
        assert call in cluster.calls
        with pytest.raises(MisuseError, match="one task"):
            await loop.next()
        await working
        assert cluster.output == list(range(COUNT))

    virtually(scenario)


def test_nobody_asks_twice_at_once_and_nothing_is_lost_to_a_cancelled_wait() -> None:
    async def scenario() -> None:
        cluster = Cluster(0)
        loop, writer = loop_of(cluster, linger_ms=1000)
        asking = asyncio.ensure_future(loop.next())
        await asyncio.sleep(0.1)
        with pytest.raises(MisuseError, match="one task"):
            await loop.next()
        cluster.count = 1
        await asyncio.sleep(0.5)  # it has one, and waits for more
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        cluster.count = COUNT
        await process(cluster, loop, writer)
        assert cluster.output == list(range(COUNT))

    virtually(scenario)


def test_who_is_cancelled_after_a_rebalance_does_not_go_back_to_where_it_was_before() -> None:
    """Others have had the partition in between, and have committed more."""

    async def scenario() -> None:
        cluster = Cluster(1)
        loop, writer = loop_of(cluster, linger_ms=5000)
        asking = asyncio.ensure_future(loop.next())
        await asyncio.sleep(1)
        cluster.generation, cluster.position, cluster.output, cluster.count = 2, 3, [0, 1, 2], 3
        cluster.faults["poll"] = [(asyncio.CancelledError(), False)]
        with pytest.raises(asyncio.CancelledError):
            await asking
        cluster.count = COUNT
        await process(cluster, loop, writer)
        assert cluster.output == list(range(COUNT))

    virtually(scenario)
