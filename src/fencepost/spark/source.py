"""The `fencepost` format of Spark: reads topics, in batch and streaming queries, read_committed by default.

Options and columns are those of Spark's own `kafka` format.  A checkpoint of that is understood; what this one writes
has more in it (`positions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Clock, SystemClock
from fencepost.spark.admission import between, is_too_little, limited, split
from fencepost.spark.asker import Asker
from fencepost.spark.losses import (
    behind,
    epochs_of,
    gone,
    in_doubt,
    leader_epoch_went_back,
    log_was_truncated,
    made_anew,
    offset_is_not_there,
    refusal,
    refusal_of_late,
    remaining,
    topic_was_deleted,
    truncated,
)
from fencepost.spark.options import BadOption, Bound, SourceOptions, check_order, parse
from fencepost.spark.positions import Positions
from fencepost.spark.worker import set_aside_what_is_loaded

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
WRITES: Final = (
    'format("fencepost") only reads. To write, use fencepost.spark.write(df, ...) or, for a stream, '
    "fencepost.spark.write_stream(df, ...): Spark tells a writer neither where the sources of a "
    "micro-batch stand nor its number before its tasks run, without which a batch that was committed cannot be known"
)
AUDIT_COLUMNS: Final = (
    "producerId long, producerEpoch int, sequence int, isTransactional boolean, controlType string, outcome string, "
    "endOffset long"
)
_HEADERS: Final = ", headers array<struct<key: string, value: binary>>"
_NAMES: Final = (*(column.split()[0] for column in COLUMNS.split(", ")), "headers")
_AUDIT_NAMES: Final = tuple(column.split()[0] for column in AUDIT_COLUMNS.split(", "))


class Range(InputPartition):
    """A range of one partition, [start, end), that one task reads."""

    def __init__(self, at: TopicPartition, start: int, end: int, topic_id: str | None = None) -> None:
        self.at = at
        self.start = start
        self.end = end
        self.topic_id = topic_id
        """The id of the topic; None: not known."""


class FencepostDataSource(DataSource):
    """The data source `format("fencepost")` for batch and streaming reads; made by Spark, not by hand.

    Its options: docs/reference/spark_options.md.  Raises ValueError for one that is not known or makes no sense.
    """

    @classmethod
    def name(cls) -> str:
        return "fencepost"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        audit = str(self.options.get("schema", "kafka")).lower() == "audit"
        return COLUMNS + (_HEADERS if headers else "") + (f", {AUDIT_COLUMNS}" if audit else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options, streaming=False)
        _check_columns(schema, options)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = parse(self.options, streaming=True)
            _check_columns(schema, options)
            return StreamReader(options, schema)
        except BadOption as reason:
            return RefusedReader(reason)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002
        raise ValueError(WRITES)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return self.writer(schema, overwrite)


def _check_columns(schema: StructType, options: SourceOptions) -> None:
    """Raises BadOption for an unknown column: a user may give any schema, and Spark asks for its columns."""
    there = (*_NAMES, *(_AUDIT_NAMES if options.audit else ()))
    for name in schema.fieldNames():
        if name not in there:
            raise BadOption(f"there is no column {name}: there are {', '.join(there)}")


def _read(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    from fencepost.spark.audit import audit_range
    from fencepost.spark.reading import read_range

    set_aside_what_is_loaded()
    if not isinstance(partition, Range):
        return iter(())  # Spark makes up a partition where there is none to read
    where = (options.bootstrap_servers, options.security, partition.at, partition.start, partition.end)
    rest = (schema.fieldNames(), options.fail_on_data_loss, partition.topic_id, options.patience_ms)
    return audit_range(*where, *rest) if options.audit else read_range(*where, options.isolation, *rest)


class BatchReader(DataSourceReader):
    """The reader of a batch query: the records from the starting to the ending offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        asker = Asker(self._options)
        try:
            bounds = (self._options.start, self._options.end)
            found = asker.positions_of(bounds)
            start, end = (_there(asker, *each, self._options) for each in zip(bounds, found, strict=True))
        finally:
            asker.close()
        if self._options.fail_on_data_loss:
            check_order(*bounds, start.offsets, end.offsets)
        return _ranges(start, end, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)


def _there(asker: Asker, bound: Bound, found: Positions, options: SourceOptions) -> Positions:
    """`found`, the positions of a bound of a batch, no further than the ends of the logs.

    Raises BrokerError if offsets that were given are not there: nobody is to wait for what may never come.
    """
    if not bound.by_partition or not behind(found, asker.positions(Bound(LATEST))):
        return found
    short = behind(found, asker.ends_behind(found))
    for at, end in short.items():
        if options.fail_on_data_loss:
            raise offset_is_not_there(bound.option, at, found.offsets[at], end)
    return found._replace(offsets={**found.offsets, **short})


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader in place of one whose options are refused: every call raises the BadOption.

    Where none is made at all, Spark's own process for readers (4.3) fails in turn, and the error of that comes last.
    """

    def __init__(self, reason: BadOption) -> None:
        self._reason = reason

    def _refuse(self, *_: Any) -> NoReturn:
        raise self._reason

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = reportLatestOffset = _refuse

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        self._refuse()

    def stop(self) -> None:
        """Does nothing: this reader has neither threads nor connections."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query: plans micro-batches, each from the end of the last one."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Clock | None = None) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._asker_: Asker | None = None
        self._cap: Positions | None = None
        self._initial: Positions | None = None
        """The position where the query begins, if it has no micro-batch yet; else None."""
        self._reported: Positions | None = None
        self._planned: dict[str, Any] | None = None
        """The end of the micro-batch that was planned last."""
        self._triggered: int | None = None
        """When the last micro-batch was planned, in milliseconds of the clock; None before the first one."""
        self._is_released = options.application_id is None
        self._unknown: dict[TopicPartition, tuple[int, int]] = {}
        """Partition -> (the position's leader epoch, the leader's), if the leader did not know the first."""
        self._missed: list[str] = []
        """The topics that are gone, after they were waited for."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_asker_": None}

    @property
    def _asker(self) -> Asker:
        if self._asker_ is None:
            self._asker_ = Asker(self._options)
        return self._asker_

    def initialOffset(self) -> dict[str, Any]:
        bound = self._options.start
        first = self._asker.positions(bound)
        if bound.resumed is not None:
            first = self._resumed(first, bound.resumed)
        if self._options.application_id is not None and bound.resumed is None:
            first = self._asker.pinned(first)
        self._initial = first
        return first.encode()

    def _resumed(self, first: Positions, ended: Positions) -> Positions:
        """The position where a query begins that goes on from a committed micro-batch: its end, with new partitions.

        What is lost is found when the first micro-batch is planned, if it is accepted.
        """
        ends = self._ends(ended)
        self._refuse_losses(ended, ends)
        if self._options.fail_on_data_loss:
            self._parted(ended, ends)
        self._refuse_late(ended, first)
        return ended._replace(
            offsets={**first.offsets, **ended.offsets}, topic_ids={**first.topic_ids, **ended.topic_ids}
        )

    def _refuse_losses(self, known: Positions, ends: Positions) -> None:
        lost = refusal(known, ends, self._options.pattern) if self._options.fail_on_data_loss else None
        if lost is not None:
            raise lost

    def _refuse_late(self, known: Positions, first: Positions) -> None:
        lost = refusal_of_late(known, first) if self._options.fail_on_data_loss else None
        if lost is not None:
            raise lost

    def getDefaultReadLimit(self) -> ReadLimit:
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)  # Spark has no limit of both kinds: the lower one is known here
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        self._cap = self._asker.positions(Bound(LATEST))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = Positions.decode(start)
        if before != self._initial:
            self._release(before)
        ends = self._ends(before)
        self._refuse_losses(before, ends)
        self._report(before)
        ends = ends._replace(offsets={**ends.offsets, **self._parted(before, ends)})
        known = remaining(before, ends)
        firsts = self._firsts(known, ends.offsets)
        # What was deleted since it was looked up had not been read; and a log may have lost its records since.
        end = {
            at: max(offset, firsts.get(at, offset))
            for at, offset in ends.offsets.items()
            if at in known.offsets or at in firsts
        }
        begin = {**known.offsets, **firsts}
        if not isinstance(limit, ReadAllAvailable) and self._waits(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        after = Positions({**known.offsets, **end}, ends.cluster_id, known.topic_ids)
        if after == before.alone._replace(epochs={}):
            return start
        began = self._initial if before == self._initial else None
        epochs = epochs_of(after, before, ends)
        self._planned = after._replace(began=began, firsts=firsts, epochs=epochs).encode()
        return self._planned

    def _parted(self, known: Positions, ends: Positions) -> dict[TopicPartition, int]:
        """By partition, the offset before the position at which its log was truncated, and written on (KIP-320).

        Raises BrokerError for one, and for a log that was put back, if that is an error.  A leader that does not know
        is waited for, and so asked once: the position keeps its epoch until there is something to read.
        """
        pairs = {at: (epoch, ends.epochs[at]) for at, epoch in in_doubt(known, ends).items()}
        epochs = {at: pair[0] for at, pair in pairs.items() if self._unknown.get(at) != pair}
        told = self._asker.parted(epochs) if epochs else {}
        self._unknown |= {at: pairs[at] for at in epochs.keys() - told.keys()}
        parted = truncated(known, told)
        if self._options.fail_on_data_loss:
            for at, end in parted.items():
                raise log_was_truncated(at, known.offsets[at], end)
            for at in epochs.keys() - told.keys():
                raise leader_epoch_went_back(at, epochs[at])
        return parted

    def _waits(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
        """Whether a micro-batch waits as less than minOffsetsPerTrigger is there; with `availableNow` it never does."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._cap is not None:
            return False
        now = self._clock.now()
        waited = None if self._triggered is None else now - self._triggered
        if is_too_little(start, end, least, waited, self._options.max_trigger_delay_ms):
            return True
        if between(start, end):  # else there is no micro-batch
            self._triggered = now
        return False

    def _report(self, done: Positions) -> None:
        """Commit a position for the group of the option kafka.group.id, once: all batches before it are done."""
        if self._options.group_id is not None and done not in (self._initial, self._reported):
            self._asker.report(done)
            self._reported = done

    def _ends(self, known: Positions) -> Positions:
        """The ends up to which records may be read, not before the position unless the log itself ends there.

        One that has just started may know less of a transaction's end than the one before.
        """
        ends = self._asker.positions(Bound(LATEST)) if self._cap is None else self._cap
        short, missing = behind(known, ends), gone(known, ends, self._options.pattern)
        self._missed = [name for name in self._missed if name in missing]
        if not short and self._missed == missing:
            return ends
        logs = self._asker.ends_behind(known)
        self._missed = gone(known, logs, self._options.pattern)
        late = {at: end for at, end in logs.offsets.items() if at in known.offsets and at not in ends.offsets}
        kept = {at: min(known.offsets[at], logs.offsets.get(at, end)) for at, end in (short | late).items()}
        epochs = {at: epoch for at, epoch in ends.epochs.items() if at not in kept}
        epochs |= {at: epoch for at, epoch in logs.epochs.items() if at in kept}
        return logs._replace(offsets={**ends.offsets, **kept}, epochs=epochs)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._asker.positions(Bound(LATEST))._replace(epochs={}).encode()

    def _firsts(self, known: Positions, end: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """First offsets of partitions that came later.  Raises RecordsLostError if one of a known topic is not 0."""
        fresh = [at for at in end if at not in known.offsets]
        if not fresh:
            return {}
        first = self._asker.positions(Bound(EARLIEST))
        first = first._replace(offsets={at: first.offsets[at] for at in fresh if at in first.offsets})
        self._refuse_late(known, first)
        return dict(first.offsets)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        stop = Positions.decode(end)
        # Where the first micro-batch begins is written down with its end only.
        begin = stop.began or Positions.decode(start)
        self._release(begin)
        if end != self._planned and stop.epochs and self._options.fail_on_data_loss:
            # It was planned before this process was there.
            ends = self._asker.positions(Bound(LATEST))
            for planned in (begin, stop):
                self._parted(planned, ends)
        anew = made_anew(begin, stop)
        offsets = {at: offset for at, offset in begin.offsets.items() if at.topic not in anew}
        offsets |= {at: offset for at, offset in stop.firsts.items() if at not in offsets}
        # A version before this one did not write down where a partition begins.
        offsets |= self._firsts(begin._replace(offsets=offsets), stop.offsets)
        gone_by_now = sorted(at for at in stop.offsets if at not in offsets)
        if gone_by_now and self._options.fail_on_data_loss:
            raise topic_was_deleted(gone_by_now[0].topic)
        stop = stop._replace(offsets={at: offset for at, offset in stop.offsets.items() if at in offsets})
        return _ranges(begin._replace(offsets=offsets), stop, self._options)

    def _release(self, begun: Positions) -> None:
        if not self._is_released:
            self._asker.release(sorted(begun.offsets))
            self._is_released = True

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: positions are kept by Spark, in the checkpoint."""

    def stop(self) -> None:
        if self._asker_ is not None:
            self._asker_.close()
            self._asker_ = None


def _ranges(start: Positions, end: Positions, options: SourceOptions) -> list[InputPartition]:
    parts = split(start.offsets, end.offsets, options.min_partitions, options.max_records_per_partition)
    return [Range(*found, end.topic_ids.get(found[0].topic)) for found in parts]
