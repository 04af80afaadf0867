"""What is kept of open transactions: in its order, within the limit, and no batch that the disk has changed."""

from __future__ import annotations

from itertools import repeat
from random import Random

import pytest
from tests.client.commit_order.reading import Disk

from fencepost.client.commit_order.buffers import OVERHEAD, TransactionBuffer, TransactionBuffers
from fencepost.client.errors import SpillError
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId

COVERED_FROM = 16
"""By the checksum, or by itself: before it are the offset, the length and the leader epoch."""
LENGTH = range(8, 12)
BATCH = encode_batch(
    [(0, b"key", b"value", ())] * 2, producer_id=ProducerId(7), producer_epoch=Epoch(0), base_sequence=0
)


@pytest.mark.parametrize("place", [*LENGTH, *range(COVERED_FROM, len(BATCH))])
def test_a_byte_that_changed_in_the_spill_file_is_seen(place: int) -> None:
    """But for the offset, and the leader epoch, which no checksum covers."""
    disk = Disk(repeat("well"))
    buffers = TransactionBuffers(0, disk.open)
    buffer = TransactionBuffer(buffers)
    buffer.append(BATCH)
    disk.files[0].seek(place)
    disk.files[0].write(bytes([BATCH[place] ^ 1]))
    with pytest.raises(SpillError, match=r"damaged|shorter"):
        buffer.pop()
    buffers.close()


def of_size(number: int) -> bytes:
    return encode_batch([(0, None, bytes(number % 97), ())] * (1 + number % 3), base_offset=number)


@pytest.mark.parametrize("seed", range(8))
def test_batches_come_out_as_they_went_in_and_memory_is_what_those_in_it_take(seed: int) -> None:
    """Of several transactions at once, taken out in part and dropped: each begins in memory, the rest is on disk."""
    chance, limit = Random(seed), 2000
    buffers = TransactionBuffers(limit, Disk(repeat("well")).open)
    kept: dict[TransactionBuffer, list[bytes]] = {buffers.begin(): [] for _ in range(4)}
    for number in range(300):
        buffer = chance.choice(list(kept))
        if chance.random() < 0.6:
            kept[buffer].append(of_size(number))
            buffer.append(kept[buffer][-1])
        elif chance.random() < 0.1:
            buffer.drop()
            kept[buffer].clear()
        elif kept[buffer]:
            assert buffer.pop() == kept[buffer].pop(0)
        for each, batches in kept.items():
            in_memory = sum(map(len, batches)) - each.on_disk
            assert each.is_empty is (not batches)
            assert (each.in_memory - in_memory) % OVERHEAD == 0
            assert (each.in_memory == 0) is (in_memory == 0)
        assert buffers.in_memory == sum(each.in_memory for each in kept) <= limit
    for buffer, batches in kept.items():
        assert [buffer.pop() for _ in batches] == batches
    assert buffers.in_memory == 0
    buffers.close()
