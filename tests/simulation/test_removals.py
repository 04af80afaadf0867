"""What a node removes although nobody asked for it is found at once: it would be missed by nobody afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.log import partition
from fencepost.log.partition import Partition
from fencepost.log.retention import new_start
from fencepost.log.settings import LogSettings
from fencepost.protocol.types import Offset
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.troubles import Trouble

CLIENTS = {"producer-0": Window(), "producer-1": Window(), "single-0": Window(), "pipelined-0": Window()}
RETENTION_BYTES = 1000
ASKED = Circumstances(troubles=(Trouble.RECORDS_DELETED,), between=0.1)
RETAINED = Circumstances(
    settings={"log.retention.check.interval.ms": 50},
    log={"segment_bytes": 500},
    topic_settings={"retention.bytes": str(RETENTION_BYTES)},
)
NEITHER = RETAINED._replace(topic_settings={})


def report(given: Circumstances, seed: int = 1) -> Report:
    return carry_out(Plan(seed, 1, given, CLIENTS))


@pytest.mark.parametrize("given", [ASKED, RETAINED])
def test_what_was_asked_for_or_is_too_much_may_be_removed(given: Circumstances) -> None:
    for seed in range(2):
        found = report(given, seed)
        assert (found.faults, bool(found.outcomes.removed)) == ([], True), f"seed {seed}"


def test_more_than_was_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Partition.delete_records
    monkeypatch.setattr(Partition, "delete_records", lambda self, _: delete(self, Offset(-1)))
    (fault,) = report(ASKED).faults
    assert "which nobody asked for" in fault


@pytest.mark.parametrize(("given", "keeps"), [(RETAINED, 0), (NEITHER, RETENTION_BYTES)])
def test_more_than_retention_allows_is_found(given: Circumstances, keeps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(segments: Any, start: int, end: int, limit: int, settings: LogSettings, now: Any) -> int:
        return new_start(
            segments, Offset(start), Offset(end), Offset(limit), settings.with_(retention_bytes=keeps), now
        )

    monkeypatch.setattr(partition, "new_start", hasty)
    (fault,) = report(given).faults
    assert "retention does not allow" in fault


def test_what_a_compacted_topic_keeps_for_ever_is_not_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_time(segments: Any, start: int, end: int, limit: int, settings: LogSettings, now: Any) -> int:
        settings = settings.with_(cleanup_policy="delete", retention_ms=0)
        return new_start(segments, Offset(start), Offset(end), Offset(limit), settings, now)

    compacted = RETAINED._replace(
        topic_settings={"cleanup.policy": "compact"},
        load=RETAINED.load._replace(shape=RETAINED.load.shape._replace(keys=2)),
    )
    assert report(compacted).faults == []
    monkeypatch.setattr(partition, "new_start", by_time)
    (fault,) = report(compacted).faults
    assert "retention does not allow" in fault


def test_an_open_transaction_is_not_retained_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def regardless(segments: Any, start: int, end: int, _: int, settings: LogSettings, now: Any) -> int:
        return new_start(segments, Offset(start), Offset(end), Offset(end), settings, now)

    monkeypatch.setattr(partition, "new_start", regardless)
    all_of_it = RETAINED._replace(topic_settings={"retention.bytes": "0"})
    (fault,) = report(all_of_it).faults
    assert "retention does not allow" in fault
