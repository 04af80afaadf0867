"""The command line as a whole: what it says of its commands and options, and of what it does not know."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest

from fencepost import __version__
from fencepost.cli import COMMANDS, GROUPS, main, parser
from fencepost.compiled.in_use import IN_USE


def options_of(command: str) -> list[argparse.Action]:
    """Those of one command, without --help."""
    actions = parser([command])._actions
    (commands,) = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    return [action for action in commands.choices[command]._actions if action.dest != "help"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """Exit code, and what was printed, which is on standard output only if all is well."""
    try:
        code: object = main(arguments)
    except SystemExit as left:
        code = left.code
    printed, refused = capsys.readouterr()
    assert bool(refused) == bool(code) and bool(printed) != bool(code)
    return code, printed or refused


def test_help_names_every_command_in_its_group_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = said(capsys, "--help")
    assert code == 0
    for group, commands in GROUPS.items():
        part = told.partition(f"\n{group}:\n")[2].partition("\n\n")[0]
        for command, (purpose, _) in commands.items():
            assert any(line.split(maxsplit=1) == [command, purpose] for line in part.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does_and_its_default(command: str) -> None:
    assert options_of(command)
    for option in options_of(command):
        assert option.help, option.dest
        assert "default" in option.help or "(required)" in option.help, option.dest


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_names_its_options_and_their_values(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, told = said(capsys, command, "--help")
    assert code == 0
    assert COMMANDS[command][0] in told
    for option in options_of(command):
        assert (option.option_strings or [str(option.metavar)])[0] in told
        assert option.default in (None, False, []) or str(option.default) in told
        assert option.nargs == 0 or option.metavar or option.choices, "what may be given is said"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == (0, f"fencepost {__version__} ({IN_USE.why})\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "a command is missing"),
        (["frobnicate"], "'frobnicate'"),
        (["serv"], "'serv'"),
        ([""], "''"),
        (["--frob"], "a command is missing"),
        (["serve"], "--data"),
        (["serve", "--data"], "--data"),
        (["serve", "--data", ""], "--data"),
        (["serve", "--data", "d", "--frob", "7"], "'--frob'"),
        (["serve", "--data", "d", "more"], "'more'"),
        (["serve", "--data", "d", "--flush", "never"], "'never'"),
        (["serve", "--data", "d", "--set", "num.partitions"], "num.partitions"),
        (["serve", "--data", "d", "--set", "num.partitons=3"], "num.partitons"),
    ],
)
def test_what_it_cannot_use_is_named_in_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    code, told = said(capsys, *arguments)
    assert code == 2
    assert told.startswith("fencepost") and named in told
    assert len(told.splitlines()) == 1 and "usage" not in told


PRINTING = (["--help"], ["--version"], ["simulate", "--faults", "list"], ["simulate", "--bug", "list"])
buffered_or_not = pytest.mark.parametrize("unbuffered", ["", "1"])


def printed_to(output: int, arguments: list[str], unbuffered: str) -> tuple[int, str]:
    """Exit code, and what is said on standard error."""
    command, environment = [sys.executable, "-m", "fencepost", *arguments], {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, **environment}
    )
    os.close(output)
    return done.returncode, done.stderr


@buffered_or_not
@pytest.mark.parametrize("arguments", PRINTING)
def test_where_nothing_can_be_printed_it_says_so_in_one_sentence(arguments: list[str], unbuffered: str) -> None:
    code, told = printed_to(os.open("/dev/full", os.O_WRONLY), arguments, unbuffered)
    assert (code, told) == (1, "fencepost: what it says cannot be written: No space left on device\n")


@buffered_or_not
@pytest.mark.parametrize("arguments", PRINTING)
def test_who_reads_no_further_is_told_nothing_more(arguments: list[str], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    assert printed_to(write, arguments, unbuffered) == (141, "")


def test_ctrl_c_while_a_command_is_loaded_ends_it_quietly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["simulate"]) == 130
    assert capsys.readouterr() == ("", "")


def test_help_loads_no_command() -> None:
    loaded = "import sys; from fencepost.cli import parser; parser([]); print('fencepost.cli.serve' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
