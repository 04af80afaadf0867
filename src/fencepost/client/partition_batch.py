"""Records of one partition that were fetched together: as records, or as Arrow columns without an object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.client.errors import MisuseError, damage_named
from fencepost.client.records import ConsumerRecord, Opened
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
_END: Final = (1 << 63) - 1
"""An offset beyond all that a log can have."""


class PartitionBatch:
    """Records of one partition, in order.  They stay as they were fetched until somebody asks for them.

    In commit order they were looked into before.  Where a log is compacted a batch may turn out to have no records.
    """

    def __init__(
        self,
        at: TopicPartition,
        position: int,
        next_offset: int | OffsetAndMetadata,
        fetched: Opened | Sequence[ConsumerRecord],
    ) -> None:
        """`fetched`: where records from `position` on are, or the records."""
        self.at = at
        self.next_offset = next_offset
        """The position after this batch, to `commit` once it is done with: `{batch.at: batch.next_offset}`."""
        self._position = position
        self._opened = fetched if isinstance(fetched, Opened) else None
        self._records = None if isinstance(fetched, Opened) else fetched

    def __repr__(self) -> str:
        return f"<PartitionBatch of {self.at.topic}-{self.at.partition} up to {self.next_offset}>"

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records())

    def records(self) -> Sequence[ConsumerRecord]:
        """All records of the batch, as `poll` gives them.  Raises DamagedRecordsError."""
        if self._records is None:
            assert self._opened is not None, "a batch has records, or is where they are"
            with damage_named(self.at, self._position):
                self._records = self._opened.records(self.at, self._position)
        return self._records

    def to_arrow(self, *columns: str) -> pa.Table:
        """The records as a table, a row for each.  Raises DamagedRecordsError, MisuseError.

        Without `columns`: key, value (binary), offset (int64), timestamp (microseconds, UTC) and headers (a list of
        key and value, null where there are none).  There are topic, partition and timestampType (0: of the producer,
        1: of the log; null in commit order) too.  Python makes objects only of records with headers, and in commit
        order.  Needs pyarrow and numpy.
        """
        try:
            import pyarrow as pa

            from fencepost.protocol.record_columns import FIELDS, decoded_batch, record_batches
        except ImportError as missing:
            raise MisuseError(
                f"to_arrow() needs pyarrow and numpy ({missing}): install fencepost[arrow], or take records()"
            ) from missing
        wanted = list(columns or _COLUMNS)
        unknown = [name for name in wanted if name not in FIELDS]
        if unknown:
            raise MisuseError(f"to_arrow(): there is no column {unknown[0]!r}; there are {', '.join(FIELDS)}")
        if self._opened is not None:
            data, batches = memoryview(self._opened.data), list(self._opened.batches)
            with damage_named(self.at, self._position):
                found = list(record_batches(data, batches, self.at, self._position, _END, wanted))
        else:
            found = [decoded_batch([record[2:] for record in self.records()], self.at, wanted)]
        return pa.Table.from_batches(found, pa.schema([pa.field(name, FIELDS[name]) for name in wanted]))
