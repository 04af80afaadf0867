"""A reader of a drawn log: fetched as a fetcher would, on temporary files that fail when they are told to."""

from __future__ import annotations

import errno
import random
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.client.commit_order.logs import Log, value

from fencepost.client.commit_order.buffers import TransactionBuffers
from fencepost.client.commit_order.options import CommitOrder
from fencepost.client.errors import SpillError
from fencepost.client.followed import Fetched, Followed
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import Offset, TopicPartition

AT = TopicPartition("t", 0)


class Disk:
    """Where temporary files are: what it is asked for succeeds or fails as `fate` says, or succeeds in part."""

    def __init__(self, fate: Iterator[str]) -> None:
        self.fate = fate
        self.files: list[Any] = []

    def open(self) -> Any:
        file = _File(tempfile.TemporaryFile(buffering=0), self)  # noqa: SIM115
        self.files.append(file)
        return file


class _File:
    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.disk = file, disk
        self.seek, self.truncate, self.close = file.seek, file.truncate, file.close

    def write(self, data: Any) -> int:
        return int(self.file.write(data[: self._size(len(data), errno.ENOSPC)]))

    def read(self, size: int) -> bytes:
        found: bytes = self.file.read(self._size(size, errno.EIO))
        return found

    def _size(self, size: int, error: int) -> int:
        match next(self.disk.fate, "well"):
            case "failed":
                raise OSError(error, "it fails")
            case "short":
                return max(size // 2, 1)
            case _:
                return size


class Reader:
    """One life of a consumer of one partition; `late`: how many of its fetches come an hour or more after the last."""

    def __init__(
        self, log: Log, begun: OffsetAndMetadata, limit: int, most: int, fate: Iterator[str], late: float = 0.1
    ) -> None:
        self.log, self.most, self.late = log, most, late
        self.disk = Disk(fate)
        self.order = CommitOrder(limit, None, 1000)
        self.order.buffers = TransactionBuffers(limit, self.disk.open)
        self.followed = Followed(AT, begun, order=self.order)
        self.chance = random.Random(0)
        self.now = 0.0
        self.fetched: list[int] = []
        """The offsets that were asked for."""

    def take(self, count: int) -> list[int]:
        """Up to so many records, as a fetcher takes them; the offsets of all that were delivered."""
        taken: list[int] = []
        while len(taken) < count:
            try:
                self.followed.decode()
            except SpillError:
                continue  # it is called again: nothing is lost
            if self.followed.ready:
                record = self.followed.ready.pop()
                assert record.value == value(record.offset)
                self.followed.handed_out(record.offset)
                taken.append(record.offset)
            elif not self._fetch():
                break
            assert self.order.buffers.in_memory <= self.order.buffers.limit
        return taken

    def _fetch(self) -> bool:
        """Whether there is more.  Now and then so late that what is kept of open transactions is read again."""
        self.now += 4000 * (self.chance.random() < self.late)
        offset = self.followed.fetch_offset
        self.fetched.append(offset)
        data = self.log.fetch(offset, self.most)
        self.followed.fetched = Fetched(offset, memoryview(data), None, self.now, Offset(self.log.end))
        return bool(data)

    def next_offset(self) -> OffsetAndMetadata:
        """What is committed now."""
        found = self.followed.next_offset()
        assert isinstance(found, OffsetAndMetadata)
        return found

    def end(self) -> None:
        """Nothing is left behind."""
        self.followed.let_go()
        assert self.order.buffers.in_memory == self.order.buffers.file.blocks.end == 0
        for file in self.disk.files:
            assert file.seek(0, 2) == 0
        self.order.buffers.close()
        assert all(file.file.closed for file in self.disk.files) and len(self.disk.files) <= 1
