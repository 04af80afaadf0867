"""What a node does at intervals is done again whatever became of it, and not while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker import housekeeping
from fencepost.broker.housekeeping import Housekeeping
from fencepost.broker.metadata.settings import Settings
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run

INTERVAL_MS = 1000


def begun_by(seconds: float, work: Any, monkeypatch: pytest.MonkeyPatch, fails_at: float | None = None) -> list[float]:
    """When the look at transactions was begun within so many seconds; `work` is what it does then.

    `fails_at`: seconds after which the storage fails.
    """
    times: list[float] = []

    def nothing(*_: object) -> Iterator[None]:
        yield

    async def main(loop: VirtualLoop) -> None:
        def tick(_: int) -> Any:
            times.append(loop.time())
            return work

        async def in_slices(work: Any) -> None:
            if callable(work):
                await work()

        node = SimpleNamespace(
            settings=SimpleNamespace(number=lambda _: INTERVAL_MS),
            jumps=SimpleNamespace(steady=lambda now: now, notice=lambda: None),
            transactions=SimpleNamespace(tick=tick),
            groups=SimpleNamespace(tick=nothing),
            storage=SimpleNamespace(failure=None),
            slices=SimpleNamespace(run=in_slices),
            clock=VirtualClock(loop),
            connections=[],
        )
        keeping = Housekeeping(cast(Any, node))
        if fails_at is not None:
            loop.call_later(fails_at, setattr, node.storage, "failure", OSError("the disk"))
        await asyncio.sleep(seconds)
        keeping.close()
        await asyncio.sleep(seconds)

    monkeypatch.setattr(housekeeping, "upkeep", nothing)
    monkeypatch.setattr(housekeeping, "watch_space", nothing)
    run(main)
    return times


def test_what_takes_longer_than_its_interval_is_begun_again_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow() -> None:
        await asyncio.sleep(2.5)

    assert begun_by(9.5, slow, monkeypatch) == [1, 4, 7]


def test_nothing_is_begun_on_a_storage_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun_by(6.5, None, monkeypatch, fails_at=2.5) == [1, 2]


def test_what_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing() -> None:
        raise ValueError("this time")

    assert begun_by(3.5, failing, monkeypatch) == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "name", "interval_ms"),
    [
        ({"log.retention.check.interval.ms": 70, "producer.id.expiration.check.interval.ms": 90}, "storage", 70),
        ({"log.retention.check.interval.ms": 70, "producer.id.expiration.check.interval.ms": 50}, "storage", 50),
        ({"connections.max.idle.ms": 600_000}, "connections", 5000),
        ({"connections.max.idle.ms": 300}, "connections", 150),
        ({"connections.max.idle.ms": 0}, "connections", 1),
        ({"connections.max.idle.ms": -1}, "connections", 5000),
        ({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 30}, "transactions", 30),
        ({"offsets.retention.check.interval.ms": 40}, "offsets", 40),
    ],
)
def test_it_is_looked_as_often_as_the_settings_say(
    given: dict[str, int], name: str, interval_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, int] = {}
    monkeypatch.setattr(Housekeeping, "_every", lambda _, what, every, __: found.__setitem__(what, every))
    node: Any = SimpleNamespace(
        settings=Settings(given), jumps=SimpleNamespace(steady=None), transactions=SimpleNamespace(tick=None)
    )
    Housekeeping(node)
    assert found[name] == interval_ms
