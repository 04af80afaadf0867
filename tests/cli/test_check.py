"""`fencepost check`: what came of the work on a cluster, and one sentence where there is none."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.processes import begun
from tests.simulation.librdkafkas_mock import mock_cluster

from fencepost.broker import running_broker
from fencepost.cli import main
from fencepost.client.blocking import Admin
from fencepost.simulation import real_runs
from fencepost.simulation.real_runs import RealPlan


def check(address: str, *options: str) -> int:
    return main(["check", "--bootstrap-server", address, "--for", "500ms", *options])


def test_where_all_is_well_the_last_line_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker(flush="os") as broker:
        assert check(broker.bootstrap_servers, "--seed", "2") == 0
        story = capsys.readouterr().out.splitlines()
        assert check(broker.bootstrap_servers, "--seed", "2", "--quiet", "--runs", "2") == 0
    assert "brokers: 1, transaction.version 2" in story[0]
    assert any("no more faults" in line for line in story)
    assert story[-1].startswith("seed 2: transactions: ") and " late" in story[-1]
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["seed 2", "seed 3"]


def test_a_broken_promise_is_told_with_the_command_that_looks_again(capsys: pytest.CaptureFixture[str]) -> None:
    with mock_cluster() as address:
        assert check(address, "--seed", "2", "--quiet", "--runs", "3", "--until-broken") == 1
    told = capsys.readouterr()
    *broken, last = told.out.splitlines()
    assert 0 < len(broken) <= 21 and all(line.startswith("BROKEN: ") for line in broken)
    assert any("of the aborted transaction" in line for line in broken)
    seed = last.split()[1].rstrip(":")
    again = f"again: fencepost check --bootstrap-server {address} --seed {seed} --for 500ms"
    assert again in told.err.splitlines()[-1]


@pytest.mark.parametrize("until_broken", [False, True])
@pytest.mark.parametrize("broken", [[], [5], [6], [7], [5, 7]])
def test_one_broken_seed_of_several_is_told_and_is_what_the_check_ends_with(
    broken: list[int], until_broken: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work_on(plan: RealPlan, *_: object) -> Any:
        faults = ["a promise"] if plan.seed in broken else []
        outcomes = SimpleNamespace(committed=[], aborted=[], unknown=[])
        return SimpleNamespace(plan=plan, faults=faults, outcomes=outcomes, befallen={}, reads=0)

    monkeypatch.setattr(real_runs, "work_on", work_on)
    options = ["--seed", "5", "--runs", "3", "--quiet", *(["--until-broken"] if until_broken else [])]
    assert check("127.0.0.1:1", *options) == (1 if broken else 0)
    assert logging.root.manager.disable == logging.NOTSET, "as it was before"
    told = capsys.readouterr()
    carried_out = [seed for seed in (5, 6, 7) if not (until_broken and broken and seed > broken[0])]
    ends = [line.split(":")[0] for line in told.out.splitlines() if line.startswith("seed ")]
    assert ends == [f"seed {seed}" for seed in carried_out]
    assert told.out.count("BROKEN: a promise") == len(told.err.splitlines()) == len({*broken} & {*carried_out})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["127.0.0.1:1"], "--bootstrap-server 127.0.0.1:1: 127.0.0.1:1 cannot be reached: "),
        (["127.0.0.1"], "--bootstrap-server has '127.0.0.1': it must be host:port"),
        (["127.0.0.1:1", "--seed", "-1"], "--seed -1: it must be 0 to 9223372036854775807"),
        (["127.0.0.1:1", "--runs", "0"], "--runs 0: it must be at least 1"),
        (["127.0.0.1:1", "--for", "ever"], "--for ever: a time is a number and ms, s, m or h"),
    ],
)
def test_what_cannot_be_worked_on_is_refused_in_a_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address, *options = arguments
    assert main(["check", "--bootstrap-server", address, *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert told.err.startswith(f"fencepost check: {says}")


def test_who_hears_no_more_of_the_story_is_told_of_no_broken_promise() -> None:
    with running_broker(flush="os") as broker:
        command = [sys.executable, "-m", "fencepost", "check", "--bootstrap-server", broker.bootstrap_servers]
        process = begun(
            subprocess.Popen(
                [*command, "--for", "500ms"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        )
        assert process.stdout is not None and process.stderr is not None
        assert "brokers: 1" in process.stdout.readline()
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (141, "")
        process.stderr.close()


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_who_interrupts_it_has_nothing_of_it_left_in_the_cluster(seed: str) -> None:
    """Its clients work until the end comes: none may make a topic anew by asking for it."""
    with running_broker(flush="os") as broker, Admin(broker.bootstrap_servers) as admin:
        command = [sys.executable, "-u", "-m", "fencepost", "check", "--bootstrap-server", broker.bootstrap_servers]
        process = begun(
            subprocess.Popen([*command, "--for", "1m", "--seed", seed], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        assert process.stdout is not None
        for _ in range(40):
            process.stdout.readline()
        assert any(name.startswith("fencepost.check.") for name in admin.topics())
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (130, b"")
        assert [name for name in admin.topics() if not name.startswith("__")] == []
