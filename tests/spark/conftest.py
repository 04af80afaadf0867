"""Spark itself, a broker, and a place to write from and to: one of each for a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.spark.places import Place

from fencepost.broker import Broker, running_broker
from fencepost.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Java's second compiler takes more than it gives to a process that ends soon, of which there are many.
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, QUICK)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    config = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    session = local_session("tests", 2, config)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 4, "offsets.topic.num.partitions": 4}
    with running_broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def place(broker: Broker, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)
