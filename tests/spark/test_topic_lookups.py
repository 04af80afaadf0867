"""Many topics are looked up as one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from fencepost.broker import running_broker
from fencepost.client.blocking import Admin
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ConnectionLostError
from fencepost.client.portal import Portal
from fencepost.client.shared_transaction import Ticket
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.spark.attempt import Plan, claim
from fencepost.spark.driver import Driver, WriteFailed
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions
from fencepost.spark.source import StreamReader

SCHEMA = StructType([StructField("value", BinaryType())])
MANY = [f"t{number:02}" for number in range(30)]


class Counted:
    """Which topics were asked for, in each request.  `lost`: how many requests, after the first, get no answer."""

    def __init__(self, patch: pytest.MonkeyPatch, lost: int = 0) -> None:
        self.asked: list[Sequence[str] | None] = []
        inner = Cluster.refresh

        async def refresh(cluster: Cluster, topics: Sequence[str] | None, create: bool = False) -> Any:
            self.asked.append(topics)
            if 0 < len(self.asked) - 1 <= lost:
                raise ConnectionLostError("gone")
            return await inner(cluster, topics, create)

        patch.setattr(Cluster, "refresh", refresh)


@pytest.mark.parametrize("way", [{"subscribe": ",".join(MANY)}, {"subscribePattern": "t.*"}])
def test_a_source_looks_many_topics_up_at_once_and_sees_how_each_has_grown(
    way: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(flush="os") as broker, Admin(broker.bootstrap_servers) as admin:
        for name in MANY:
            admin.create_topic(name, partitions=1)
        reader = StreamReader(
            parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **way}, streaming=True), SCHEMA
        )
        try:
            assert len(Positions.decode(reader.initialOffset()).offsets) == len(MANY)
            for name in MANY:
                admin.create_partitions(name, 2)
            counted = Counted(monkeypatch)
            assert len(Positions.decode(reader.reportLatestOffset()).offsets) == 2 * len(MANY)
            assert len(counted.asked) <= 2
        finally:
            reader.stop()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_sink_looks_many_topics_up_at_once_and_names_one_that_is_not_there(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal = Portal("looks up")
    with running_broker(flush="os") as broker, Admin(broker.bootstrap_servers) as admin:
        for name in MANY:
            admin.create_topic(name, partitions=2)
        cluster = Cluster(broker.bootstrap_servers, client_id="looks up")

        def counts(*more: str) -> dict[str, int]:
            topics = [*MANY, *more]
            driver = Driver(cluster, "many", topics, transaction_timeout_ms=60_000, attempts=1)
            portal.call(driver._count_partitions())
            return driver._counts

        try:
            counted = Counted(monkeypatch, lost)
            assert counts() == dict.fromkeys(MANY, 2)
            assert len(counted.asked) == 1
            assert counts() == dict.fromkeys(MANY, 2)  # none is left out, though an answer may be lost
            assert lost or len(counted.asked) == 2
            with pytest.raises(WriteFailed, match="there is no topic 'misspelt' to write to"):
                counts("misspelt")
        finally:
            portal.call(cluster.close())
            portal.close()


def test_a_task_looks_the_topics_it_writes_to_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = Portal("looks up")
    with running_broker(flush="os") as broker, Admin(broker.bootstrap_servers) as admin:
        for name in MANY:
            admin.create_topic(name, partitions=1)

        async def write() -> int:
            cluster = Cluster(broker.bootstrap_servers, client_id="looks up")
            ticket = Ticket("many", await TransactionalId(cluster, "many").init(60_000), True)
            attempt = await claim(cluster, Plan("many", ticket, {0: None}, dict.fromkeys(MANY, 1)), 0, 0)
            counted = Counted(monkeypatch)
            for name in MANY:
                records = BatchBuilder()
                records.append(0, None, b"row", ())
                await attempt.write(TopicPartition(name, 0), records)
            written = await attempt.finish(len(MANY))
            await attempt.close()
            await cluster.close()
            assert len(counted.asked) == 1
            return len(written)

        assert portal.call(write()) == len(MANY)
        portal.close()
