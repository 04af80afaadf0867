"""One checker for each promise to groups and readers.  Each gives the broken promises as sentences.

Pure functions of what was noted and of what is in the log when all is over.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.group_notes import GroupNotes, Owned, Processed, Truth


def _name(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"


def missed(notes: GroupNotes, truth: Truth, groups: Mapping[str, Iterable[str]]) -> list[str]:
    """At least once: each group processed every committed record that is still there.  `groups`: their topics."""
    seen: dict[str, set[tuple[TopicPartition, str]]] = defaultdict(set)
    for each in notes.processed:
        seen[each.member.group].add((each.at, each.value))
    return [
        f"{record.value} at {_name(at)}/{record.offset} was never processed by the group {group}"
        for group, topics in groups.items()
        for at in truth.records
        if at.topic in topics
        for record in truth.committed(at)
        if (at, record.value) not in seen[group]
    ]


def shared(notes: GroupNotes) -> list[str]:
    """Nobody owns what somebody else owns in the same generation of the group."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    faults = []
    for owned in notes.owned:
        group, generation, who, _ = owned.member
        for at in owned.partitions:
            owner = owners.setdefault((group, generation, at), who)
            if owner != who:
                faults.append(f"{owner} and {who} own {_name(at)} in generation {generation} of {group}")
    return faults


def not_owned(notes: GroupNotes) -> list[str]:
    """Nobody is handed a record of a partition that it does not read, or has paused."""
    return [
        f"{each.process} is handed {_name(each.at)}/{each.offset} without reading it"
        for each in notes.processed
        if not each.owned
    ]


def outdated(notes: GroupNotes) -> list[str]:
    """No commit is taken of a generation, or of a static member, that another one had followed before."""
    newest: dict[str, int] = {}
    instances: dict[tuple[str, str], str] = {}
    faults = []
    owned = deque(sorted(notes.owned, key=lambda each: each.time))
    for stored in sorted(notes.stored, key=lambda each: each.begun):
        while owned and owned[0].time < stored.begun:
            member = owned.popleft().member
            newest[member.group] = max(member.generation, newest.get(member.group, -1))
            instances[member.group, member.who] = member.member_id
        group, generation, who, member_id = stored.member
        if generation < newest.get(group, -1):
            faults.append(f"{who} stored positions of {group} in generation {generation}, after {newest[group]} began")
        if instances.get((group, who), member_id) != member_id:
            faults.append(f"{member_id} stored positions of {group} after it was replaced as {who}")
    return faults


def ahead(notes: GroupNotes, truth: Truth) -> list[str]:
    """No position is stored that skips a committed record which nobody of the group has been handed."""
    seen: dict[tuple[str, TopicPartition, int], float] = {}
    for each in notes.processed:
        seen.setdefault((each.member.group, each.at, each.offset), each.time)
    return [
        f"{stored.process} stored {_name(at)}/{position} of {stored.member.group}, nobody had {record.offset}"
        for stored in notes.stored
        for at, position in stored.offsets.items()
        for record in truth.committed(at)
        if record.offset < position and seen.get((stored.member.group, at, record.offset), math.inf) > stored.begun
    ]


def went_back(notes: GroupNotes) -> list[str]:
    """What is stored of a partition never goes back while a generation lasts, unless its member went back itself."""
    moved = set(notes.moved)
    last: dict[tuple[str, int, TopicPartition], int] = {}
    faults = []
    for stored in notes.stored:
        for at, position in stored.offsets.items():
            key = (stored.member.group, stored.member.generation, at)
            if position < last.get(key, -1) and (stored.process, at) not in moved:
                faults.append(f"{stored.process} stored {_name(at)}/{position} of {key[0]} after {last[key]}")
            last[key] = position
    return faults


def forgotten(notes: GroupNotes) -> list[str]:
    """Whoever has a partition in a later generation begins where it was stored last before that."""
    stored: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = defaultdict(list)
    for each in notes.stored:
        for at, position in each.offsets.items():
            stored[each.member.group, at].append((each.member.generation, position))
    faults = []
    for begun in notes.begun:
        known = stored[begun.member.group, begun.at]
        earlier = [generation for generation, _ in known if generation < begun.member.generation]
        last = [position for generation, position in known if earlier and generation == max(earlier)]
        if last and begun.offset < last[-1]:
            faults.append(f"{begun.process} begins at {_name(begun.at)}/{begun.offset}, {last[-1]} was stored before")
    return faults


def restless(all_owned: Iterable[Owned], calm_since: float) -> list[str]:
    """Nobody is given other partitions when nothing has gone wrong for a while: everybody says that it lives."""
    return [
        f"{owned.member.who} is given {len(owned.partitions)} partitions of {owned.member.group} at {owned.time:.1f} s"
        for owned in all_owned
        if owned.time > calm_since
    ]


def replaced(notes: GroupNotes) -> list[str]:
    """What a member stored stays, until somebody stores anything else."""
    return [
        f"{each.process} stored {_name(at)}/{position} and found {each.found.get(at)}"
        for each in notes.found
        for at, position in each.stored.items()
        if each.found.get(at) != position
    ]


def out_of_order(processed: Iterable[Processed], moved: Iterable[tuple[str, TopicPartition]] = ()) -> list[str]:
    """Each member is handed the records of a partition in order, as long as it does not go back on purpose."""
    may_go_back = set(moved)
    last: dict[tuple[str, int, TopicPartition], int] = {}
    faults = []
    for each in processed:
        key = (each.process, each.member.generation, each.at)
        if each.offset <= last.get(key, -1) and (each.process, each.at) not in may_go_back:
            faults.append(f"{each.process} is handed {_name(each.at)}/{each.offset} after {last[key]}")
        last[key] = each.offset
    return faults


def reads_out_of_order(notes: GroupNotes) -> list[str]:
    """Each reader goes forward in every partition."""
    last: dict[tuple[str, TopicPartition], int] = {}
    faults = []
    for each in notes.read:
        if each.offset <= last.get((each.reader, each.at), -1):
            faults.append(f"{each.reader} reads {_name(each.at)}/{each.offset} after {last[each.reader, each.at]}")
        last[each.reader, each.at] = each.offset
    return faults


def unread(notes: GroupNotes, truth: Truth, readers: Mapping[str, bool]) -> list[str]:
    """Each reader was shown every record that is still there; `readers`: whether it reads committed ones only."""
    seen: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
    for each in notes.read:
        seen[each.reader].add((each.at, each.offset))
    return [
        f"{reader} was never shown {record.value} at {_name(at)}/{record.offset}"
        for reader, committed_only in readers.items()
        for at, records in truth.records.items()
        for record in records
        if (record.committed or not committed_only) and (at, record.offset) not in seen[reader]
    ]


def unreal(notes: GroupNotes, truth: Truth, readers: Mapping[str, bool]) -> list[str]:
    """What was shown is in the log for good, there and nowhere else; to a reader of committed records, if committed.

    So nothing that was read is taken back by a power cut, and nobody passes an open transaction that is aborted later.
    """
    known = {(at, record.offset): record for at, records in truth.records.items() for record in records}
    shown = [(each.process, True, each.at, each.offset, each.value) for each in notes.processed]
    shown += [(each.reader, readers.get(each.reader, True), each.at, each.offset, each.value) for each in notes.read]
    faults = []
    for who, committed_only, at, offset, value in shown:
        if at not in truth.starts or offset < truth.starts[at]:
            continue  # it was deleted
        record = known.get((at, offset))
        if record is None or record.value != value:
            faults.append(f"{who} was shown {value} at {_name(at)}/{offset}, where there is {record and record.value}")
        elif committed_only and not record.committed:
            faults.append(f"{who} was shown {value} at {_name(at)}/{offset}, which was aborted")
    return faults


def transformed(truth: Truth, inputs: Iterable[str], output: str) -> list[str]:
    """Exactly once: of each committed record of the input there is one committed record of output, and no other."""
    made = Counter(record.value for at in truth.records if at.topic == output for record in truth.committed(at))
    expected = {
        f"{at.topic}/{at.partition}/{record.offset}/{record.value}"
        for at in truth.records
        if at.topic in inputs
        for record in truth.committed(at)
    }
    faults = [f"{value} has {made[value]} outputs" for value in sorted(expected) if made[value] != 1]
    for value, count in sorted(made.items()):
        topic, partition, offset, _ = value.split("/", 3)
        deleted = int(offset) < truth.starts[TopicPartition(topic, int(partition))]
        if value not in expected and (count > 1 or not deleted):
            faults.append(f"{value}, which is no input, has {count} outputs")
    return faults


def transformed_out_of_order(truth: Truth, output: str) -> list[str]:
    """The outputs of one partition of the input are in the order of its records."""
    last: dict[tuple[str, str], int] = {}
    faults = []
    for at in truth.records:
        for record in truth.committed(at) if at.topic == output else ():
            topic, partition, offset, _ = record.value.split("/", 3)
            if int(offset) <= last.get((topic, partition), -1):
                faults.append(f"{record.value} comes after the output of {last[topic, partition]}")
            last[topic, partition] = int(offset)
    return faults


def misplaced(truth: Truth, positions: Mapping[TopicPartition, int | None], group: str) -> list[str]:
    """When all is over a group is behind the last committed record, and not further: offsets and output are one."""
    faults = []
    for at, position in positions.items():
        records = truth.committed(at)
        if records and (position is None or not records[-1].offset < position <= truth.ends[at]):
            faults.append(f"{group} is at {_name(at)}/{position}, the last record is {records[-1].offset}")
    return faults
