"""The ways to leaders are looked for in the background: not without a pause, however many are missing."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from fencepost.client import DeliveryError, Producer
from fencepost.client.cluster import Cluster, TopicView
from fencepost.client.deadline import Deadline
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run
from fencepost.simulation.network import SimulatedNetwork

NAMES = ("a", "b", "c")


def test_a_topic_that_was_not_found_is_not_looked_for_again_at_once_because_another_one_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody answers, and who sends gives it a millisecond: many topics would be looked for in a loop."""
    looked: dict[str, list[float]] = defaultdict(list)
    looks = Cluster.topic

    async def topic(cluster: Cluster, name: str, deadline: Deadline, create: bool = True) -> TopicView:
        looked[name].append(deadline._loop.time())
        return await looks(cluster, name, deadline, create)

    monkeypatch.setattr(Cluster, "topic", topic)

    async def main(loop: VirtualLoop) -> None:
        options: dict[str, Any] = {"max_block_ms": 1, "delivery_timeout_ms": 1000, "enable_idempotence": False}
        runtime = Runtime(VirtualClock(loop), SimulatedNetwork(random.Random(3)), random.Random(3))
        async with Producer("127.0.0.1:1", runtime=runtime, request_timeout_ms=1000, **options) as producer:
            sender = producer._sending.sender
            assert sender is not None
            futures = [sender.append((name, 0), 0, None, b"v", ())[0] for name in NAMES]
            for future in futures:
                with pytest.raises(DeliveryError):
                    await future

    run(main)
    assert looked.keys() == set(NAMES)
    for times in looked.values():
        assert len(times) > 10 and min(late - early for early, late in pairwise(times)) > 0.015
