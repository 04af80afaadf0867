"""The figures of a micro-batch that was written: rows, bytes, attempts, and milliseconds of each part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fencepost.runtime import Clock
from fencepost.spark.claims import Written


class Report(NamedTuple):
    """Figures of a micro-batch that was written and is committed.

    `rows` and `bytes` are those of the attempt that is committed; bytes are of record batches before compression.

    Times are milliseconds by the driver's clock, of all `attempts` together: `begin_ms` until tasks could start,
    `tasks_ms` until all were done, `commit_ms` until the transaction was committed, `abort_ms` to end attempts that
    failed, and to find out that they are not committed.  The part in which an attempt failed is not counted.
    """

    batch_id: int
    rows: int
    bytes: int
    attempts: int
    begin_ms: int
    tasks_ms: int
    commit_ms: int
    abort_ms: int

    def __str__(self) -> str:
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return (
            f"batch {self.batch_id}: {self.rows} rows, {self.bytes} bytes, {attempts}; begun in {self.begin_ms} ms, "
            f"tasks {self.tasks_ms} ms, committed in {self.commit_ms} ms, aborts {self.abort_ms} ms"
        )


class Course:
    """Measures the write of one micro-batch, attempt by attempt, for its `Report`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = self._since = clock.now()
        self._took: Counter[str] = Counter()
        self._attempts = 0
        self._written: Sequence[Written] = ()

    def attempt(self) -> None:
        """Note that an attempt begins."""
        self._attempts += 1
        self._begun = self._since = self._clock.now()

    def age_ms(self) -> int:
        """Milliseconds since the attempt began; before the first one, since the write did."""
        return self._clock.now() - self._begun

    def done(self, part: str) -> None:
        """Add the time since the last call to a part: `begin`, `tasks`, `commit`, `abort`; any other is left out."""
        now = self._clock.now()
        self._took[part] += max(now - self._since, 0)
        self._since = now

    def wrote(self, written: Sequence[Written]) -> None:
        """Note that all tasks of the attempt are done, and their reports."""
        self.done("tasks")
        self._written = written

    def report(self, batch_id: int) -> Report:
        """The figures of the batch, which is committed."""
        rows, size = sum(found.records for found in self._written), sum(found.size for found in self._written)
        times = (self._took[part] for part in ("begin", "tasks", "commit", "abort"))
        return Report(batch_id, rows, size, self._attempts, *times)
