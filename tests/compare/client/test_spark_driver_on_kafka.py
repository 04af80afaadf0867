"""The driver of the Spark sink and its tasks on Apache Kafka, without Spark: answers that are lost, epochs that end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest
from tests.compare.nodes.kafka_clusters import CLUSTERS, kafka_cluster
from tests.spark.test_driver import PLACES, Bench, Tasks, batch

from fencepost.client import Admin, Consumer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import TimedOutError
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.types import LAST_CLIENT_EPOCH, ProducerIdAndEpoch
from fencepost.spark.claims import slot_name
from fencepost.spark.driver import Driver

pytestmark = pytest.mark.compare

#: Batches that are written across the last epoch, and how far before it each id is when they begin.
BATCHES, BEFORE = 8, (4, 2, 6)


class There:
    """A cluster with the topic `out`, for one application (as `tests.spark.test_driver.Bench`)."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.application = uuid.uuid4().hex

    def cluster(self, name: str) -> Cluster:
        return Cluster(self._servers, client_id=name)

    def driver(self) -> Driver:
        return Driver(self.cluster("driver"), self.application, ["out"], transaction_timeout_ms=60_000, attempts=3)

    def tasks(self, value: bytes) -> Tasks:
        return Tasks(cast(Bench, self), value)

    async def values(self) -> list[bytes]:
        async with Consumer(bootstrap_servers=self._servers) as consumer:
            consumer.assign(PLACES[:2])
            ends = await consumer.end_offsets(PLACES[:2])
            found = list[bytes]()
            while [*consumer.next_offsets()] != PLACES[:2] or any(
                consumer.position(at) < ends[at] for at in PLACES[:2]
            ):
                found += [record.value or b"" for record in await consumer.poll(100)]
        return sorted(found)


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with kafka_cluster(request.param) as servers:
        yield servers


def on(servers: str, test: Callable[[There], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Admin(servers) as admin:
            if "out" in await admin.topics():
                await admin.delete_topic("out")
            await admin.create_topic("out", partitions=2)
        await test(There(servers))

    asyncio.run(main())


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("kind", [TimedOutError, KeyboardInterrupt])
def test_a_commit_whose_answer_is_lost(
    servers: str, carried_out: bool, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is run again if it was not carried out; who was interrupted is asked to write it again."""
    end, lost = TransactionalId.end, list[bool]()

    async def losing(self: TransactionalId, who: ProducerIdAndEpoch, commit: bool, *more: Any) -> ProducerIdAndEpoch:
        if not commit or lost:
            return await end(self, who, commit, *more)
        lost.append(commit)
        self.unsettled = True
        if carried_out:
            await end(self, who, commit, *more)
        raise kind("the answer is lost")

    async def test(there: There) -> None:
        driver, interrupted = there.driver(), kind is KeyboardInterrupt
        monkeypatch.setattr(TransactionalId, "end", losing)
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                await driver.write(batch(0, 1), 2, False, there.tasks(b"0"))
        else:
            assert await driver.write(batch(0, 1), 2, False, there.tasks(b"0"))
        assert await driver.write(batch(0, 1), 2, False, there.tasks(b"0")) is (interrupted and not carried_out)
        assert await driver.write(batch(1, 2), 2, False, there.tasks(b"1"))
        assert await there.values() == [b"0", b"0", b"1", b"1"]

    on(servers, test)


def test_batches_are_written_across_the_last_epoch_of_every_id(servers: str) -> None:
    async def test(there: There) -> None:
        cluster = there.cluster("bumps")

        async def use_up(name: str, before: int) -> None:
            transactional_id = TransactionalId(cluster, name)
            while (await transactional_id.init(60_000)).producer_epoch < LAST_CLIENT_EPOCH - before:
                pass

        names = there.application, *(slot_name(there.application, slot) for slot in range(2))
        await asyncio.gather(*map(use_up, names, BEFORE))
        await cluster.close()
        driver = there.driver()
        for number in range(BATCHES):
            tasks = there.tasks(b"%d" % number)
            assert await driver.write(batch(number, number), 2, False, tasks)
            assert len(tasks.plans) == 1
        assert driver.producer_id_and_epoch.producer_epoch < BATCHES
        assert await there.values() == sorted([b"%d" % number for number in range(BATCHES)] * 2)

    on(servers, test)
