"""The workload over real sockets: Fencepost keeps its promises, and a broker that does not is found out."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.simulation.librdkafkas_mock import mock_cluster

from fencepost.broker import running_broker
from fencepost.client import Admin
from fencepost.client.errors import ClientError
from fencepost.runtime import Runtime
from fencepost.simulation.properties import property_of
from fencepost.simulation.real_runs import RealPlan, Report, real_plan_of, work_on
from fencepost.simulation.script import RequestFault
from fencepost.simulation.workload import Load

SECONDS = 1.0
#: Impatient, and with much of everything.
LOAD = Load(
    positions=0.5,
    takeovers=0.4,
    transaction_timeout_ms=5000,
    request_timeout_ms=2000,
    delivery_timeout_ms=10_000,
    pause=0.005,
    batch_bytes=100,
    impatience_ms=2000,
)
EVERYBODY = dict.fromkeys(("single", "pipelined", "windowed", "older", "reader", "onlooker", "impatient"), 1) | {
    "producer": 2
}
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


@pytest.fixture(autouse=True)
def no_warnings_of_clients() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def plan(seed: int, faults: float = 0.03, longer: int = 0) -> RealPlan:
    """`longer`: how often its time is doubled, where others keep the machine so busy that a run gets to little."""
    return RealPlan(seed, SECONDS * 2**longer, EVERYBODY, LOAD, dict.fromkeys(RequestFault, faults) if faults else {})


@dataclass
class Seen:
    """What there was to see in some runs."""

    committed: int = 0
    aborted: int = 0
    reads: int = 0
    positions: int = 0
    befallen: set[str] = field(default_factory=set)

    def add(self, report: Report) -> None:
        self.committed += len(report.outcomes.committed)
        self.aborted += len(report.outcomes.aborted)
        self.reads += report.reads
        self.positions += len(report.outcomes.positions)
        self.befallen |= set(report.befallen)

    @property
    def is_enough(self) -> bool:
        much = self.committed > 20 and self.aborted > 5 and self.reads > 1 and self.positions > 0
        return much and self.befallen == {fault.value for fault in RequestFault}


def carry_out(plan: RealPlan, address: str, story: list[str] | None = None) -> Report:
    return asyncio.run(work_on(plan, Runtime.real(), address, (list[str]() if story is None else story).append))


@contextmanager
def node_with_a_bug(name: str, folder: Path) -> Iterator[str]:
    """The address of a node process into whose code a bug was put."""
    put_in = f"from fencepost.simulation import bugs; bugs.put_in({name!r})"
    serve = "import sys; from fencepost.cli import main; main(['serve', *sys.argv[1:]])"
    options = ["--listen", "127.0.0.1:0", "--data", str(folder / "data"), "--flush", "os"]
    command = [sys.executable, "-c", f"{put_in}; {serve}", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[4].rstrip(",")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("level", [2, 1])
def test_no_promise_is_broken(level: int) -> None:
    async def finalize(address: str) -> None:
        async with Admin(address) as admin:
            await admin.update_feature("transaction.version", level)

    async def left(address: str) -> tuple[list[str], list[str]]:
        async with Admin(address) as admin:
            return [name for name in await admin.topics() if name[0] != "_"], list(await admin.list_groups())

    story: list[str] = []
    seen = Seen()
    with running_broker(settings=SETTINGS, flush="os") as broker:
        asyncio.run(finalize(broker.bootstrap_servers))
        for number in range(5):
            report = carry_out(plan(level + 2 * number, longer=number), broker.bootstrap_servers, story)
            assert asyncio.run(left(broker.bootstrap_servers)) == ([], []), story[-3:]
            assert report.faults == []
            assert report.found.level == level
            seen.add(report)
            if seen.is_enough and any("is fenced" in line for line in story):
                break
    assert seen.is_enough, seen
    assert any("is fenced" in line for line in story), "zombies went on"


@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        ("add-by-anybody-of-the-id", "_ of the aborted transaction _ is shown"),
        ("aborted-not-indexed", "_ of the aborted transaction _ is shown"),
        ("pending-offset-forgotten", "the group _ is at _, it should be at _"),
    ],
)
def test_a_node_that_breaks_one_is_found_out(bug: str, broken: str, tmp_path: Path) -> None:
    with node_with_a_bug(bug, tmp_path) as address:
        runs = (carry_out(plan(seed, 0, longer=seed // 2), address) for seed in range(7))
        assert any(broken in map(property_of, report.faults) for report in runs)


def test_librdkafkas_mock_cluster_breaks_them() -> None:
    """The negative control: it knows transactions only as far as its own clients' tests need them."""
    to_find = {"_ of the aborted transaction _ is shown", "_ was committed by a zombie"}
    found, committed = set[str](), 0
    with mock_cluster() as address:
        for number in range(5):
            report = carry_out(plan(1, longer=number), address)
            found |= {property_of(fault) for fault in report.faults}
            committed += len(report.outcomes.committed)
            if to_find <= found and committed > 20:
                break
    assert to_find <= found
    assert committed > 20


def test_a_seed_decides_the_plan() -> None:
    plans = [real_plan_of(seed, 1) for seed in range(40)]
    assert plans == [real_plan_of(seed, 1) for seed in range(40)]
    assert {fault for each in plans for fault in each.request_faults} == set(RequestFault)
    assert all(each.clients["producer"] and each.clients["reader"] and each.clients["onlooker"] for each in plans)
    assert {kind for each in plans for kind, count in each.clients.items() if count} == set(EVERYBODY)


def test_of_several_addresses_the_first_that_answers_is_taken() -> None:
    with running_broker(flush="os") as broker:
        only_read = RealPlan(1, 0.01, {"reader": 1}, LOAD, {})
        assert carry_out(only_read, f"127.0.0.1:1,{broker.bootstrap_servers}").faults == []
    with pytest.raises(ClientError, match="cannot be reached"):
        carry_out(only_read, "127.0.0.1:1")
