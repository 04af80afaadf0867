"""The admin client against a node of our own, on virtual time; `tests/compare` asks an Apache Kafka the same."""

from __future__ import annotations

from typing import Any

from tests.client.admin.script import ANSWERS, Script
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, Producer
from fencepost.simulation.world import ADDRESS, World


def test_everything_that_an_admin_asks_is_answered_as_by_apache_kafka() -> None:
    told: list[tuple[str, Any]] = []

    async def scenario(world: World) -> None:
        def producer(**options: Any) -> Producer:
            return Producer(ADDRESS, runtime=world.runtime("writer"), **options)

        def consumer(*topics: str, **options: Any) -> Consumer:
            return Consumer(*topics, bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), **options)

        async with Admin(ADDRESS, runtime=world.runtime("the admin")) as admin:
            told.extend(await Script("w", admin, producer, consumer).all())

    simulate(scenario)
    assert told == ANSWERS
