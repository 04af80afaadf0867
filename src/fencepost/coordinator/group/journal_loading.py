"""Reading a partition of `__consumer_offsets`, a little at a time."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.shards import GroupCoordinatorShard, check, outcome_of
from fencepost.coordinator.loading import JournalUnreadable, taken_from
from fencepost.log.damage import FileDamaged
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.codec import stored_version
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_keys import UnreadRecord, keys_of
from fencepost.protocol.types import CONSUMER_OFFSETS, FIRST_OFFSET, NO_PRODUCER, Buffer, Offset, ProducerId


class _Newest:
    """The last record of each key of a journal that is being read, none of them decoded.

    Keys are compared without their version: that of offsets says nothing but which software wrote them.
    """

    def __init__(self) -> None:
        self._groups: dict[bytes, UnreadRecord] = {}
        """Group -> the record that stored it last, or else the first offset written for it."""
        self._offsets: dict[bytes, UnreadRecord] = {}
        self._pending: dict[ProducerId, dict[bytes, UnreadRecord]] = {}
        """producer id -> offsets that wait for the end of its transaction"""
        self._open: dict[bytes, dict[ProducerId, None]] = {}
        """Key of an offset -> producer ids of which one waits."""

    def note(self, header: BatchHeader, batch: Buffer) -> None:
        """Take in a batch.  Raises ProtocolError."""
        if header.is_control:
            committed = outcome_of(header, batch)
            if committed is not None:
                self._complete(header.producer_id, committed)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER.producer_id
        check(header, batch)
        for record in keys_of(batch, header):
            kind = -1 if record.key is None else stored_version(record.key)
            if kind in journal.OFFSET_KEY_VERSIONS:
                self._note_offset(record, producer_id)
            elif kind == journal.GROUP_KEY_VERSION:
                assert record.key is not None
                if record.is_tombstone:
                    self._groups.pop(record.key[2:], None)
                else:
                    self._groups[record.key[2:]] = record

    def _note_offset(self, record: UnreadRecord, producer_id: ProducerId) -> None:
        assert record.key is not None
        key = record.key[2:]
        if record.is_tombstone:
            self._offsets.pop(key, None)
            for waiting in self._open.pop(key, ()):
                del self._pending[waiting][key]
            return
        # The name, with its length before it, is the whole key of the group's own record.
        group = key[: 2 + int.from_bytes(key[:2], "big")]
        if group not in self._groups:
            self._groups[group] = record
        if producer_id < 0:
            self._offsets.pop(key, None)
            self._offsets[key] = record
        else:
            self._pending.setdefault(producer_id, {})[key] = record
            self._open.setdefault(key, {})[producer_id] = None

    def _complete(self, producer_id: ProducerId, committed: bool) -> None:
        for key, record in self._pending.pop(producer_id, {}).items():
            waiting = self._open[key]
            del waiting[producer_id]
            if not waiting:
                del self._open[key]
            known = self._offsets.get(key)
            if committed and (known is None or record.offset > known.offset):
                self._offsets.pop(key, None)
                self._offsets[key] = record

    def records(self) -> Iterator[tuple[UnreadRecord, ProducerId | None]]:
        """The records that are left, those of groups first (None), then those of offsets with their producer ids.

        It is forgotten with that.
        """
        yield from ((record, None) for record in taken_from(self._groups))
        yield from ((record, NO_PRODUCER.producer_id) for record in taken_from(self._offsets))
        self._open.clear()
        for producer_id, pending in self._pending.items():
            yield from ((record, producer_id) for record in taken_from(pending))


class Loading:
    """Reads a shard, a few batches at a time.

    Of each key only the last record is decoded: of a long journal that is a small part.

    Markers are written to it meanwhile, by transactions that end; nothing else is.  So it is done when there is nothing
    behind what was read last, and must be published in the same step.
    """

    def __init__(self, shard: GroupCoordinatorShard) -> None:
        self.shard = shard
        self.deleted: dict[str, None] = {}
        """Topics that were deleted meanwhile."""
        self.goes_on = True
        """Whether it is neither done nor given up as unreadable."""
        self._next = FIRST_OFFSET
        self._batches = shard.log.scan(FIRST_OFFSET)
        self._newest = _Newest()
        self._left: Iterator[tuple[UnreadRecord, ProducerId | None]] | None = None
        """The records still to be decoded, from the time on when all was read once."""

    def step(self, batches: int) -> bool:
        """Read up to so many batches; true when all are read.  Raises JournalUnreadable."""
        self.goes_on = False
        if self._read(batches):
            return True
        self.goes_on = True
        return False

    def _read(self, batches: int) -> bool:
        for _ in range(batches):
            left = None if self._left is None else next(self._left, None)
            if left is not None:
                self._decode(*left)
                continue
            found = self._batch()
            if found is None:
                if self._left is not None:
                    return True
                self._left = self._newest.records()
                continue
            header, batch = found
            try:
                if self._left is None:
                    self._newest.note(header, batch)
                else:
                    self.shard.read(header, batch)
            except ProtocolError as error:
                raise JournalUnreadable(CONSUMER_OFFSETS, self.shard.index, header.base_offset, str(error)) from error
        return False

    def _batch(self) -> tuple[BatchHeader, Buffer] | None:
        """The next batch of the journal; None if there is none now.  Raises JournalUnreadable."""
        try:
            found = next(self._batches, None)
            if found is None:
                self._batches = self.shard.log.scan(self._next)
                found = next(self._batches, None)
        except FileDamaged as damaged:
            raise JournalUnreadable(CONSUMER_OFFSETS, self.shard.index, self._next, str(damaged)) from damaged
        if found is not None:
            self._next = Offset(found[0].last_offset + 1)
        return found

    def _decode(self, record: UnreadRecord, producer_id: ProducerId | None) -> None:
        try:
            if producer_id is None:
                self.shard.take_group(record.read())
            else:
                self.shard.take_offset(record.read(), producer_id)
        except ProtocolError as error:
            raise JournalUnreadable(CONSUMER_OFFSETS, self.shard.index, record.offset, str(error)) from error
