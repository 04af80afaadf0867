"""What is done to every partition now and then, whichever of them there are."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.log.disk import NoDescriptors
from fencepost.log.upkeep import upkeep, watch_space
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Work, at_once

NOW = Milliseconds(1000)


class Partition:
    """Notes what is done to it."""

    def __init__(self, index: int, has_segments_to_drop: bool) -> None:
        self.topic, self.index, self.has_segments_to_drop = "t", index, has_segments_to_drop
        self.done: list[tuple[object, ...]] = []
        self.settings = SimpleNamespace(producer_id_expiration_ms=7 + index)
        self.producers = SimpleNamespace(expire=self.expire)

    def expire(self, now: Milliseconds, expiration_ms: int) -> Work[None]:
        self.done.append(("expire", now, expiration_ms))
        yield

    def retain(self, now: Milliseconds) -> None:
        self.done.append(("retain", now))


class Storage:
    """Notes, in order, what it is told to do."""

    def __init__(self, partitions: list[Partition], *, is_short: bool = False) -> None:
        self._partitions = partitions
        self.gone: set[int] = set()
        self.told: list[object] = []
        self.lacking = 0
        """Steps that the reserve needs besides the next one."""
        self.space = SimpleNamespace(
            hold=self.hold,
            watch=lambda: self.told.append("watch"),
            is_short=is_short,
            size=99,
        )
        self.removals = SimpleNamespace(hurry=lambda: self.told.append("hurry"))
        self.path = Path("/data")
        self.found: list[str] | OSError = ["00000000000000000001.log", "starts"]
        self.disk = SimpleNamespace(list=self.look_into)
        self.fail = lambda failure: self.told.append(("fail", str(failure)))

    def hold(self, count: int) -> bool:
        self.told.append(("hold", count))
        self.lacking -= 1
        return self.lacking >= 0

    def look_into(self, directory: Path) -> list[str]:
        assert directory == Path("/data/commit-log")
        if isinstance(self.found, OSError):
            raise self.found
        return self.found

    def partitions(self) -> list[Partition]:
        return self._partitions

    def partition(self, topic: str, index: int) -> Partition | None:
        assert topic == "t"
        return None if index in self.gone else self._partitions[index]

    def checkpoint_soon(self, *room: int) -> None:
        self.told.append(("checkpoint", *room))


def storage_of(*to_drop: bool, is_short: bool = False) -> Any:
    return Storage([Partition(index, drops) for index, drops in enumerate(to_drop)], is_short=is_short)


@pytest.mark.parametrize("to_drop", list(product([False, True], repeat=3)))
def test_there_is_a_checkpoint_soon_if_any_partition_has_segments_to_drop(to_drop: tuple[bool, ...]) -> None:
    storage = storage_of(*to_drop)
    at_once(upkeep(storage, NOW))
    assert storage.told == ([("checkpoint",)] if any(to_drop) else [])
    for index, partition in enumerate(storage.partitions()):
        assert partition.done == [("retain", NOW), ("expire", NOW, 7 + index)]


def test_one_that_is_deleted_meanwhile_is_left_alone() -> None:
    storage = storage_of(False, True, False)
    work = upkeep(storage, NOW)
    next(work)
    storage.gone.add(1)
    at_once(work)
    assert [len(partition.done) for partition in storage.partitions()] == [2, 0, 2]
    assert storage.told == []


@pytest.mark.parametrize("is_short", [False, True])
def test_a_disk_that_is_short_of_space_is_freed_of_all_that_can_go(is_short: bool) -> None:
    storage = storage_of(False, True, is_short=is_short)
    at_once(watch_space(storage, NOW))
    freed = ["hurry", ("checkpoint",), ("checkpoint", 99)] if is_short else []
    assert storage.told == [("hold", 2), "watch", *freed]


def test_others_are_served_between_the_steps_in_which_the_reserve_is_taken() -> None:
    storage = storage_of(False)
    storage.lacking = 2
    work = watch_space(storage, NOW)
    for steps in (1, 2):
        next(work)
        assert storage.told == [("hold", 1)] * steps
    at_once(work)
    assert storage.told == [*[("hold", 1)] * 3, "watch"]


@pytest.mark.parametrize(
    "found", [[], PermissionError(13, "Permission denied"), NoDescriptors(24, "Too many open files")]
)
def test_a_node_ends_when_its_directory_is_gone_and_not_when_it_cannot_look_into_it(found: list[str] | OSError) -> None:
    storage = storage_of(False)
    storage.found = found
    at_once(watch_space(storage, NOW))
    gone = [("fail", "/data is gone")]
    assert storage.told == ([("hold", 1), "watch"] if found else gone)
