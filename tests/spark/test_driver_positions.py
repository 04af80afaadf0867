"""The positions of a batch in topics of its cluster are committed with it, or after it, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.spark.test_driver import Bench, Tasks, in_world

from fencepost.client import Admin
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, TimedOutError, UnsupportedByBrokerError
from fencepost.client.outcomes import OUTCOMES
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnResponse, TxnOffsetCommitResponse
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.world import ADDRESS
from fencepost.spark.driver import Step, WriteFailed
from fencepost.spark.group_positions import beyond, group_offsets
from fencepost.spark.progress import TOPIC, Progress


def test_the_positions_in_topics_of_this_cluster_are_committed() -> None:
    """Not those in topics of another one, or of nobody knows which, or in a topic that was made anew."""
    here = {"@cluster": "ours", "@topics": {"in": "one", "more": "two"}}
    read = {"in": {"0": 5, "1": -1}, "more": {"0": 7}, "old": {"0": 3}}
    others = [None, 7, {"logOffset": 3, "@cluster": "ours"}, {"more": {"x": 1}, **here}, {"in": {"0": 9}}]
    found = group_offsets([*others, {**read, **here}, {**read, **here, "@cluster": "theirs"}], "ours", {"in": "one"})
    assert {at: position.offset for at, position in found.items()} == {TopicPartition("in", 0): 5}
    assert group_offsets([read], "", {}) == {}


@pytest.mark.parametrize("level", [2, 1])
def test_positions_are_committed_where_the_source_is_or_nowhere(level: int) -> None:
    async def test(bench: Bench) -> None:
        cluster = bench.cluster("source")
        deadline = cluster.deadline("looking up a topic")
        view = await cluster.topic("in", deadline)
        ours = {"@cluster": cluster.cluster_id, "@topics": {"in": str(view.topic_id)}}
        another = {"@topics": {"in": "7b0f2c10-0000-4000-8000-000000000000"}}
        driver = bench.driver()
        for number, (marks, position) in enumerate(
            [(ours, 5), (ours | {"@cluster": "theirs"}, 5), (ours | another, 5), ({}, 5), (ours, 9)]
        ):
            record = Progress.of("query", number, [{"in": {"0": position + number}, **marks}])
            assert await driver.write(record, 2, False, Tasks(bench, b"%d" % number))
            expected = position + number if marks == ours else 5
            assert await bench.position() == expected
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.delete_topic("in")
        began = asyncio.get_running_loop().time()
        record = Progress.of("query", 5, [{"in": {"0": 20}, **ours}])
        assert await driver.write(record, 2, False, Tasks(bench, b"5"))
        assert asyncio.get_running_loop().time() - began < 2
        await cluster.close()

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize(
    "trouble",
    [
        BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "no"),
        TimedOutError("late"),
        UnsupportedByBrokerError("the group's coordinator is of an older version"),
    ],
)
def test_positions_that_are_not_taken_fail_no_batch(trouble: Exception, level: int) -> None:
    async def test(bench: Bench) -> None:
        async def refused(self: TransactionalId, *how: Any) -> None:  # noqa: ARG001
            raise trouble

        cluster = bench.cluster("source")
        view = await cluster.topic("in", cluster.deadline("looking up a topic"))
        marks = {"@cluster": cluster.cluster_id, "@topics": {"in": str(view.topic_id)}}
        await cluster.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionalId, "commit_offsets", refused)
            tasks = Tasks(bench, b"row")
            assert await bench.driver().write(Progress.of("query", 0, [{"in": {"0": 4}, **marks}]), 2, False, tasks)
        assert tasks.steps == [Step.WRITTEN, Step.COMMITTED]
        assert await bench.values() == [b"row", b"row"]

    in_world(test, level)


@pytest.mark.parametrize(
    ("request_name", "level"), [("TxnOffsetCommit", 2), ("TxnOffsetCommit", 1), ("AddOffsetsToTxn", 1)]
)
def test_whatever_is_answered_to_positions_fails_no_batch(request_name: str, level: int) -> None:
    """Also what has a producer abort its transaction, as a user who may not commit for the group is told."""

    async def test(bench: Bench) -> None:
        cluster = bench.cluster("source")
        view = await cluster.topic("in", cluster.deadline("looking up a topic"))
        marks = {"@cluster": cluster.cluster_id, "@topics": {"in": str(view.topic_id)}}
        await cluster.close()
        call = Cluster.call
        code, answered = ErrorCode.NONE, list[ErrorCode]()

        async def refused(self: Cluster, node_id: int, message: Any, **how: Any) -> Any:
            answer = await call(self, node_id, message, **how)
            if isinstance(answer, AddOffsetsToTxnResponse) and request_name == "AddOffsetsToTxn":
                answered.append(code)
                return AddOffsetsToTxnResponse(error_code=code)
            if isinstance(answer, TxnOffsetCommitResponse) and request_name == "TxnOffsetCommit":
                answered.append(code)
                for part in answer.topics[0].partitions:
                    part.error_code = code
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cluster, "call", refused)
            driver = bench.driver()
            for number, code in enumerate((*OUTCOMES[request_name], ErrorCode.UNKNOWN_SERVER_ERROR)):
                tasks = Tasks(bench, b"row")
                assert await driver.write(
                    Progress.of("query", number, [{"in": {"0": number + 1}, **marks}]), 2, False, tasks
                )
                assert tasks.steps == [Step.WRITTEN, Step.COMMITTED], code.name
                assert answered[-1] == code
        assert len(await bench.values()) == 2 * len(set(answered))

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("known", [0, 1])
def test_without_a_record_the_group_tells_what_was_committed(known: int, level: int) -> None:
    """`known`: the last batch of which Spark knows that it is committed."""

    async def test(bench: Bench) -> None:
        cluster = bench.cluster("source")
        view = await cluster.topic("in", cluster.deadline("looking up a topic"))
        marks = {"@cluster": cluster.cluster_id, "@topics": {"in": str(view.topic_id)}}
        await cluster.close()
        ends = [[{"in": {"0": end}, **marks}] for end in (4, 9, 12)]
        driver = bench.driver()
        for number in range(2):
            starts = ends[number - 1] if number else []
            assert await driver.write(
                Progress.of("query", number, ends[number], starts), 2, False, Tasks(bench, b"%d" % number)
            )
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.delete_topic(TOPIC)
        restarted, record = (
            bench.driver("restarted", accept_gap=True),
            Progress.of("query", known + 1, ends[known + 1], ends[known]),
        )
        if known == 0:
            for _ in range(2):
                with pytest.raises(WriteFailed, match=r"was committed before the topic .*startingOffsets=.*\"0\":9"):
                    await restarted.write(record, 2, False, Tasks(bench, b"2"))
        else:
            assert await restarted.write(record, 2, False, Tasks(bench, b"2"))
        assert await bench.values() == sorted([b"0", b"1", *([b"2"] * known)] * 2)

    in_world(test, level)


@pytest.mark.parametrize(
    ("start", "told", "refused"), [(9, None, False), (9, 9, False), (9, 8, False), (9, 10, True), (None, 9, True)]
)
def test_a_batch_is_written_unless_the_group_is_beyond_its_start_in_some_partition(
    start: int | None, told: int | None, refused: bool
) -> None:
    """One that the batch before did not have begins at 0."""
    places = [TopicPartition("in", number) for number in range(2)]
    starts = {places[0]: 5, places[1]: start or 0}
    committed = {places[0]: 5} | ({} if told is None else {places[1]: told})
    reason = beyond("app", Progress("query", 3, []), starts, committed)
    assert (reason is not None) is refused
    assert reason is None or (f'"1":{told}' in reason and "batch 3 of application 'app'" in reason)
