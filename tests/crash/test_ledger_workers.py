"""Workers that read, transform and write exactly once, killed -9 again and again: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.crash.kill_cycles import Node
from tests.crash.ledger_workers import ACCOUNTS, SESSION_MS, faults_of, storm
from tests.seeds import seeds


def run(folder: Path, kills: int, count: int, seed: int) -> list[str]:
    node = Node(folder / "data")
    node.command += [
        "--set",
        f"group.min.session.timeout.ms={SESSION_MS}",
        "--set",
        "group.initial.rebalance.delay.ms=0",
    ]
    node.start()
    try:
        return asyncio.run(storm(node.address, "", folder / "workers.log", kills=kills, count=count, seed=seed))
    finally:
        node.kill()


def test_three_workers_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, kills=6, count=600, seed=1) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(4))
def test_three_workers_that_are_killed_a_hundred_times(tmp_path: Path, seed: int) -> None:
    assert run(tmp_path, kills=100, count=20_000, seed=seed + 2) == []


def test_the_verdict_sees_each_kind_of_fault() -> None:
    right = {str(account): [account, account + ACCOUNTS] for account in range(ACCOUNTS)}
    assert faults_of(right, 2 * ACCOUNTS) == []
    for wrong, said in (
        ([0], "lost"),
        ([0, ACCOUNTS, 0], "2 times"),
        ([0, ACCOUNTS, 1], "no payment"),
        ([ACCOUNTS, 0], "order"),
    ):
        (fault,) = faults_of(right | {"0": wrong}, 2 * ACCOUNTS)
        assert said in fault
