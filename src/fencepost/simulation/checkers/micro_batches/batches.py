"""The recorded micro-batches and rows of an application, for checkers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fencepost.simulation.micro_batches import BEGINNING, DriverOutcomes, Ends, Seen, Shown, end_of

AllOutcomes = Mapping[str, DriverOutcomes]
"""Application -> what its drivers were told."""


def batches(seen: Seen, application: str) -> dict[int, tuple[Ends, Ends]]:
    """Recorded batch -> its start and end, from the progress records alone."""
    start, found = BEGINNING, {}
    for name, record in seen.records:
        if name == application:
            found[record.batch_id] = (start, end_of(record))
            start = end_of(record)
    return found


def shown_of(seen: Seen, application: str) -> Iterator[Shown]:
    """The rows of an application that are in the log, as they are shown."""
    for rows in seen.rows.values():
        for shown in rows:
            if shown.row.application == application:
                yield shown
