"""The checkpoint of a query: where its micro-batches end, whether it has state, and what an interrupted start left."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.spark.positions import FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART_BYTES: Final = 64 * 1024
_BEGUN: Final = re.compile(r"\.0\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
"""What Spark calls a file with the offsets of batch 0 while it writes it."""


def make_state(rows: DataFrame) -> None:
    """Run the plan of a micro-batch and drop its rows, so that its state is written: Spark goes on from that."""
    rows.write.format("noop").mode("overwrite").save()


class Checkpoint:
    """The checkpoint of a query at `location`, on any file system of Hadoop's."""

    def __init__(self, location: str) -> None:
        self._location = location

    def query_id(self, spark: SparkSession) -> str:
        if not self._has(spark, "metadata"):
            raise ValueError(
                f"checkpoint_location={self._location!r} is no checkpoint of a query: give foreach_batch the "
                "checkpointLocation of the query that it is for"
            )
        query_id: str = json.loads(self._text(spark, "metadata").splitlines()[0])["id"]
        return query_id

    def offsets(self, spark: SparkSession, batch_id: int) -> list[Any]:
        """The end offsets of every source in this batch; empty if Spark has none of it, as before the first one.

        Raises ValueError if they cannot be read.
        """
        if not self._has(spark, f"offsets/{batch_id}"):
            return []
        try:
            ends = ends_of(self._text(spark, f"offsets/{batch_id}"))
        except ValueError as error:
            raise ValueError(f"{self._location}/offsets/{batch_id} cannot be read: {error}") from error
        return ends

    def with_files(self, spark: SparkSession, ends: Sequence[Any]) -> list[Any]:
        """`ends`; an offset of Spark's source of files gets a digest of the files that are in the batch of that number.

        Planned again such a batch may have other files.
        """
        return [self._with_files(spark, source, end) for source, end in enumerate(ends)]

    def _with_files(self, spark: SparkSession, source: int, end: Any) -> Any:
        if not isinstance(end, dict) or end.keys() != {"logOffset"}:
            return end
        number = end["logOffset"]
        for name in (f"sources/{source}/{number}", f"sources/{source}/{number}.compact"):
            if self._has(spark, name):
                with self._opened(spark, name) as file:
                    files = sorted(entries_of(number, file))
                return {**end, FILES: hashlib.sha256("\n".join(files).encode()).hexdigest()[:32]}
        return end

    def clear_interrupted_start(self, spark: SparkSession) -> None:
        """Remove what Spark began to write of the first offsets of a query, where it ended in the midst of that.

        Spark starts no query on a checkpoint that has anything before its first batch, even such a file.
        """
        found = self._names(spark, "offsets")
        others = self._names(spark, "commits") or self._names(spark, "state")
        if others or not all(_BEGUN.fullmatch(name) for name in found):
            return
        for name in found:
            self._remove(spark, f"offsets/{name}")

    def has_state(self, spark: SparkSession) -> bool:
        """Whether the query keeps state from one batch to the next."""
        return self._has(spark, "state")

    def _has(self, spark: SparkSession, name: str) -> bool:
        files, path = self._place(spark, name)
        there: bool = files.exists(path)
        return there

    def _names(self, spark: SparkSession, folder: str) -> list[str]:
        """What is in a folder of the checkpoint; nothing, if there is none."""
        files, path = self._place(spark, folder)
        return [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []

    def _remove(self, spark: SparkSession, name: str) -> None:
        files, path = self._place(spark, name)
        files.delete(path, False)

    def _place(self, spark: SparkSession, name: str) -> tuple[Any, Any]:
        """Hadoop's file system of the checkpoint, and the path of a file in it."""
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self._location}/{name}")
        return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path

    def _text(self, spark: SparkSession, name: str) -> str:
        jvm: Any = spark.sparkContext._jvm
        files, path = self._place(spark, name)
        stream = files.open(path)
        try:
            text: str = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    @contextmanager
    def _opened(self, spark: SparkSession, name: str) -> Iterator[File]:
        jvm: Any = spark.sparkContext._jvm
        files, path = self._place(spark, name)
        stream = files.open(path)

        def read(position: int, count: int) -> bytes:
            stream.seek(position)
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream, count))

        try:
            yield File(files.getFileStatus(path).getLen(), read)
        finally:
            stream.close()


class File(NamedTuple):
    """A file that is read in parts."""

    size: int
    """Its size in bytes."""
    read: Callable[[int, int], bytes]
    """A function of a position and a number of bytes, which the file must have there: these bytes."""


def entries_of(number: int, file: File) -> list[str]:
    """The lines about the files of batch `number`, from the log file that Spark's source of files wrote for it.

    A version, then a line for each file.  Every tenth log file has those of all batches before it too, before its own:
    so it is read from its end, and no further than to the first of another batch.
    """
    found: list[str] = []
    position, rest = file.size, b""
    while position:
        position, end = max(position - _PART_BYTES, 0), position
        rest, *lines = (file.read(position, end - position) + rest).split(b"\n")
        for line in reversed(lines):
            if line and json.loads(line)["batchId"] != number:
                return found
            if line:
                found.append(line.decode())
    return found


def ends_of(text: str) -> list[Any]:
    """The end offsets of every source, from the text of Spark's file of a batch; None where one gave nothing new.

    A version, a line about the batch, then a line for each source; from version 2 on with its name or number before,
    in any order.  Raises ValueError if it is none of these.
    """
    version, _, *lines = [line.strip() for line in text.splitlines()] or ["", ""]
    ends = [line for line in lines if line]
    if version == "v2":
        named = dict(line.split(":", 1) for line in ends)
        ends = [named[name] for name in sorted(named, key=_place)]
    elif version != "v1":
        raise ValueError(f"its format is {version!r}, and those that are known are v1 and v2")
    return [None if end == "-" else json.loads(end) for end in ends]


def _place(name: str) -> tuple[bool, int, str]:
    """A key of sorting: numbered sources in the order of their numbers, before those that have names."""
    return (True, 0, name) if not name.isdecimal() else (False, int(name), name)
