"""What a pass may take for itself, what is told of it, and that it ends with its topic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.log.cleaner_doubles import SETTINGS, cleaner_of, until_idle
from tests.log.log_doubles import START, Node, append, batch, run, values_of

from fencepost.log.cleaner import cleaning, log_cleaner
from fencepost.log.cleaner.cleaning import Pass, Steps
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.cleaner.pace import TOGETHER
from fencepost.log.cleaner.work import Chosen
from fencepost.log.partition import Partition
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Milliseconds, Offset


async def dirty(keys: Sequence[bytes], *topics: str) -> Node:
    """Logs that have a batch of 700 bytes for each of these keys, one after the other."""
    node = Node(None, [(topic, 0) for topic in topics], **SETTINGS)
    for topic in topics:
        for key in keys:
            append(node.of(topic), encode_batch([(START, key, bytes(700), ())]))
        node.of(topic).roll()
    await node.settled()
    node.restart()
    return node


def test_journals_that_are_cleaned_together_share_the_room_that_another_log_has_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms: list[int] = []

    def noted(first: Offset, capacity: int) -> OffsetMap:
        rooms.append(capacity)
        return OffsetMap(first, capacity)

    async def main() -> None:
        node = await dirty([b"k"] * 4, "journal", "user")
        node.of("journal").settings = node.of("journal").settings.with_(journal_roll_bytes=1_000)
        monkeypatch.setattr(log_cleaner, "OffsetMap", noted)
        await until_idle(node, dedupe_buffer_size=280 * 80, io_buffer_load_factor=1.0)

    run(main())
    assert len(rooms) == 2 and max(rooms) == TOGETHER * min(rooms)


def test_no_more_is_read_and_written_than_the_setting_says() -> None:
    async def main() -> None:
        node = await dirty([b"k"] * 4, "a", "b", "c")
        cleaner, clock = cleaner_of(node, io_max_bytes_per_second=1000.0), asyncio.get_running_loop()
        begun = clock.time()
        cleaner.start()
        while cleaner.metrics.passes < 3:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.1)
        moved = cleaner.metrics.bytes_read + cleaner.metrics.bytes_written
        assert clock.time() - begun > moved / 1000 * 2 / 3 > 3, "the last one rests afterwards"
        cleaner.close()

    run(main())


@pytest.mark.parametrize(("keys", "percent"), [([b"a", b"b", b"c", b"d"], 100), ([b"a"] * 4, 25)])
def test_what_is_copied_is_told_as_a_part_of_what_a_pass_looked_at_to_copy_it(keys: list[bytes], percent: int) -> None:
    """What it read before, to know which keys there are, does not count."""

    async def main() -> None:
        node = await dirty(keys, "t")
        cleaner = await until_idle(node)
        assert cleaner.metrics.cleaner_recopy_percent == pytest.approx(percent)

    run(main())


@pytest.mark.parametrize("turn", range(3))
def test_a_pass_ends_with_its_topic_also_if_there_is_another_of_that_name(turn: int) -> None:
    """Whatever it was doing: its files would be in the way of the other one's, or their lack a reason to give up."""
    steps = Pass.steps

    async def main() -> None:
        node = await dirty([b"k"] * 4, "t")
        old, left = node.partition, turn
        files: list[str] = []

        def replaced(work: Pass) -> Steps[None]:
            nonlocal left
            for wanted in steps(work):
                if left == 0:
                    node.storage.delete_partition(old)
                    directory = node.storage.create_partition("t", uuid.UUID(int=7), 0).directory
                    files.extend(node.disk.list(directory))
                left -= 1
                yield wanted

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pass, "steps", replaced)
            patch.setattr(cleaning, "STEP", 1)
            cleaner = await until_idle(node)
        assert left < 0 and node.partition is not old
        assert not cleaner.uncleanable and cleaner.metrics.passes == 0
        assert node.disk.list(node.partition.directory) == files
        append(node.partition, batch(tag="theirs"))
        await node.settled()
        assert values_of(node.partition) == [b"theirs"]

    run(main())


def test_logs_that_are_chosen_or_under_way_are_not_looked_at_for_another_pass() -> None:
    """Journals are looked for while others are cleaned: two over one log would take its files away."""

    async def main() -> None:
        node = await dirty([b"k"] * 4, "chosen", "under way", "neither")
        cleaner, looked = cleaner_of(node), list[set[str]]()

        def survey(_: Milliseconds, taken: set[Partition]) -> Generator[None, None, list[Chosen]]:
            looked.append({partition.topic for partition in taken})
            yield from ()
            return []

        surveyor: Any = SimpleNamespace(journals=["a journal"], survey=survey)
        cleaner._surveyor = surveyor
        cleaner._chosen = [cast(Any, SimpleNamespace(partition=node.of("chosen")))]
        cleaner._under_way = [cast(Any, SimpleNamespace(partition=node.of("under way")))]
        cleaner._ring()
        cleaner.abandon()
        assert looked == [{"chosen", "under way"}]

    run(main())


@pytest.mark.parametrize("how", ["close", "abandon"])
def test_nothing_is_looked_for_any_more_by_a_cleaner_that_has_ended(how: str) -> None:
    """Another node may have the directory by then."""

    async def main() -> None:
        node, looked = await dirty([b"k"] * 4, "t"), list[Milliseconds]()
        cleaner = cleaner_of(node)

        def survey(now: Milliseconds, _: set[Partition]) -> Generator[None, None, list[Chosen]]:
            looked.append(now)
            yield from ()
            return []

        cleaner._surveyor = cast(Any, SimpleNamespace(journals=[], survey=survey))
        cleaner.start()
        await asyncio.sleep(10)
        before = len(looked)
        getattr(cleaner, how)()
        await asyncio.sleep(10)
        assert len(looked) == before > 0

    run(main())
