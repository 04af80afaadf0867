"""The `fencepost` format of Spark: reads topics, in batch and streaming queries, read_committed by default.

Options and columns are those of Spark's own `kafka` format; so are the offsets in the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal
from fencepost.protocol.types import TopicPartition
from fencepost.spark.admission import limited, split
from fencepost.spark.offsets import partitions_of, pinned, resolve
from fencepost.spark.options import EARLIEST, Bound, SourceOptions, offsets_text, parse, parse_offsets

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
_HEADERS: Final = ", headers array<struct<key: string, value: binary>>"


class Range(InputPartition):
    """What one task reads."""

    def __init__(self, at: TopicPartition, start: int, end: int) -> None:
        self.at = at
        self.start = start
        self.end = end


class FencepostDataSource(DataSource):
    """The data source `format("fencepost")` for batch and streaming reads; made by Spark, not by hand.

    Its options: docs/reference/spark_options.md.  Raises ValueError for one that is not known or makes no sense.
    """

    @classmethod
    def name(cls) -> str:
        return "fencepost"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return COLUMNS + (_HEADERS if headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002
        raise ValueError(
            'format("fencepost") only reads. To write, use fencepost.spark.write(df, ...) or, for a stream, '
            "fencepost.spark.write_stream(df, ...): they put every topic-partition into one task, which Spark's "
            "writer interface cannot ask for"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return self.writer(schema, overwrite)


def _read(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    from fencepost.spark.reading import read_range

    if not isinstance(partition, Range):
        return iter(())  # Spark makes up a partition where there is none to read
    return read_range(
        options.bootstrap_servers,
        partition.at,
        partition.start,
        partition.end,
        options.isolation,
        schema.fieldNames(),
        options.fail_on_data_loss,
    )


class _Asker:
    """Blocking questions to the cluster."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._portal = Portal("fencepost-spark-source")
        self._cluster = Cluster(options.bootstrap_servers, client_id="fencepost-spark-source")

    def offsets(self, bound: Bound) -> dict[TopicPartition, int]:
        return self._portal.call(self._offsets(bound))

    async def _offsets(self, bound: Bound) -> dict[TopicPartition, int]:
        partitions = await partitions_of(self._cluster, self._options)
        return await resolve(self._cluster, partitions, bound, self._options)

    def pinned(self, first: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert self._options.application_id is not None
        return self._portal.call(pinned(self._cluster, self._options.application_id, first))

    def close(self) -> None:
        self._portal.call(self._cluster.close())
        self._portal.close()


class BatchReader(DataSourceReader):
    """Reads what lies between the starting and the ending offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        asker = _Asker(self._options)
        try:
            start, end = asker.offsets(self._options.start), asker.offsets(self._options.end)
        finally:
            asker.close()
        return [Range(*found) for found in split(start, end, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from where the last micro-batch ended."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._asker_: _Asker | None = None
        self._cap: dict[TopicPartition, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_asker_": None}

    @property
    def _asker(self) -> _Asker:
        if self._asker_ is None:
            self._asker_ = _Asker(self._options)
        return self._asker_

    def initialOffset(self) -> dict[str, Any]:
        first = self._asker.offsets(self._options.start)
        if self._options.application_id is not None:
            first = self._asker.pinned(first)
        return _as_offsets(first)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._cap = self._asker.offsets(Bound(-1))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = dict(self._cap) if self._cap is not None else self._asker.offsets(Bound(-1))
        known = _understood(start)
        # What a partition had cannot become less, whatever a node says that has just started.
        end = {at: max(offset, known.get(at, offset)) for at, offset in end.items()}
        if isinstance(limit, ReadMaxRows):
            fresh = [at for at in end if at not in known]
            begin = known | (self._first(fresh) if fresh else {})
            end = limited(begin, end, limit.max_rows)
        return _as_offsets({**known, **end})

    def reportLatestOffset(self) -> dict[str, Any]:
        return _as_offsets(self._asker.offsets(Bound(-1)))

    def _first(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """A partition that came later is read from its start."""
        found = self._asker.offsets(Bound(EARLIEST))
        return {at: found[at] for at in partitions if at in found}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, stop = _understood(start), _understood(end)
        fresh = [at for at in stop if at not in begin]
        if fresh:
            begin |= self._first(fresh)
        return [Range(*found) for found in split(begin, stop, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: positions are the checkpoint's, and the sink's transaction carries them to the group."""

    def stop(self) -> None:
        if self._asker_ is not None:
            self._asker_.close()
            self._asker_ = None


def _as_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(offsets_text(offsets))
    return fields


def _understood(offsets: Mapping[str, Any] | None) -> dict[TopicPartition, int]:
    return {} if not offsets else parse_offsets("offset", json.dumps(offsets))
