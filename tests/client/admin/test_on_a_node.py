"""The admin client against a node of our own, on virtual time; `tests/compare` asks an Apache Kafka the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.admin.script import ANSWERS, Script
from tests.client.test_producer import simulate

from fencepost.client import Admin, BrokerError, ConfigChange, Consumer, Producer
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


@pytest.mark.parametrize("broker", [0, None])
def test_a_node_says_that_its_own_settings_stay_while_it_runs(broker: int | None) -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("the admin")) as admin:
            with pytest.raises(BrokerError, match="only the settings of topics can be changed while the broker runs"):
                await admin.alter_broker_config(broker, ConfigChange(set={"log.retention.ms": "5"}))

    simulate(scenario)
