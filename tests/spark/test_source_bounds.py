"""A batch begins and ends in the same partitions of the same topics, whatever becomes of them meanwhile."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.spark.test_source import SCHEMA, Topic, rows_of

from fencepost.broker import Broker, running_broker
from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.spark import offsets
from fencepost.spark.options import BadOption, parse
from fencepost.spark.source import BatchReader, Range


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker:
        yield broker


def between(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None], which: int) -> None:
    """Have something happen behind the first or the second time that offsets are looked up, and not again."""
    resolve, asked = offsets.resolve, 0

    async def watched(*given: Any) -> Any:
        nonlocal asked
        found = await resolve(*given)
        asked += 1
        if asked == which:
            happens()
        return found

    monkeypatch.setattr(offsets, "resolve", watched)


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
def test_a_partition_that_comes_while_a_batch_is_planned_is_not_in_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, option: str, which: int
) -> None:
    name = f"grows-{option.lower()}-{which}"
    with ExitStack() as stack:
        topic = Topic(broker, name, random.Random(name), stack)
        topic.write(6)
        before = topic.shown()

        def grows() -> None:
            topic.grow()
            topic.write(6)

        between(monkeypatch, grows, which)
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, option: name, "includeHeaders": "true"}
        reader = BatchReader(parse(given, streaming=False), SCHEMA)
        parts = reader.partitions()
        there = {row.partition for row in before}
        assert {part.at.partition for part in parts if isinstance(part, Range)} <= set(range(topic.partitions - 1))
        found = rows_of(reader, parts, name)
        assert [row for row in sorted(found, key=lambda row: row[:2]) if row in before] == before
        assert {row.partition for row in found} >= there


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_made_anew_while_a_batch_is_planned_is_not_read_as_the_old_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    name = f"anew-{fails}"
    with ExitStack() as stack:
        topic = Topic(broker, name, random.Random(name), stack)
        topic.write(6)
        first = max(row.offset for row in topic.shown())
        for partition in range(topic.partitions):
            topic.delete_before(partition, min(first, 1))

        def made_anew() -> None:
            topic.make_anew()
            topic.write(20)

        between(monkeypatch, made_anew, 1)
        reader = BatchReader(parse(topic.options(failOnDataLoss=fails), streaming=False), SCHEMA)
        parts = reader.partitions()
        if fails:
            with pytest.raises(BrokerError, match="was deleted and made anew"):
                rows_of(reader, parts, name)
        else:
            assert rows_of(reader, parts, name) == [], "none of some, and not of others"


@pytest.mark.parametrize("which", [1, 2])
def test_both_ends_are_looked_up_again_where_a_topic_was_away_for_a_moment(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    def away() -> None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "made anew")

    with ExitStack() as stack:
        topic = Topic(broker, f"away-{which}", random.Random(which), stack)
        topic.write(6)
        between(monkeypatch, away, which)
        reader = BatchReader(parse(topic.options(), streaming=False), SCHEMA)
        assert sorted(rows_of(reader, reader.partitions(), topic.name), key=lambda row: row[:2]) == topic.shown()


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_batch_that_is_to_begin_behind_its_end_is_named(broker: Broker, times: int) -> None:
    """As by Spark's own source, unless records may be lost; the other partitions are not read without it."""
    with ExitStack() as stack:
        topic = Topic(broker, f"reversed-{times}", random.Random(times), stack)
        topic.write(40)
        rows = topic.shown()
        end = {
            each: max(row.offset for row in rows if row.partition == each) for each in {row.partition for row in rows}
        }
        last = max(end, key=lambda each: end[each])
        early, late = ({str(n): 0 for n in range(topic.partitions)} for _ in range(2))
        late[str(last)] = end[last]

        def given(**options: str) -> list[Any]:
            return BatchReader(parse(topic.options(**options), streaming=False), SCHEMA).partitions()

        starts = {"startingOffsets": json.dumps({topic.name: late})}
        ends = {"endingOffsets": json.dumps({topic.name: early})}
        if times:
            ends = {"endingTimestamp": "0"}
        if times == 2:
            starts = {"startingTimestamp": str(2**62), "startingOffsetsByTimestampStrategy": "latest"}
        with pytest.raises(
            BadOption, match=rf"{topic.name}-\d begins at \d+ by {next(iter(starts))}, and ends before it"
        ):
            given(**starts, **ends)
        assert given(**starts, **ends, failOnDataLoss="false") == []
        assert given(**ends) == [], "the beginning of a log is no place that was said"


def test_a_batch_that_cannot_be_planned_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Refused:
        """An Asker whose cluster does not know the topic."""

        def __init__(self, _: object) -> None: ...

        def positions_of(self, _: object) -> Any:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr("fencepost.spark.source.Asker", Refused)
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    with pytest.raises(BrokerError, match="there is none"):
        BatchReader(parse(given, streaming=False), SCHEMA).partitions()
    assert closed == [True]
