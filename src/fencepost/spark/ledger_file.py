"""The ledger as a file, for tasks that are processes of one machine."""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final

from fencepost.spark.ledger import Ledger
from fencepost.spark.place_states import Kind, PlaceState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(\[|$)")
"""Spark's master where the tasks are processes of this machine."""
_PLACE: Final = struct.Struct(">q")
"""How many records a place has where it is settled, from 0 on: a new file has nothing anywhere."""
_OTHERS: Final = {Kind.UNSETTLED: -1, Kind.CLOSED: -2}


def packed(state: PlaceState) -> bytes:
    """As it is in the file."""
    return _PLACE.pack(_OTHERS.get(state.kind, state.records))


def unpacked(data: bytes) -> PlaceState:
    """What is in the file.  Raises ValueError for what is nothing of the kind."""
    if len(data) != _PLACE.size:
        raise ValueError(f"the ledger ends after {len(data)} bytes of a place")
    (number,) = _PLACE.unpack(data)
    if number >= 0:
        return PlaceState(Kind.SETTLED, number)
    kind = next((kind for kind, other in _OTHERS.items() if other == number), None)
    if kind is None:
        raise ValueError(f"the ledger has {number} for a place")
    return PlaceState(kind)


class LedgerFile:
    """The file, opened by one process, once: closing it takes all of its locks away (ledger.LedgerStore).

    Raises OSError if there is no such file, as when the run is over.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR)

    def lock(self, place: int) -> bool:
        import fcntl  # which Windows has not

        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, *_where(place))
        except (BlockingIOError, PermissionError):  # either, says POSIX
            return False
        return True

    def unlock(self, place: int) -> None:
        import fcntl

        fcntl.lockf(self._file, fcntl.LOCK_UN, *_where(place))

    def read(self, place: int) -> PlaceState:
        return unpacked(os.pread(self._file, *_where(place)))

    def note(self, place: int, state: PlaceState) -> None:
        data, (_, offset) = packed(state), _where(place)
        if os.pwrite(self._file, data, offset) != len(data):
            raise OSError(f"the ledger takes no more of place {place}")

    def close(self) -> None:
        os.close(self._file)


def _where(place: int) -> tuple[int, int]:
    return _PLACE.size, place * _PLACE.size


def open_ledger(path: str) -> Ledger:
    """The ledger in a file; as `LedgerFile`."""
    return Ledger(LedgerFile(path))


@contextmanager
def new_ledger(places: int) -> Iterator[str]:
    """The path of a ledger with so many places, where nothing is written, until the end of the block."""
    with NamedTemporaryFile(prefix="fencepost-spark-", buffering=0) as file:
        file.truncate(places * _PLACE.size)
        yield file.name


def shared_ledger(spark: SparkSession, places: int) -> AbstractContextManager[str | None]:
    """A ledger for the tasks of this session; None where they are not all on this machine, or it has no such locks."""
    is_shared = _LOCAL.match(spark.sparkContext.master or "") and sys.platform != "win32"
    return new_ledger(places) if is_shared else nullcontext()
