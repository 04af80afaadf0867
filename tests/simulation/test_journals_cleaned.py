"""The coordinators' journals are compacted all the time while the node crashes again and again."""

from __future__ import annotations

import pytest

from fencepost.broker import compaction
from fencepost.log.cleaner.cleaning import Pass, Steps
from fencepost.simulation.crashes import crash_again_and_again


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))])
def test_nothing_is_lost_of_a_journal_that_is_compacted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    steps = Pass.steps

    def counted(begun: Pass) -> Steps[None]:
        yield from steps(begun)
        passes.append(begun.statistics.bytes_read - begun.statistics.bytes_written)

    monkeypatch.setattr(Pass, "steps", counted)
    monkeypatch.setattr(compaction, "JOURNAL_ROLL_BYTES", 600)
    monkeypatch.setattr(compaction, "JOURNAL_DELETE_RETENTION_MS", 20)
    settings = {
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
        "log.cleaner.backoff.ms": "5",
    }
    report = crash_again_and_again(seed, crashes=12, settings=settings)
    assert report.faults == []
    assert report.committed
    assert len(passes) > 5, "the journals were cleaned"
    assert sum(passes) > 0
