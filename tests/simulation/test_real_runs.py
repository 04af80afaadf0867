"""The workload over real sockets: Fencepost keeps its promises, and a broker that does not is found out."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
EVERYBODY = {"producer": 2, "single": 1, "pipelined": 1, "windowed": 1, "older": 1, "reader": 1, "onlooker": 1}
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


@pytest.fixture(autouse=True)
def no_warnings_of_clients() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def plan(seed: int, faults: float = 0.03) -> RealPlan:
    return RealPlan(seed, SECONDS, EVERYBODY, LOAD, dict.fromkeys(RequestFault, faults) if faults else {})


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
    with running_broker(settings=SETTINGS, flush="os") as broker:
        asyncio.run(finalize(broker.bootstrap_servers))
        report = carry_out(plan(level), broker.bootstrap_servers, story)
        assert asyncio.run(left(broker.bootstrap_servers)) == ([], []), "nothing of a run stays"
    assert report.faults == []
    assert report.found.level == level
    assert len(report.outcomes.committed) > 20 and len(report.outcomes.aborted) > 5 and report.reads > 1
    assert report.outcomes.positions
    assert set(report.befallen) == {fault.value for fault in RequestFault}
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
        runs = (carry_out(plan(seed, 0), address) for seed in range(5))
        assert any(broken in map(property_of, report.faults) for report in runs)


def test_librdkafkas_mock_cluster_breaks_them() -> None:
    """The negative control: it knows transactions only as far as its own clients' tests need them."""
    with mock_cluster() as address:
        report = carry_out(plan(1), address)
    found = {property_of(fault) for fault in report.faults}
    assert {"_ of the aborted transaction _ is shown", "_ was committed by a zombie"} <= found
    assert len(report.outcomes.committed) > 20


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
