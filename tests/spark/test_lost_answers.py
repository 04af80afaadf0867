"""A write whose answers are lost on their way, of every request that it makes: all of it is there, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.ports import free_port
from tests.spark.losing_line import HERE, THERE, LosingLine, losing_line
from tests.spark.places import ROWS, Place

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Admin
from fencepost.spark import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Requests of a write before transaction.version 2, by their API keys: Produce, InitProducerId, AddPartitionsToTxn,
#: AddOffsetsToTxn, EndTxn, TxnOffsetCommit, DescribeTransactions.
BEFORE_TV2: Final = {0, 22, 24, 25, 26, 28, 65}
#: Level of transaction.version -> requests of a write.
REQUESTS: Final = {1: BEFORE_TV2, 2: BEFORE_TV2 - {24, 25}}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port(HERE, THERE)


@pytest.fixture(scope="module")
def broker(port: int) -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, listen=f"{THERE}:{port}") as broker:
        yield broker


@pytest.fixture(scope="module")
def line(port: int) -> Iterator[LosingLine]:
    with losing_line(port) as line:
        yield line


@pytest.mark.soak
@pytest.mark.parametrize("level", [2, 1])
def test_answers_that_are_lost(
    spark: SparkSession, broker: Broker, line: LosingLine, port: int, tmp_path: Path, level: int
) -> None:
    """Two of another kind in each micro-batch."""
    servers, requests, lost = f"{HERE}:{port}", sorted(REQUESTS[level]), list[int]()
    with Admin(servers) as admin:
        admin.update_feature("transaction.version", level)
    place = Place(broker, tmp_path)
    place.servers = servers
    line.lose.clear()
    line.lost.clear()

    def watch(step: Step, _: int) -> None:
        if step is Step.COMMITTED and len(lost) < len(requests):
            lost.append(requests[len(lost)])
            line.lose[lost[-1]] = 2

    place.run(spark, most=ROWS // (len(requests) + 3), watch=watch)
    assert place.shown() == list(range(ROWS))
    assert line.lost == Counter(dict.fromkeys(requests, 2))
