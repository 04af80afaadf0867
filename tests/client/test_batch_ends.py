"""What becomes of a batch goes by all of its tries, and not by the last one alone."""

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
from fencepost.client.lanes import Lane
from fencepost.client.statistics import SendCounts
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition


@pytest.mark.parametrize("tries", [*permutations((True, False, False)), (False, False, False)])
def test_the_numbers_of_a_batch_that_any_try_may_have_written_are_spent(tries: tuple[bool, ...]) -> None:
    """Refused in the end: under its numbers the next batch would be taken for the one that is written."""
    spent: list[bool] = []

    def failed(batch: Any, outcome: Any, error: Any, is_spent: bool) -> Any:  # noqa: ARG001
        spent.append(is_spent)
        return error

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cluster: Any = SimpleNamespace(runtime=SimpleNamespace(random=random.Random(1)))
        rules: Any = SimpleNamespace(failed=failed, transactional_id=None)
        alarm, memory = Alarm(loop, lambda: None), BufferMemory(1_000_000)
        lane = Lane(TopicPartition("t", 0))
        ends = BatchEnds(cluster, rules, {}, memory, SendCounts(), alarm)
        batch = Batch(lane.at, Compression.NONE, loop.time() + 60, None)
        batch.append(0, None, b"v", (), loop.create_future(), 1000)
        lane.queue.append(batch)
        for in_doubt in tries:
            lane.take(ProducerIdAndEpoch.of(7, 0), None, False)
            batch.on_wire = False
            ends.again(lane, batch, "a reason", in_doubt=in_doubt)
        ends.judge(lane, batch, PartitionProduceResponse(index=0, error_code=ErrorCode.INVALID_RECORD, base_offset=-1))
        alarm.cancel()

    asyncio.run(main())
    assert spent == [any(tries)]
