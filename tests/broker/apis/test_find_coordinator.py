"""FindCoordinator: the first question makes the coordinator's journal, once, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker import asking
from tests.broker.wire import Client, serving

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnRequest, ApiVersionsRequest, FindCoordinatorRequest
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import World

GROUP, TRANSACTION = 0, 1
JOURNALS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
FEW = {"transaction.state.log.num.partitions": 12, "offsets.topic.num.partitions": 12}


def finding(key_type: int, *keys: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))


@pytest.mark.parametrize("key_type", JOURNALS)
def test_many_who_ask_at_once_are_all_answered_and_it_is_made_once(key_type: int) -> None:
    async def scene(loop: VirtualLoop) -> None:
        world = World(loop, 1, FEW)
        await world.start()
        assert world.broker is not None
        broker, node = world.broker, world.broker.node
        node.slices._steps, node.slices._left = 1, 0
        others: list[int] = []

        async def others_ask() -> None:
            while JOURNALS[key_type] not in node.topics.by_name:
                await asking.ask(broker, ApiVersionsRequest(), 3)
                others.append(len(node.topics.by_name))
                await asyncio.sleep(0)

        asked = [asking.ask(broker, finding(key_type, f"k{n}"), 4) for n in range(20)]
        *answers, _ = await asyncio.gather(*asked, others_ask())
        assert {answer.coordinators[0].error_code for answer in answers} == {ErrorCode.NONE}
        assert len(node.topics.by_name[JOURNALS[key_type]].partitions) == 12
        assert len(others) > 12, "somebody else is answered between any two partitions"
        await world.stop()

    run(scene)


@pytest.mark.parametrize("turns", range(0, 40, 3))
def test_who_goes_away_leaves_no_journal_half_made(turns: int) -> None:
    """The same after the connection ended in the middle: the next one finds it."""

    async def scene(loop: VirtualLoop) -> None:
        world = World(loop, turns, FEW)
        await world.start()
        assert world.broker is not None
        world.broker.node.slices._steps, world.broker.node.slices._left = 1, 0
        transport, _ = await world.network.connect(asyncio.Protocol, "127.0.0.1", 9092)
        transport.write(asking.frame(finding(GROUP, "g"), 4))
        await asyncio.sleep(0.0002)
        for _ in range(turns):
            await asyncio.sleep(0)
        transport.abort()
        await asyncio.sleep(0.01)
        answer = await asking.ask(world.broker, finding(GROUP, "g"), 4)
        assert answer.coordinators[0].error_code == ErrorCode.NONE
        await world.stop()

    run(scene)


def test_offsets_of_a_transaction_make_the_groups_journal_too() -> None:
    with serving() as broker:
        client = Client(broker)
        assert client.ask(finding(TRANSACTION, "t"), 4).coordinators[0].error_code == ErrorCode.NONE
        request = AddOffsetsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, group_id="g")
        answer: Any = client.ask(request, 3)
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert "__consumer_offsets" in broker.node.topics.by_name


def test_a_type_that_there_is_not_makes_nothing() -> None:
    with serving() as broker:
        client = Client(broker)
        assert client.ask(finding(2, "s"), 4).coordinators[0].error_code == ErrorCode.INVALID_REQUEST
        assert not broker.node.topics.by_name


@pytest.mark.parametrize("counts", [(1, 3), (3, 1)])
def test_each_kind_of_id_lives_in_a_journal_of_its_own_number_of_partitions(counts: tuple[int, int]) -> None:
    of_groups, of_transactions = counts
    with serving(
        offsets_topic_num_partitions=of_groups, transaction_state_log_num_partitions=of_transactions
    ) as broker:
        client = Client(broker)
        for key_type in JOURNALS:
            found = client.ask(finding(key_type, *"abcdefghij"), 4).coordinators
            assert [(each.key, each.error_code) for each in found] == [(key, ErrorCode.NONE) for key in "abcdefghij"]
        client.close()
