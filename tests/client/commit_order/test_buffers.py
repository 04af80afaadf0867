"""What is kept of open transactions: a batch that the disk has changed is never handed out."""

from __future__ import annotations

from itertools import repeat

import pytest
from tests.client.commit_order.reading import Disk

from fencepost.client.commit_order.buffers import TransactionBuffer, TransactionBuffers
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
