"""Whatever bytes come, no handler fails, nobody waits long, memory stays, and the control client's work is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fuzz.fuzzing import Fuzzing, Report, TimedRounds

from fencepost.simulation.loop import VirtualLoop, run

CASES = Path(__file__).parent / "cases.txt"
SECONDS = 45
"""Of the processor; a slow machine does fewer requests in that."""
MOST_MS = 500
MOST_MB = 400


def fuzz(seed: int, requests: int, seconds: float) -> Report:
    loop = TimedRounds()

    async def main(_: VirtualLoop) -> Report:
        fuzzing = Fuzzing(loop, seed)
        await fuzzing.begin()
        report = await fuzzing.run(requests, seconds)
        await fuzzing.world.stop()
        return report

    report = run(main, lambda: loop)
    print(
        f"\nseed {seed}: {report.requests} requests, {report.handled} handled, "
        f"the longest took {report.longest_ms:.0f} ms ({report.longest[:60].hex()}), {report.grown_mb:.0f} MB more"
    )
    return report


def check(report: Report) -> None:
    assert not report.failures, [(text[-1500:], frame.hex()) for text, frame in report.failures[:3]]
    assert report.handled > report.requests // 4
    assert report.longest_ms < MOST_MS, report.longest.hex()
    assert report.grown_mb < MOST_MB


def test_the_cases_that_were_found_once() -> None:
    """`cases.txt`: a frame on each line, in hexadecimal; what fails is printed so that it can be put there."""

    loop = TimedRounds()

    async def main(_: VirtualLoop) -> Report:
        fuzzing = Fuzzing(loop, 0)
        await fuzzing.begin()
        await fuzzing.replay([bytes.fromhex(line) for line in CASES.read_text().split()])
        await fuzzing.control()
        await fuzzing.world.stop()
        return fuzzing.report

    report = run(main, lambda: loop)
    assert not report.failures, report.failures
    assert report.longest_ms < MOST_MS, report.longest.hex()


def test_two_hundred_thousand_requests() -> None:
    check(fuzz(1, 200_000, SECONDS))


@pytest.mark.soak
def test_twenty_million_requests() -> None:
    """Goes on from FENCEPOST_SEED; each part of it is a node of its own."""
    first = int(os.environ.get("FENCEPOST_SEED") or 2)
    for seed in range(first, first + 100):
        check(fuzz(seed, 200_000, 600))
