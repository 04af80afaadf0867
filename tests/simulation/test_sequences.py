"""Gaps, repetitions and fenced producers are seen where they are written; what the protocol allows is not."""

from __future__ import annotations

import pytest

from fencepost.client import Admin, Producer
from fencepost.protocol.batch import BatchHeader, read_header
from fencepost.protocol.control import control_batch
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.simulation.checkers.sequences import Sequences
from fencepost.simulation.durable_answers import WatchedStorage
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.small_limits import lowered
from fencepost.simulation.world import ADDRESS, World

MARKER = -2


def written(epoch: int, sequence: int, count: int = 1, producer_id: int = 7, base_offset: int = 9) -> BatchHeader:
    """The header of a batch; `MARKER` for a transaction's end."""
    if sequence == MARKER:
        header = read_header(
            control_batch(ProducerId(producer_id), Epoch(epoch), LeaderEpoch(0), True, Milliseconds(0))
        )
    else:
        records = [(0, None, b"", ())] * count
        header = read_header(
            encode_batch(
                records, producer_id=ProducerId(producer_id), producer_epoch=Epoch(epoch), base_sequence=sequence
            )
        )
    return header._replace(base_offset=Offset(base_offset))


def wrong(*batches: BatchHeader, topic: str = "t") -> list[str]:
    sequences = Sequences()
    return [told for each in batches if (told := sequences.add(topic, 0, each)) is not None]


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 0, 2), (0, 2, 1), (0, 3, 5)],
        [(0, 17, 1), (0, 18, 1)],  # what came before is not known
        [(0, 0, 1), (0, MARKER, 1), (0, 1, 1)],  # before transaction.version 2
        [(0, 0, 1), (1, MARKER, 1), (1, 0, 1)],
        [(0, 0, 1), (2, 0, 1)],
        [(0, MARKER, 1), (0, 5, 1)],
    ],
)
def test_what_the_protocol_allows_is_allowed(batches: list[tuple[int, int, int]]) -> None:
    assert wrong(*(written(*each) for each in batches)) == []


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([(0, 0, 2), (0, 3, 1)], "writes sequence 3 to t-0, 2 is next"),
        ([(0, 0, 2), (0, 0, 2)], "writes sequence 0 to t-0, 2 is next"),
        ([(0, 0, 1), (1, 1, 1)], "writes sequence 1 to t-0, 0 is next"),
        ([(0, 0, 1), (1, MARKER, 1), (0, 1, 1)], "under epoch 0 after 1"),
        ([(1, 0, 1), (0, MARKER, 1)], "under epoch 0 after 1"),
    ],
)
def test_what_it_forbids_is_told(batches: list[tuple[int, int, int]], says: str) -> None:
    (told,) = wrong(*(written(*each) for each in batches))
    assert says in told


def test_after_the_largest_sequence_comes_0() -> None:
    with lowered({"largest sequence": 31}):
        assert wrong(written(0, 30, 2), written(0, 0)) == []
        assert wrong(written(0, 30, 2), written(0, 32)) != []


@pytest.mark.parametrize("first", [written(0, 0, base_offset=0), written(-1, -1, producer_id=-1, base_offset=0)])
def test_a_topic_made_anew_knows_of_nothing(first: BatchHeader) -> None:
    assert wrong(written(1, 5), first, written(0, 1)) == []


def test_what_coordinators_write_has_no_order() -> None:
    assert wrong(written(0, 0), written(0, 0), topic="__consumer_offsets") == []


def test_what_stands_in_the_log_since_before_is_gone_on_with() -> None:
    """Compaction may have taken records of it, and whole batches: it is no gap that they are not there."""
    left = written(0, 4, 3)._replace(record_count=1)
    for batches, following, epoch in (
        ([written(0, 0), left], 7, 0),
        ([left, written(0, MARKER)], 7, 0),
        ([left, written(1, MARKER)], 0, 1),
        ([written(3, 9)], 10, 3),
    ):
        for sequence, is_well in ((following, True), (following + 1, False), (99, False)):
            sequences = Sequences()
            for each in batches:
                sequences.learn("t", 0, each)
            assert (sequences.add("t", 0, written(epoch, sequence)) is None) == is_well
            assert "under epoch -1 after" in (sequences.add("t", 0, written(-1, 0)) or "")


def test_a_node_that_starts_again_is_known_by_what_it_finds() -> None:
    """A batch of before for the second time, and a transaction that was open, are seen in the next life, too."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("t")
        async with Producer(ADDRESS, transactional_id="id", runtime=world.runtime("producer")) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for _ in range(2):
                await (await producer.send("t", b"x"))
            await world.stop()
            await world.start()
            storage = world.storage
            assert isinstance(storage, WatchedStorage)
            partition = storage.partition("t", 0)
            assert partition is not None
            first, _ = next(partition.scan(Offset(0)))
            assert "writes sequence 0" in (storage._sequences.add("t", 0, first._replace(base_offset=Offset(2))) or "")
            assert "open from 0" in (storage._stable.tell(("t", 0), 1, 0) or "")
            await producer.abandon()
        await world.stop()

    run(main)
