"""Checkers of what micro-batches promise.  Each gives the broken promises as sentences, none if all were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fencepost.simulation.micro_batches import BEGINNING, PLACES, Ends, Row, Seen, Shown, Told, end_of, rows_between

EveryTold = Mapping[str, Told]
"""Application -> what its drivers were told."""


def _batches(seen: Seen, application: str) -> dict[int, tuple[Ends, Ends]]:
    """Recorded batch -> its start and end, from the progress records alone."""
    start, found = BEGINNING, {}
    for name, record in seen.records:
        if name == application:
            found[record.batch_id] = (start, end_of(record))
            start = end_of(record)
    return found


def _shown(seen: Seen, application: str) -> Iterator[Shown]:
    for rows in seen.rows.values():
        for shown in rows:
            if shown.row.application == application:
                yield shown


def repeated(told: EveryTold, seen: Seen) -> list[str]:
    """No row is shown twice, and no batch is recorded twice."""
    faults = []
    for application in told:
        rows = Counter(shown.row for shown in _shown(seen, application))
        faults += [f"{tuple(row)} is shown {count} times" for row, count in rows.items() if count > 1]
        records = Counter(record.batch_id for name, record in seen.records if name == application)
        faults += [f"batch {n} of {application} is recorded {count} times" for n, count in records.items() if count > 1]
    return faults


def skipped(told: EveryTold, seen: Seen) -> list[str]:
    """Batches are recorded one after the other, none goes back, and every row up to the last end is shown."""
    faults = []
    for application in told:
        records = [record for name, record in seen.records if name == application]
        numbers = [record.batch_id for record in records]
        if numbers != list(range(len(numbers))):
            faults.append(f"the batches {numbers} of {application} are recorded")
        end = end_of(records[-1]) if records else BEGINNING
        there = {shown.row for shown in _shown(seen, application)}
        missing = [row for row in rows_between(application, BEGINNING, end) if row not in there]
        faults += [f"{tuple(row)} is before the recorded end {end}, and not shown" for row in missing]
    return faults


def torn(told: EveryTold, seen: Seen) -> list[str]:
    """Of a batch all rows and its progress record are shown, or nothing of it."""
    faults = []
    for application in told:
        recorded = _batches(seen, application)
        by_batch: dict[int, set[Row]] = {}
        for shown in _shown(seen, application):
            by_batch.setdefault(shown.batch_id, set()).add(shown.row)
        for batch_id in sorted({*by_batch, *recorded}):
            there = by_batch.get(batch_id, set())
            if batch_id not in recorded:
                faults.append(f"{len(there)} rows of batch {batch_id} of {application} are shown without its record")
                continue
            whole = set(rows_between(application, *recorded[batch_id]))
            if there != whole:
                faults.append(
                    f"of batch {batch_id} of {application} {len(there & whole)} of {len(whole)} rows are shown, and "
                    f"{len(there - whole)} that are none of it"
                )
    return faults


def forgotten(told: EveryTold, seen: Seen) -> list[str]:
    """A batch that a driver was told to be committed is recorded, with the end that it had, or lies before one."""
    faults = []
    for application, known in told.items():
        recorded = _batches(seen, application)
        last = max((end for _, end in recorded.values()), default=BEGINNING)
        faults += [
            f"a batch of {application} that ends at {end} was skipped, and the recorded end is {last}"
            for end in known.skipped
            if any(here > there for here, there in zip(end, last, strict=True))
        ]
        for batch_id, end in known.committed.items():
            found = recorded.get(batch_id, (None, None))[1]
            if found != end:
                faults.append(f"batch {batch_id} of {application} was committed with end {end}, recorded is {found}")
    return faults


def taken_back(told: EveryTold, seen: Seen) -> list[str]:
    """Of a run whose failure was reported nothing is shown."""
    return [
        f"{tuple(shown.row)} of run {shown.run} of {application} is shown, which was reported to have failed"
        for application, known in told.items()
        for shown in _shown(seen, application)
        if shown.run in known.failed
    ]


def zombies(told: EveryTold, seen: Seen) -> list[str]:
    """Only rows of attempts are shown that their driver heard of: one run of a batch, one attempt of a slot."""
    faults = []
    for application, known in told.items():
        runs: dict[int, str] = {}
        attempts: dict[str, str] = {}
        for shown in _shown(seen, application):
            if shown.attempt not in known.reported:
                faults.append(f"{tuple(shown.row)} is shown, of the attempt {shown.attempt} that never reported")
            if runs.setdefault(shown.batch_id, shown.run) != shown.run:
                faults.append(f"batch {shown.batch_id} is shown of the runs {runs[shown.batch_id]} and {shown.run}")
            slot = shown.attempt.rpartition(".")[0]
            if attempts.setdefault(slot, shown.attempt) != shown.attempt:
                faults.append(f"slot {slot} is shown of the attempts {attempts[slot]} and {shown.attempt}")
    return faults


def misplaced(told: EveryTold, seen: Seen) -> list[str]:
    """Every row is where it belongs, behind those of earlier batches; within one Spark may give them in any order."""
    faults = []
    for at, rows in seen.rows.items():
        last: dict[str, int] = {}
        for shown in rows:
            application = shown.row.application
            if application not in told or PLACES[shown.row.target] != at:
                faults.append(f"{tuple(shown.row)} is shown in {at.topic}-{at.partition}")
            if shown.batch_id < last.get(application, -1):
                faults.append(f"{tuple(shown.row)} in {at.topic}-{at.partition} is behind a later batch")
            last[application] = shown.batch_id
    return faults


def offsets_apart(told: EveryTold, seen: Seen) -> list[str]:
    """The group of an application is where its last recorded batch ended."""
    faults = []
    for application in told:
        ends = [end_of(record) for name, record in seen.records if name == application]
        expected = ends[-1] if ends else None
        if seen.positions[application] != expected:
            faults.append(f"the group {application} is at {seen.positions[application]}, the progress at {expected}")
    return faults


def surprised(told: EveryTold, seen: Seen) -> list[str]:  # noqa: ARG001 - all checkers are called alike
    """No driver is fenced, refused or let in for nothing."""
    return [surprise for known in told.values() for surprise in known.surprises]


CHECKERS = (repeated, skipped, torn, forgotten, taken_back, zombies, misplaced, offsets_apart, surprised)


def check(told: EveryTold, seen: Seen) -> list[str]:
    """All broken promises."""
    return [fault for checker in CHECKERS for fault in checker(told, seen)]
