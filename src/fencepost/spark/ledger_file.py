"""The ledger as a file, for tasks that are processes of one machine."""

from __future__ import annotations

import errno
import logging
import os
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Final

from fencepost.spark.ledger import Ledger
from fencepost.spark.place_states import NOTHING_THERE, Kind, PlaceState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_LOCAL: Final = re.compile(r"local(\[|$)")
"""Spark's setting `master` where the tasks are processes of this machine."""
_PLACE: Final = struct.Struct(">q")
"""A place: its number of records where it is settled; 0 everywhere in a new file.  A negative number: `_OTHERS`."""
_OTHERS: Final = {Kind.UNSETTLED: -1, Kind.CLOSED: -2}


def packed(state: PlaceState) -> bytes:
    """The bytes of a place in the file."""
    return _PLACE.pack(_OTHERS.get(state.kind, state.records))


def unpacked(data: bytes) -> PlaceState:
    """The state of a place, from its bytes in the file.  Raises ValueError if they are none."""
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
    """The ledger in the file at `path`.  Raises as `LedgerFile`."""
    return Ledger(LedgerFile(path))


@contextmanager
def new_ledger(places: int) -> Iterator[str]:
    """The path of a new ledger with `places` places and no records, which is removed at the end of the block.

    Raises OSError if there is no room for it where temporary files are.
    """
    with NamedTemporaryFile(prefix="fencepost-spark-", buffering=0) as file:
        _fill(file, packed(NOTHING_THERE) * places)  # so that it has its room on the disk before anything is sent
        yield file.name


def _fill(file: IO[bytes], data: bytes) -> None:
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, f"no room for a ledger of {len(data)} bytes", file.name)


@contextmanager
def shared_ledger(spark: SparkSession, places: int) -> Iterator[str | None]:
    """The path of a ledger for the tasks of this session; None if they are not all on this machine, or it has no locks.

    None, too, without room for its file, which is logged.  Without a ledger nothing is sent ahead, as on a cluster.
    """
    with ExitStack() as held:
        path = None
        if _LOCAL.match(spark.sparkContext.master or "") and sys.platform != "win32":
            try:
                path = held.enter_context(new_ledger(places))
            except OSError as error:
                logger.warning("rows are written after the shuffle only, which takes longer: %s", error)
        yield path
