"""What was shown is in the log for good, there and nowhere else; to a reader of committed records, if committed."""

from __future__ import annotations

from collections.abc import Container, Mapping

from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.checkers.groups.superseded import MayBeGone, nothing
from fencepost.simulation.group_notes import GroupNotes, Truth


def unreal(
    notes: GroupNotes,
    truth: Truth,
    readers: Mapping[str, bool],
    may_be_gone: MayBeGone = nothing,
    committed: Container[str] | None = None,
) -> list[str]:
    """Records that were shown and are not in the log, or not committed for a reader of committed ones, in sentences.

    So nothing that was read is taken back by a power cut, and nobody passes an open transaction that is aborted later.
    Where topics are compacted what a reader of whatever there is was shown need not be there either, unless its value
    is known to be `committed`.
    """
    known = {(at, record.offset): record for at, records in truth.records.items() for record in records}
    shown = [(each.process, True, each.at, each.offset, each.value) for each in notes.processed]
    shown += [(each.reader, readers.get(each.reader, True), each.at, each.offset, each.value) for each in notes.read]
    faults = []
    for who, committed_only, at, offset, value in shown:
        if at not in truth.starts or offset < truth.starts[at]:
            continue  # it was deleted
        record = known.get((at, offset))
        taken = committed is not None and not committed_only and value not in committed
        if record is None and (taken or may_be_gone(at, offset, value)):
            continue
        if record is None or record.value != value:
            faults.append(f"{who} was shown {value} at {named(at)}/{offset}, where there is {record and record.value}")
        elif committed_only and not record.committed:
            faults.append(f"{who} was shown {value} at {named(at)}/{offset}, which was aborted")
    return faults
