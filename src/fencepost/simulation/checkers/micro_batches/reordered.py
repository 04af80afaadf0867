"""What a task gave of a topic-partition is there in its order: what it sent ahead, then the rest, which slots write."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes
from fencepost.simulation.micro_batches import Seen


def reordered(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Topic-partitions in which what a task gave is not in its order: rows sent ahead, then the rest; in sentences."""
    faults = []
    for known in outcomes.values():
        by_run: dict[str, list[str]] = {}
        for attempt in known.orders:
            if attempt in known.reported:
                by_run.setdefault(attempt.rsplit(".", 2)[0], []).append(attempt)
        for at, rows in seen.rows.items():
            last: dict[str, int] = {}
            for shown in rows:
                for attempt in by_run.get(shown.run, ()):
                    rank = known.orders[attempt].get(shown.row)
                    if rank is not None and rank < last.get(attempt, rank):
                        faults.append(
                            f"{tuple(shown.row)} in {at.topic}-{at.partition} is behind what {attempt} gave later"
                        )
                    if rank is not None:
                        last[attempt] = rank
    return faults
