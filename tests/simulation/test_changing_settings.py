"""Settings that somebody changes while a run goes on: each is, whatever fails, what it was set to last."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fencepost.broker.apis import incremental_alter_configs
from fencepost.broker.metadata.topics import Topics
from fencepost.protocol.messages.incremental_alter_configs import AlterConfigsResource
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.plans import Circumstances, Plan, plan_of
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load

CLIENTS = {"producer-0": Window(), "impatient-0": Window(), "reader-0": Window()}
CHANGES = {
    "cleanup.policy": ("compact", "delete"),
    "compression.type": ("gzip", "zstd"),
    "max.message.bytes": ("250",),
    "message.timestamp.type": ("LogAppendTime",),
    "segment.ms": ("50",),
}


def run(seed: int) -> Report:
    given = Circumstances(
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100, "log.cleaner.backoff.ms": 20},
        log={"segment_bytes": 2000},
        load=Load(transaction_timeout_ms=1500, shape=Shape(keys=2)),
        topic_settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"},
        changes=CHANGES,
        troubles=(Trouble.KILLED, Trouble.POWER_LOST, Trouble.CONNECTIONS_CUT, *[Trouble.SETTINGS_CHANGE] * 5),
        between=0.05,
    )
    return carry_out(Plan(seed, 2, given, CLIENTS))


def test_no_promise_is_broken_and_every_setting_is_what_it_was_set_to() -> None:
    reports = [run(seed) for seed in (1, 2, 3)]
    assert [report.faults for report in reports] == [[], [], []]
    told = "\n".join(line for report in reports for line in report.history)
    assert [name for name in CHANGES if f"{name} of left is to be " not in told] == []
    assert "is to be the default" in told
    assert min(len(report.outcomes.committed) for report in reports) > 5


def test_a_setting_that_stays_where_it_goes_back_to_its_default_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    altered = incremental_alter_configs.changed

    def keeps(resource: AlterConfigsResource, known: Mapping[str, str]) -> dict[str, str]:
        return {**known, **altered(resource, known)}

    monkeypatch.setattr(incremental_alter_configs, "changed", keeps)
    faults = [fault for seed in (1, 2, 3) for fault in run(seed).faults]
    assert any("was set to the default" in fault for fault in faults)


def test_a_change_that_is_not_there_after_a_start_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    save = Topics._save

    def only_in_memory(self: Topics, described: Mapping[str, tuple[bytes, int]]) -> bool:
        return any(version for _, version in described.values()) or save(self, described)

    monkeypatch.setattr(Topics, "_save", only_in_memory)
    assert any(run(seed).faults for seed in (1, 2, 3))


def test_some_seeds_change_settings_and_only_where_nobody_minds() -> None:
    drawn = [plan_of(seed, 1).circumstances for seed in range(100)]
    changing = [each for each in drawn if each.changes]
    assert 15 < len(changing) < 45
    assert all("retention.bytes" not in each.changes for each in changing if each.ordered)
    assert all("max.message.bytes" not in each.changes for each in changing if each.pipelined or each.windowed)
    assert {name for each in changing for name in each.changes} >= {"cleanup.policy", "max.message.bytes"}
