"""`fencepost simulate`: what it prints is decided by the seed, and bad input is refused in one sentence."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
from collections import Counter

import pytest

from fencepost.cli import main, parser
from fencepost.cli.check import _again
from fencepost.cli.simulate import again, duration
from fencepost.simulation import drawn_runs
from fencepost.simulation.drawn_runs import Plan, Report
from fencepost.simulation.workload import Outcomes


def test_a_run_tells_its_story_and_ends_with_a_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "7", "--for", "200ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0.000000 broker started, life 1"
    assert lines[-1].startswith("seed 7 ")
    assert len(lines[-1].split()[-1]) == 64


def test_faults_may_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "1", "--for", "500ms", "--faults", "power-lost"]) == 0
    out = capsys.readouterr().out
    assert "power lost" in out
    assert "broker killed" not in out


def test_a_bug_is_found_and_the_command_that_repeats_it_is_told() -> None:
    command = ["simulate", "--bug", "produce-too-early", "--runs", "10", "--quiet", "--until-broken"]
    found = subprocess.run([sys.executable, "-m", "fencepost", *command], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "BROKEN: " in found.stdout
    told = shlex.split(found.stderr.rpartition("again: ")[2])
    assert told[:2] == ["fencepost", "simulate"]
    repeated = subprocess.run([sys.executable, "-m", *told, "--quiet"], capture_output=True, text=True, check=False)
    assert repeated.returncode == 1
    assert repeated.stdout.splitlines()[-1] == found.stdout.splitlines()[-1]


@pytest.mark.parametrize("until_broken", [False, True])
@pytest.mark.parametrize("broken", [[], [5], [6], [7], [5, 7]])
def test_one_broken_seed_of_several_is_told_and_is_what_the_runs_end_with(
    broken: list[int], until_broken: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(plan: Plan) -> Report:
        faults = ["a promise"] if plan.seed in broken else []
        return Report(plan, [f"story of {plan.seed}"], faults, Outcomes(), Counter())

    monkeypatch.setattr(drawn_runs, "carry_out", carry_out)
    arguments = ["simulate", "--seed", "5", "--runs", "3", "--quiet", *(["--until-broken"] if until_broken else [])]
    assert main(arguments) == (1 if broken else 0)
    told = capsys.readouterr()
    carried_out = [seed for seed in (5, 6, 7) if not (until_broken and broken and seed > broken[0])]
    assert [line.split()[1] for line in told.out.splitlines() if line.startswith("seed ")] == list(
        map(str, carried_out)
    )
    assert told.out.count("BROKEN: a promise") == len(told.err.splitlines()) == len({*broken} & {*carried_out})


@pytest.mark.parametrize(
    "given",
    [
        ["simulate", "--seed", "5", "--for", "2s", "--faults", "killed, power-lost"],
        ["simulate", "--seed", "5", "--for", "2s", "--bug", "no such; bug"],
        ["check", "--bootstrap-server", "a:1, [::1]:2", "--seed", "5", "--for", "2s"],
    ],
)
def test_the_command_that_repeats_a_seed_means_the_same_in_a_shell(given: list[str]) -> None:
    command = parser(given)
    options = command.parse_args(given)
    told = again(options, 5) if given[0] == "simulate" else _again(options, 5)
    assert command.parse_args(shlex.split(told)[1:]) == options


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed", "-1"], "--seed -1: it must be 0 to 9223372036854775807"),
        (["--seed", str(2**63)], "it must be 0 to 9223372036854775807"),
        (["--runs", "0"], "--runs 0: it must be at least 1"),
        (["--seed", str(2**63 - 2), "--runs", "3"], "--runs 3: from --seed 9223372036854775806 on there are 2"),
        (["--for", "ever"], "--for ever: a time is a number and ms, s, m or h"),
        (["--for", "8761h"], "--for 8761h: it must be at most 8760h"),
        (["--for", "9" * 400 + "h"], "h: it must be at most 8760h"),
        (["--for", "\u0663s"], "s: a time is a number"),
        (["--for", "0s"], "--for 0s: a time is a number"),
        (["--faults", "killed,flood"], "--faults flood: there is no such fault; there are killed, "),
        (["--bug", "everything"], "--bug everything: there is no such bug; --bug list names them"),
        (["--history", "/proc/no/such"], "--history /proc/no/such: it cannot be written: No such file or directory"),
        (["--page", "/"], "--page /: it cannot be written: Is a directory"),
        (["--history", "x", "--runs", "2"], "--history: of one seed at a time, without --runs"),
        (["--shrink", "--tries", "0"], "--tries 0: it must be at least 1"),
        (["--shrink", "--runs", "2"], "--shrink: of one seed at a time, without --runs"),
        (["--history", ""], "--history : it cannot be written: No such file or directory"),
        (["--page", ""], "--page : it cannot be written: No such file or directory"),
        (["--shrink", "--page", "x"], "--page: what --shrink tries is not saved"),
        (["--shrink", "--history", "x"], "--history: what --shrink tries is not saved"),
        (["--shrink", "--for", "10ms"], "--shrink: with seed 0 no promise is broken, so there is nothing to shrink"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_a_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("3s", 3.0), ("10m", 600.0), ("1.5h", 5400.0), ("8760h", 31_536_000.0)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("code", [0, 2])
def test_what_is_logged_elsewhere_in_the_process_is_logged_again_afterwards(code: int) -> None:
    given = ["--for", "10ms", "--quiet"] if code == 0 else ["--for", "10ms", "--page", "/"]
    for before in (logging.NOTSET, logging.DEBUG):
        logging.disable(before)
        try:
            assert main(["simulate", *given]) == code
            assert logging.root.manager.disable == before
        finally:
            logging.disable(logging.NOTSET)


def test_a_bug_does_not_go_into_a_process_that_has_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    import fencepost.log.partition  # noqa: F401

    assert main(["simulate", "--bug", "duplicate-too-early"]) == 2
    assert "a fresh process only" in capsys.readouterr().err


def test_bugs_and_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--bug", "list"]) == 0
    assert main(["simulate", "--faults", "list"]) == 0
    out = capsys.readouterr().out
    assert "window-of-one " in out
    assert "\ncoordinator-moves\n" in out
