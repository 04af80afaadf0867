"""How far each topic-partition is written in one run of a batch: a file that all tasks of one machine share.

Several tasks may write one topic-partition in one transaction if they take turns, each going on with the sequence
number at which the one before it stopped.  Who has its turn holds a lock, notes before anything is sent that the place
is not settled, and when all of that is acknowledged how many records are there.  Who stops in between leaves a place
where nobody writes any more.

Whoever wrote, of how many attempts: a batch may be committed only if there are as many records in each place as those
attempts report whose results Spark took, and then every place is closed to who is late.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final, Self

from fencepost.protocol.types import TopicPartition
from fencepost.spark.attempt import SECOND_ATTEMPT, PoisonedError
from fencepost.spark.claims import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(\[|$)")
"""Spark's master where the tasks are processes of this machine."""
_PLACE: Final = struct.Struct(">q")
_UNSETTLED: Final = -1
_CLOSED: Final = -2


class Turn:
    """The right to write to one place, until it ends.  `records`: how many are there."""

    def __init__(self, file: int, place: int, records: int) -> None:
        self._file = file
        self._place = place
        self.records = records

    def begin(self) -> None:
        """Something is about to be sent."""
        self._note(_UNSETTLED)

    def settle(self, records: int) -> None:
        """All that was sent is acknowledged, which is so many records."""
        self.records += records
        self._note(self.records)

    def close(self) -> None:
        """Nobody writes here after this."""
        self._note(_CLOSED)

    def _note(self, state: int) -> None:
        os.pwrite(self._file, _PLACE.pack(state), self._place * _PLACE.size)


class Ledger:
    """The file, opened by one process, once: its locks are those of the process.  `close` it.

    A place is a number from 0 on.  Raises OSError if there is no such file, as when the run is over.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def turn(self, place: int) -> Iterator[Turn | None]:
        """A turn at a place until the end of the block; None while another process has it.

        Raises PoisonedError where another one stopped in the middle of its turn, or the place is closed.
        """
        import fcntl  # which Windows has not

        where = _PLACE.size, place * _PLACE.size
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, *where)
        except (BlockingIOError, PermissionError):  # either, says POSIX
            yield None
            return
        try:
            (state,) = _PLACE.unpack(os.pread(self._file, *where))
            if state < 0:
                raise PoisonedError(
                    f"somebody stopped in the middle of his turn: {SECOND_ATTEMPT}"
                    if state == _UNSETTLED
                    else "the driver has all that it commits: this attempt at the batch is late"
                )
            yield Turn(self._file, place, state)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, *where)

    def close(self) -> None:
        """Its turns end."""
        os.close(self._file)


class Turns:
    """One turn at each place where a task writes, from the first batch on until the end of the block."""

    def __init__(self, path: str) -> None:
        self._ledger = Ledger(path)
        self._held = ExitStack()
        self._turns: dict[int, Turn] = {}
        self._written = Counter[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self._ledger.close()

    def count(self, place: int, records: int) -> int | None:
        """So many more are about to be sent to a place; if they are the first, how many others have sent there.

        Raises PoisonedError where they still do, and as `Ledger.turn`.
        """
        self._written[place] += records
        if place in self._turns:
            return None
        mine = self._held.enter_context(self._ledger.turn(place))
        if mine is None:
            raise PoisonedError("another attempt at the batch still writes: the driver runs it again")
        self._turns[place] = mine
        mine.begin()
        return mine.records

    def settle(self) -> None:
        """All that was counted is acknowledged."""
        for place, mine in self._turns.items():
            mine.settle(self._written[place])


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


def close_places(path: str, places: Sequence[TopicPartition], written: Sequence[Written]) -> None:
    """Close every place to who is late.

    Raises PoisonedError where somebody wrote, or still writes, of whom nothing is reported.  `places`: those of the
    ledger; `written`: what attempts report whose results were taken.
    """
    reported = _reported(written)
    with Ledger(path) as ledger:
        for number, at in enumerate(places):
            with ledger.turn(number) as mine:
                if mine is None:
                    raise PoisonedError(f"{at.topic}-{at.partition} is still written by another attempt at the batch")
                if mine.records != reported.get(at, 0):
                    raise PoisonedError(
                        f"{mine.records} records of this batch are in {at.topic}-{at.partition}, and tasks report "
                        f"{reported.get(at, 0)}: another attempt wrote there too"
                    )
                mine.close()


def _reported(written: Sequence[Written]) -> Mapping[TopicPartition, int]:
    found = Counter[TopicPartition]()
    for each in written:
        if each.topic is not None and each.partition is not None:
            found[TopicPartition(each.topic, each.partition)] += each.records
    return found
