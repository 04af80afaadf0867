"""A partition's way back: which segments count, and the producer state and indexes behind the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fencepost.log.cleaner import swapping
from fencepost.log.damage import FileDamaged
from fencepost.log.epoch_recovery import recover_epochs
from fencepost.log.file_names import numbered
from fencepost.log.offline import PartitionDamaged
from fencepost.log.partition import Partition
from fencepost.log.producer_snapshot import read_snapshot, remove_snapshot, snapshot_offsets
from fencepost.log.producers import Ending, Producers
from fencepost.log.removal import remove_marked
from fencepost.log.replay import KnownFile, Replay
from fencepost.log.segment import SUFFIXES, Segment
from fencepost.log.segment_sums import noted_sizes
from fencepost.log.torn_tail import DO_WITHOUT, check_none_is_missing, check_tail
from fencepost.node_log import get_logger
from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, crc_matches
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import FIRST_OFFSET, NO_OFFSET, Milliseconds, Offset

logger = get_logger(__name__)


def recover(partition: Partition, replay: Replay, number: Callable[[], int], now: Milliseconds) -> None:
    """Open a partition that may be there from an earlier run.  Raises PartitionDamaged, OSError."""
    wrong = replay.lost.get((partition.directory.name, partition.topic_id.bytes))
    if wrong:
        raise PartitionDamaged(wrong)
    try:
        _recover(partition, replay, number, now)
    except FileDamaged as damaged:
        raise PartitionDamaged(str(damaged)) from damaged


def _recover(partition: Partition, replay: Replay, number: Callable[[], int], now: Milliseconds) -> None:
    """Open the segments that are on disk and bring everything about them up to their end.

    Where the commit log has not every append (--flush=os), is new or damaged, the files themselves are read, with
    checksums, from the last checkpoint on, and cut where they are torn.  Otherwise the replay has cut them already, and
    what it does not know is removed.
    """
    name, disk = partition.directory.name, partition.disk
    swapping.finish(disk, partition.directory)
    known = replay.segments_of(name)
    by_scan = not replay.complete or (replay.adopting and not known)
    for file in known.values():
        # An earlier topic of this name.
        file.removed |= file.topic_id not in (partition.topic_id.bytes, bytes(16))
    remove_marked(disk, partition.directory)
    names_before = disk.list(partition.directory)
    may_cut = by_scan and replay.may_have_holes(name)
    if by_scan and not may_cut:
        check_none_is_missing(disk, partition.directory, names_before, known)
    _open_segments(partition, names_before, known, by_scan, number)
    bases = partition.segments.bases
    partition.log_start_offset = replay.starts.get(name, bases[0] if bases else FIRST_OFFSET)
    if bases:
        _read_segments(partition, replay, known, by_scan, may_cut, now)
    if disk.list(partition.directory) != names_before:
        # Nothing of this may come back when the log has passed these offsets again.
        disk.sync_directory(partition.directory)
    partition.log_start_offset = min(
        max(partition.log_start_offset, bases[0] if bases else FIRST_OFFSET), partition.log_end_offset
    )
    partition.drop_segments()
    if bases:
        partition.segments[-1].created = _created(partition.segments[-1], now)
    partition.high_watermark = FIRST_OFFSET
    partition.advance(partition.log_end_offset)
    recover_epochs(partition)


def _created(segment: Segment, now: Milliseconds) -> int:
    """The time at which a segment began (ms), going by its first and its newest record; -1 where it is not known.

    If each start began to count anew, a node that is started often would never close it.  As in Apache Kafka the times
    of records are compared with each other only: they may all be of long ago.
    """
    if not segment.size:
        return -1
    try:
        first = segment.header(segment.read(HEADER_SIZE, 0, HEADER_SIZE), 0, 0, segment.base_offset)
    except FileDamaged:
        return -1
    return max(now - (segment.max_timestamp - first.max_timestamp), 0) if first.max_timestamp >= 0 else -1


def uncounted(bases: Sequence[Offset], known: Mapping[Offset, KnownFile], by_scan: bool) -> list[Offset]:
    """The base offsets of segments on disk that are no part of the log: they are to be removed.

    `known`: the segments that the commit log knows.  `by_scan`: whether it may lack some that count.
    """
    removed = [base for base, file in known.items() if file.removed and base in bases]
    if by_scan:
        return removed
    # Every segment that was begun since the oldest checkpoint is known.  One that is not was begun in vain, or
    # removed by a start that was killed, and then a power loss has brought it back.
    there = {base: file for base, file in known.items() if not file.removed}
    first = min((base for base, file in there.items() if file.checkpoint_offset >= 0), default=NO_OFFSET)
    return [*(base for base in bases if base > first and base not in known), *removed]


def _open_segments(
    partition: Partition,
    names: Sequence[str],
    known: Mapping[Offset, KnownFile],
    by_scan: bool,
    number: Callable[[], int],
) -> None:
    """Open those that count of the segments with these files, and remove the others."""
    bases = [Offset(base) for _, base in numbered(names, ".log")]
    for base in uncounted(bases, known, by_scan):
        _open(partition, base, number).remove()
        bases.remove(base)
    for entry, beside in numbered(names, *SUFFIXES):
        # An index may survive a power loss that its segment did not; a new segment must not find it.
        if beside not in bases:
            partition.disk.remove(partition.directory / entry)
    for base in bases:
        partition.segments.append(_open(partition, base, number))


def _read_segments(
    partition: Partition,
    replay: Replay,
    known: Mapping[Offset, KnownFile],
    by_scan: bool,
    may_cut: bool,
    now: Milliseconds,
) -> None:
    """Read what the open segments hold behind the last checkpoint.  Raises PartitionDamaged where some are missing."""
    name, first = partition.directory.name, partition.segments.bases[0]
    log_start_offset = replay.starts.get(name, 0)
    if replay.ready and not replay.damaged and first > log_start_offset:
        raise PartitionDamaged(
            f"{partition.directory} has nothing before offset {first} and begins at {log_start_offset}: put back a "
            "copy of the segments that are missing"
        )
    disk, directory = partition.disk, partition.directory
    least = noted_sizes(disk, directory, disk.list(directory)) if by_scan and not may_cut else {}
    if replay.damaged:
        least |= {base: max(file.size, least.get(base, 0)) for base, file in known.items() if not file.removed}
    start = _start(partition, known, by_scan)
    _check_older(partition, start[0])
    _catch_up(partition, start, _synced_base(partition, known), by_scan, may_cut, least, now)
    if not partition.changed:
        # Else the checkpoint of this start writes them again.
        for segment in partition.unsynced_segments():
            segment.drop_stale_checksums()
    if by_scan and not replay.ready and not replay.damaged and partition.log_end_offset > first:
        replay.read_alone.append(name)
    if replay.damaged:
        _tell_what_is_more(partition, known)


def _open(partition: Partition, base: Offset, number: Callable[[], int]) -> Segment:
    return Segment(partition.disk, partition.directory, base, number(), partition.settings.index_interval_bytes)


def _synced_base(partition: Partition, known: Mapping[Offset, KnownFile]) -> int:
    """Up to the segment with this base all was synced once: offsets that are missing there were compacted away."""
    places = [base for base in partition.segments.bases if base in known and known[base].checkpoint_offset >= 0]
    unknown = partition.segments.bases[-1] if partition.settings.is_compacted else partition.segments.bases[0]
    return min(places, default=unknown)


def _start(partition: Partition, known: Mapping[Offset, KnownFile], by_scan: bool) -> tuple[int, int, Offset]:
    """The place to begin to read at: (number of the segment, position, offset), as far on as the disk allows.

    Indexes and snapshot of a checkpoint are trusted if the commit log knows the checkpoint and the snapshot loads.
    """
    places = [
        (number, known[segment.base_offset].checkpoint_size, known[segment.base_offset].checkpoint_offset)
        for number, segment in enumerate(partition.segments)
        if segment.base_offset in known and known[segment.base_offset].checkpoint_offset >= 0
    ]
    places.sort(key=lambda place: place[2])
    # The first known file is the one of the oldest checkpoint; the others began later.
    first = places[0] if places else (0, 0, partition.segments.bases[0])
    disk, directory = partition.disk, partition.directory
    for offset in snapshot_offsets(disk, directory):
        if offset > first[2] and not (by_scan and offset in partition.segments.bases):
            remove_snapshot(disk, directory, offset)
    entries = read_snapshot(disk, directory, first[2])
    if entries is None:
        if first[1] == 0 and first[2] == partition.segments.bases[0]:
            return first
        number = _load_before(partition, partition.producers, first[2])
        base = partition.segments.bases[number or 0]
        if places:
            logger.warning(
                "the producer snapshot of the last checkpoint is damaged or missing; what it had is made again from "
                "what the log has from offset %d on topic=%s partition=%d",
                base,
                partition.topic,
                partition.index,
            )
        if number is None and base > 0:
            # The log alone does not know the producers whose records were removed.
            entries = read_snapshot(disk, directory, first[2], whole=False)
        if entries is None:
            return number or 0, 0, base
    if first[1] and not partition.segments[first[0]].is_as_of(first[1]):
        _index_again(partition, first[0], first[2], first[1])
    partition.producers.load(entries)
    partition.checkpoint_offset = first[2]
    return first


def _load_before(partition: Partition, producers: Producers, offset: Offset) -> int | None:
    """Load the producers as of the last segment that begins at `offset` or before it and has a snapshot.

    Returns its number; None, with nothing loaded, if there is no such segment.
    """
    for number in range(len(partition.segments.bases) - 1, -1, -1):
        base = partition.segments.bases[number]
        entries = read_snapshot(partition.disk, partition.directory, base) if base <= offset else None
        if entries is not None:
            producers.load(entries)
            return number
    return None


def _check_older(partition: Partition, count: int) -> None:
    """Look at the segments that are not read at a start, the first `count`.  Raises PartitionDamaged for a missing one.

    Their indexes are made again where nothing says what they must be, or the transaction index is not that: a reader
    must never be shown what was aborted.
    """
    following = partition.segments.bases[1:]
    for number, (segment, base) in enumerate(zip(partition.segments[:count], following, strict=False)):
        holds = segment.trust_checksums(base)
        # What is before the start of the log may have been removed in any order.
        if 0 <= segment.next_offset < base and base > partition.log_start_offset:
            raise PartitionDamaged(
                f"{partition.directory} has nothing from offset {segment.next_offset} to {base}: put back a copy of "
                "the segments that are missing"
            )
        if not holds:
            _index_again(partition, number, segment.next_offset if segment.next_offset >= 0 else base)


def _index_again(partition: Partition, number: int, next_offset: Offset, end: int | None = None) -> None:
    """Make the indexes of a segment again from its batches before `end`.  Raises FileDamaged for a wrong CRC."""
    segment, producers = partition.segments[number], Producers()
    first = _load_before(partition, producers, segment.base_offset) or 0
    segment.begin_indexes_again()
    for each in partition.segments[first : number + 1]:
        for at, header, data in each.walk(0, end if each is segment else None):
            if not crc_matches(data, 0, header):
                raise each.damaged(at, "the CRC of the batch does not match")
            if each is segment:
                segment.note(header, header.base_offset, at)
            marker = _marker(partition, header, data)
            if header.producer_id < 0 or (header.is_control and marker is None):
                continue
            if marker is None:
                producers.data_appended(header, header.base_offset, Milliseconds(0))
                continue
            completed = producers.marker_appended(header, header.base_offset, *marker, Milliseconds(0))
            if completed is not None and not marker[1] and each is segment:
                segment.transactions.append(producers.aborted(completed))
    # Behind its last batch others may have been compacted away.
    segment.next_offset = next_offset
    for file in segment.write_indexes():
        file.close()
    logger.warning("the indexes of %s were damaged or missing and were made again from the log", segment.path)


def _catch_up(
    partition: Partition,
    start: tuple[int, int, Offset],
    synced_base: int,
    check: bool,
    may_cut: bool,
    least: Mapping[Offset, int],
    now: Milliseconds,
) -> None:
    """Read the log from `start` on.  `least`: how many bytes of a segment there must be, where a scan decides.

    `may_cut`: whether what is whole may be cut off behind what is not; else PartitionDamaged is raised.
    """
    number, position, offset = start
    partition.unsynced_from = partition.segments.bases[number]
    partition.log_end_offset = offset
    for segment in partition.segments[number:]:
        if segment.base_offset <= synced_base:
            partition.log_end_offset = max(partition.log_end_offset, segment.base_offset)
        if segment.base_offset > partition.log_end_offset:
            _leave_out(partition, segment, not may_cut)
            continue
        segment.cut_indexes(position, partition.log_end_offset)
        end = _apply_from(partition, segment, position, check, now)
        had = least.get(segment.base_offset, 0)
        if end < had:
            raise PartitionDamaged(f"{segment.path} has {end} whole bytes and once had {had}; {DO_WITHOUT}")
        if end < segment.size:
            if not may_cut:
                check_tail(segment, end, partition.log_end_offset, partition.segments)
            _cut(partition, segment, end, torn=may_cut)
        position = 0


def _leave_out(partition: Partition, segment: Segment, must_follow: bool) -> None:
    """Remove a segment that was made in vain: what was to stand before it is lost.

    `must_follow`: whether what it holds was synced, and so what stood before it; then PartitionDamaged is raised.
    """
    if segment.size and must_follow:
        raise PartitionDamaged(
            f"{segment.path} does not follow {partition.log_end_offset}: a segment before it is missing or too "
            "short; put back a copy of that"
        )
    if segment.size:
        logger.warning(
            "removed a segment that does not follow what is left before it; nothing in it was acknowledged as "
            "durable topic=%s partition=%d log_end_offset=%d segment=%d bytes=%d",
            partition.topic,
            partition.index,
            partition.log_end_offset,
            segment.base_offset,
            segment.size,
        )
    partition.segments.remove(segment)
    segment.remove()
    # Where the log comes to this offset again, it would be taken for what was written down then.
    remove_snapshot(partition.disk, partition.directory, segment.base_offset)


def _apply_from(partition: Partition, segment: Segment, position: int, check: bool, now: Milliseconds) -> int:
    """Apply the batches of a segment from `position` on to the partition, and move its end behind them.

    Returns the position behind the last of them.  `check`: end before one that is torn or does not follow; without it
    FileDamaged is raised for what cannot be read.
    """
    end = position
    try:
        for at, header, data in segment.walk(position):
            if check and (header.base_offset < partition.log_end_offset or not crc_matches(data, 0, header)):
                break
            segment.note(header, header.base_offset, at)
            partition.applied(header, header.base_offset, segment, _marker(partition, header, data), now)
            partition.log_end_offset = Offset(header.last_offset + 1)
            end = at + header.size
    except FileDamaged:
        if not check:
            raise
    return end


def _cut(partition: Partition, segment: Segment, end: int, *, torn: bool) -> None:
    """Cut a segment behind its last whole batch, which ends at position `end`.  `torn`: whether it is known to be."""
    known = "what was acknowledged as durable lies before it"
    logger.warning(
        "cut a log behind its last whole batch; %s topic=%s partition=%d offset=%d bytes=%d",
        known if torn else "no commit log says whether what was torn there had been acknowledged",
        partition.topic,
        partition.index,
        partition.log_end_offset,
        segment.size - end,
    )
    segment.file.truncate(end)
    segment.size = end


def _tell_what_is_more(partition: Partition, known: Mapping[Offset, KnownFile]) -> None:
    """Log how many bytes are kept that a damaged commit log does not know of."""
    sizes = {segment.base_offset: segment.size for segment in partition.segments}
    # Older segments than the first that it names were synced by a checkpoint.
    first = min((base for base, file in known.items() if not file.removed), default=0)
    more = sum(size - (known[base].size if base in known else 0) for base, size in sizes.items() if base >= first)
    if more:
        logger.warning(
            "kept records that the damaged commit log does not know of; after a power loss some of them may be of a "
            "transaction whose other records are lost topic=%s partition=%d log_end_offset=%d bytes=%d",
            partition.topic,
            partition.index,
            partition.log_end_offset,
            more,
        )


def _marker(partition: Partition, header: BatchHeader, data: memoryview) -> Ending | None:
    """The coordinator epoch and outcome of a transaction marker; None for everything else, however strange."""
    if not header.is_control:
        return None
    try:
        record = read_control_record(data, 0, header)
        why = "" if record is None or record.ends_transaction else f"its type is {record.type}"
    except ProtocolError as error:
        record, why = None, str(error)
    if why:
        logger.warning(
            "a control batch is no transaction marker and is passed over: if it should have ended a transaction, end "
            "that with WriteTxnMarkers topic=%s partition=%d offset=%d producer_id=%d epoch=%d reason=%s",
            partition.topic,
            partition.index,
            header.base_offset,
            header.producer_id,
            header.producer_epoch,
            why,
        )
    if record is None or record.coordinator_epoch is None:
        return None
    return record.coordinator_epoch, record.type == COMMIT
