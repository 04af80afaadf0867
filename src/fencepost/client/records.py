"""Records as a consumer gets them, out of fetched batches (facts §8.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.client.read_epoch import ReadEpoch
from fencepost.protocol.batch import CONTROL, BatchHeader, body_of, crc_matches, headers
from fencepost.protocol.control import read_control_record
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_as
from fencepost.protocol.types import Buffer, Offset, TopicPartition


class ConsumerRecord(NamedTuple):
    """One record.  `timestamp` is in milliseconds since 1970; a key or value of None is Kafka's null."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def visible_batches(data: Buffer, aborted: Sequence[tuple[int, int]] | None) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Position and header of every whole batch, and whether a reader may see it.

    `aborted`: (producer id, first offset) of the aborted transactions among them; None for read_uncommitted, which
    sees all but control records.  Raises ProtocolError for a batch that is damaged.
    """
    waiting = sorted(aborted or (), key=lambda entry: entry[1])
    ended: dict[int, None] = {}
    """Producers whose transaction at this point was aborted."""
    for at, header in headers(data):
        if not crc_matches(data, at, header):
            raise ProtocolError(f"the batch at offset {header.base_offset} is damaged: its checksum does not match")
        while waiting and waiting[0][1] <= header.last_offset:
            ended[waiting.pop(0)[0]] = None
        is_hidden = header.producer_id in ended  # of nobody for read_uncommitted
        if header.attributes & CONTROL:
            marker = read_control_record(data, at, header) if is_hidden else None
            if marker is not None and marker.ends_transaction:
                del ended[header.producer_id]
            yield at, header, False
        else:
            yield at, header, not (is_hidden and header.is_transactional)


class Opened(NamedTuple):
    """Fetched `data` of a partition; `batches`: place (bytes from its start) and header of those a reader may see."""

    data: Buffer
    batches: Sequence[tuple[int, BatchHeader]]

    def records(self, at: TopicPartition, position: int) -> list[ConsumerRecord]:
        """The records from `position` on.  Raises ProtocolError if one is damaged."""
        found: list[ConsumerRecord] = []
        for records in self._decoded(at, position):
            found += records
        return found

    def whole_records(self, at: TopicPartition, position: int) -> tuple[list[ConsumerRecord], int | None]:
        """The records from `position` on, and the offset of the first batch that is damaged; None: none is.

        Raises ProtocolError if there is no record before that.
        """
        found: list[ConsumerRecord] = []
        seen = 0
        try:
            for records in self._decoded(at, position):
                found += records
                seen += 1
        except ProtocolError:
            if not found:
                raise
            return found, self.batches[seen][1].base_offset
        return found, None

    def before(self, offset: int) -> Opened:
        """This without the batches from `offset` on."""
        return Opened(self.data, [each for each in self.batches if each[1].base_offset < offset])

    def _decoded(self, at: TopicPartition, position: int) -> Iterator[Sequence[ConsumerRecord]]:
        topic, partition = at
        for place, header in self.batches:
            body = body_of(self.data, place, header)
            yield decode_as(ConsumerRecord, topic, partition, body, header, position)


def opened(
    data: Buffer, aborted: Sequence[tuple[int, int]] | None, position: int, epoch: ReadEpoch | None = None
) -> tuple[Opened, int]:
    """The batches that a reader at `position` may see, and the position after all of them, the hidden ones included.

    They end before the first damaged one.  `epoch` notes the leader epoch of each.  Raises ProtocolError if that one
    is the first from `position` on.
    """
    seen: list[tuple[int, BatchHeader]] = []
    end = position
    try:
        for at, header, visible in visible_batches(data, aborted):
            last_offset = header.last_offset
            if visible and last_offset >= position and header.record_count:
                seen.append((at, header))
            end = max(end, last_offset + 1)
            if epoch is not None:
                epoch.read(header.partition_leader_epoch, header.base_offset)
    except ProtocolError:
        if end == position:
            raise
    return Opened(data, seen), end
