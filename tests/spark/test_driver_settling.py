"""A driver settles a batch whose outcome it was not told: it is written once, whatever arrives late."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError, TimedOutError
from fencepost.client.transactional_id import TransactionalId
from fencepost.spark import driver as driver_module
from fencepost.spark.driver import Step
from fencepost.spark.progress import Progress, read_progress


@pytest.mark.parametrize("level", [2, 1])
def test_a_commit_that_comes_when_the_progress_was_read_is_none_any_more(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is run again then: both of them committed would be rows that are there twice."""
    held: list[tuple[Any, ...]] = []
    end = TransactionalId.end

    async def is_lost_sight_of(transactional_id: TransactionalId, *how: Any) -> Any:
        if how[1] and not held:
            held.append(how)
            raise TimedOutError("no answer to EndTxn")
        return await end(transactional_id, *how)

    async def test(bench: Bench) -> None:
        late = bench.cluster("late")

        async def read(cluster: Cluster, application_id: str) -> Progress | None:
            found = await read_progress(cluster, application_id)
            for how in held:
                with suppress(ClientError):
                    await end(TransactionalId(late, application_id), *how)
            return found

        monkeypatch.setattr(driver_module, "read_progress", read)
        monkeypatch.setattr(TransactionalId, "end", is_lost_sight_of)
        tasks = Tasks(bench, b"row")
        assert await bench.driver().write(batch(0), 2, False, tasks)
        assert Step.REPEATED in tasks.steps
        assert await bench.values() == [b"row", b"row"], "one in each of two places"
        await late.close()

    in_world(test, level)
