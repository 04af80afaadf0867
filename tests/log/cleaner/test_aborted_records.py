"""No reader of committed records is handed an aborted one, wherever it begins and however often the log was cleaned."""

from __future__ import annotations

from random import Random

import pytest
from tests.log.cleaner_doubles import RETENTION, SETTINGS, Writer, until_idle
from tests.log.log_doubles import Node, run

from fencepost.log.partition import Partition
from fencepost.protocol.batch import headers, read_header
from fencepost.protocol.control import ABORT, read_control_record
from fencepost.protocol.types import Isolation, Offset

PASSES = 5


def aborted_offsets(history: list[bytes]) -> set[int]:
    """The last offset of every aborted batch, told from nothing but what was appended."""
    opened: dict[int, list[int]] = {}
    found: set[int] = set()
    for data in history:
        header = read_header(data)
        if header.is_control:
            record = read_control_record(data, 0, header)
            assert record is not None
            batches = opened.pop(header.producer_id, [])
            if record.type == ABORT:
                found |= set(batches)
        elif header.is_transactional:
            opened.setdefault(header.producer_id, []).append(header.last_offset)
    return found


def check_answer(partition: Partition, offset: int, size: int, aborted: set[int]) -> None:
    """What a consumer drops of one answer is what was aborted, and nothing else."""
    fetched = partition.read(Offset(offset), size, Isolation.READ_COMMITTED)
    records = bytes(getattr(fetched, "records", b""))
    told = sorted((first, producer_id) for producer_id, first in getattr(fetched, "aborted", None) or ())
    dropping: set[int] = set()
    for at, header in headers(records):
        while told and told[0][0] <= header.last_offset:
            dropping.add(told.pop(0)[1])
        if header.is_control:
            record = read_control_record(records, at, header)
            if record is not None and record.type == ABORT:
                dropping.discard(header.producer_id)
        elif header.record_count and header.is_transactional and header.last_offset >= offset:
            dropped, was_aborted = header.producer_id in dropping, header.last_offset in aborted
            assert dropped == was_aborted, f"offset {offset}, {size} bytes: batch {header}"


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_drops_what_was_aborted_and_nothing_else(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        node = Node(**SETTINGS)
        node.partition.settings = node.partition.settings.with_(cleanup_policy=("compact", "compact,delete")[seed % 2])
        writer = Writer(node, random)
        for _ in range(PASSES):
            for _ in range(random.randrange(20, 70)):
                writer.step()
            if random.random() < 0.6:
                node.partition.delete_records(Offset(random.randint(0, node.partition.high_watermark)))
                node.partition.retain(node.clock.now())
                node.storage.checkpoint_soon()
            await node.settled()
            # A buffer of few keys ends a pass in the middle of transactions.
            await until_idle(node, dedupe_buffer_size=280 * random.choice((2, 5, 1000)), io_buffer_load_factor=1.0)
            random.choice((lambda: None, node.kill, node.lose_power, node.restart))()
            aborted, partition = aborted_offsets(writer.history), node.partition
            for offset in range(partition.log_start_offset, partition.last_stable_offset):
                for size in (1, 700, 1 << 20):
                    check_answer(partition, offset, size, aborted)
            node.clock.at += random.choice((0, RETENTION + 1))

    run(main())
