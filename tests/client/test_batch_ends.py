"""What becomes of a batch goes by all of its tries, not by the last one alone; when the next one is, by how many."""

from __future__ import annotations

import asyncio
import random
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.alarm import Alarm
from fencepost.client.batch_ends import BatchEnds
from fencepost.client.batches import Batch
from fencepost.client.buffer_memory import BufferMemory
from fencepost.client.errors import DeliveryError
from fencepost.client.lanes import Lane
from fencepost.client.statistics import SendCounts
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

PAIR = ProducerIdAndEpoch.of(7, 0)


class Scene:
    """A lane with one batch."""

    def __init__(self, rules: Any) -> None:
        self.loop = asyncio.get_running_loop()
        cluster: Any = SimpleNamespace(runtime=SimpleNamespace(random=random.Random(1)))
        self.counts, self.alarm = SendCounts(), Alarm(self.loop, lambda: None)
        self.lane = Lane(TopicPartition("t", 0))
        self.ends = BatchEnds(cluster, rules, {}, BufferMemory(1_000_000), self.counts, self.alarm)
        self.batch = Batch(self.lane.at, Compression.GZIP, self.loop.time() + 60, None)
        self.batch.append(0, None, bytes(10_000), (), self.loop.create_future(), 100_000)
        self.lane.queue.append(self.batch)

    def send(self) -> None:
        self.lane.take(PAIR, None, False)


def test_the_pause_before_the_next_try_doubles_up_to_half_a_second() -> None:
    async def main() -> None:
        scene = Scene(SimpleNamespace(transactional_id=None))
        for seconds in (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5):
            scene.send()
            scene.batch.on_wire = False
            before = scene.loop.time()
            scene.ends.again(scene.lane, scene.batch, "a reason", in_doubt=False)
            after, at = scene.loop.time(), scene.lane.retry_at
            assert at is not None and before + 0.8 * seconds <= at <= after + 1.2 * seconds
        scene.alarm.cancel()

    asyncio.run(main())


def test_what_is_acknowledged_counts_with_the_bytes_that_were_sent() -> None:
    async def main() -> None:
        scene = Scene(SimpleNamespace(transactional_id=None))
        scene.send()
        assert scene.batch.data is not None and len(scene.batch.data) < 1000 < scene.batch.builder.size
        scene.ends.written(scene.lane, scene.batch, 0, -1)
        assert (scene.counts.sent, scene.counts.sent_bytes) == (1, len(scene.batch.data))

    asyncio.run(main())


def test_what_has_failed_is_not_sent_as_well_where_its_answer_comes_after_all() -> None:
    async def main() -> tuple[int, int]:
        scene = Scene(SimpleNamespace(transactional_id=None))
        scene.send()
        scene.ends.tell(scene.batch, DeliveryError("it was too late"), reported=True)
        scene.ends.written(scene.lane, scene.batch, 0, -1)
        return scene.counts.sent, scene.counts.failed

    assert asyncio.run(main()) == (0, 1)


@pytest.mark.parametrize("tries", [*permutations((True, False, False)), (False, False, False)])
def test_the_numbers_of_a_batch_that_any_try_may_have_written_are_spent(tries: tuple[bool, ...]) -> None:
    """Refused in the end: under its numbers the next batch would be taken for the one that is written."""
    spent: list[bool] = []

    def failed(batch: Any, outcome: Any, error: Any, is_spent: bool) -> Any:  # noqa: ARG001
        spent.append(is_spent)
        return error

    async def main() -> None:
        scene = Scene(SimpleNamespace(failed=failed, transactional_id=None))
        for in_doubt in tries:
            scene.send()
            scene.batch.on_wire = False
            scene.ends.again(scene.lane, scene.batch, "a reason", in_doubt=in_doubt)
        refused = PartitionProduceResponse(index=0, error_code=ErrorCode.INVALID_RECORD, base_offset=-1)
        scene.ends.judge(scene.lane, scene.batch, refused)
        scene.alarm.cancel()

    asyncio.run(main())
    assert spent == [any(tries)]
