"""Only rows of attempts are shown that their driver heard of: one run of a batch, one attempt of a slot."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes, shown_of
from fencepost.simulation.micro_batches import Seen


def zombies(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Rows of attempts that never reported, of a second run, or of a second attempt of a slot, in sentences."""
    faults = []
    for application, known in outcomes.items():
        runs: dict[int, str] = {}
        attempts: dict[str, str] = {}
        for shown in shown_of(seen, application):
            if shown.attempt not in known.reported:
                faults.append(f"{tuple(shown.row)} is shown, of the attempt {shown.attempt} that never reported")
            if runs.setdefault(shown.batch_id, shown.run) != shown.run:
                faults.append(f"batch {shown.batch_id} is shown of the runs {runs[shown.batch_id]} and {shown.run}")
            slot = shown.attempt.rpartition(".")[0]
            if attempts.setdefault(slot, shown.attempt) != shown.attempt:
                faults.append(f"slot {slot} is shown of the attempts {attempts[slot]} and {shown.attempt}")
    return faults
