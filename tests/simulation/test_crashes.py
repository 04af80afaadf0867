"""The real broker and clients on virtual time: crashes under load break no promise, and a seed says it all.

Each promise has a mutant, a broker or disk that breaks it on purpose, and is seen to be reported.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.simulation.mutants import OF_THE_TEST

from fencepost.log.durability import Durability
from fencepost.protocol.types import Lsn
from fencepost.simulation.crashes import Report, crash_again_and_again

SEED = 20_251_121
SLOW = 0.02
"""Seconds that a sync takes at most: long enough for an early answer to reach the client."""
EVERYTHING = Lsn(2**62)
"""No run gets so far."""


@pytest.mark.parametrize("crashes", [50, pytest.param(200, marks=pytest.mark.soak)])
def test_many_crashes_break_no_promise_and_happen_again_byte_for_byte(crashes: int) -> None:
    report = crash_again_and_again(SEED, crashes)
    assert report.faults == []
    assert report.committed > 5 * crashes
    assert report.aborted > crashes
    again = crash_again_and_again(SEED, crashes)
    assert "\n".join(again.history).encode() == "\n".join(report.history).encode()


def test_the_history_does_not_depend_on_the_process() -> None:
    """Sets and hashes are in another order in every process; nothing may follow them."""
    program = (
        "from fencepost.simulation.crashes import crash_again_and_again\n"
        "import sys; sys.stdout.write('\\n'.join(crash_again_and_again(5, 10).history))"
    )
    histories = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert histories[0] == histories[1]
    assert len(histories[0]) > 1000


def test_another_seed_is_another_history() -> None:
    assert crash_again_and_again(1, 3).history != crash_again_and_again(2, 3).history


@pytest.mark.parametrize("level", [0, 1])
def test_the_older_protocol_keeps_the_promises_too(level: int) -> None:
    report = crash_again_and_again(SEED + level, 40, transaction_version=level)
    assert report.faults == []
    assert report.committed > 100


@pytest.mark.promise("890.levels")
@pytest.mark.parametrize("seeds", [2, pytest.param(6, marks=pytest.mark.soak)])
def test_upgrades_and_downgrades_under_way_break_no_promise(seeds: int) -> None:
    """A transaction that a downgrade cuts is aborted, and its producer goes on in the other protocol (KIP-890)."""
    ended = 0
    for seed in range(seeds):
        report = crash_again_and_again(seed, 25, levels=(0, 1, 2))
        assert report.faults == [], f"seed {seed}"
        assert report.committed > 100
        ended += sum("could not be committed" in line for line in report.history)
    assert ended > 0, "some transactions are cut by a change"


def _first_faults(power_losses: float, crashes: int = 15, seeds: int = 10) -> list[str]:
    """What the checkers say of the first seed that shows something."""
    for seed in range(SEED, SEED + seeds):
        try:
            report: Report = crash_again_and_again(seed, crashes, power_losses=power_losses)
        except OF_THE_TEST:
            raise
        except Exception as error:
            return [f"the run ended with {type(error).__name__}: {error}"]
        if report.faults:
            return report.faults
    return []


def test_acknowledging_before_the_write_is_found_by_killing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.simulation.disk.SLOWEST_SYNC", SLOW)
    monkeypatch.setattr(Durability, "lsn", property(lambda _: EVERYTHING, lambda *_: None), raising=False)
    assert any("another producer has it" in fault for fault in _first_faults(power_losses=0)), "seen before a loss is"


def test_leaving_out_the_sync_is_found_by_power_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.simulation.disk.Content.settle", lambda _content, _upto: None)
    assert _first_faults(power_losses=1)


@pytest.mark.parametrize("seeds", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_without_the_mutants_the_same_runs_are_clean(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _first_faults(power_losses=1, seeds=seeds) == []
    monkeypatch.setattr("fencepost.simulation.disk.SLOWEST_SYNC", SLOW)
    assert _first_faults(power_losses=0, seeds=seeds) == []
