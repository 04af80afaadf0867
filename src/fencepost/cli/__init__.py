"""The command line.  Each command is a module with `add_arguments` and `run`; only that which is used is imported."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from fencepost import __version__
from fencepost.cli.standard_output import StandardOutput

#: group -> command -> what it does, and the module that does it
GROUPS: Final = {
    "nodes": {
        "serve": ("run a broker until SIGTERM or SIGINT stops it", "fencepost.cli.serve"),
    },
    "clusters": {
        "transactions": (
            "list and describe transactions, find and abort those that hang",
            "fencepost.cli.transactions",
        ),
    },
    "proof": {
        "simulate": ("run everything on virtual time, and all that may go wrong", "fencepost.cli.simulate"),
        "check": (
            "work on a cluster that runs, and see which promises it breaks",
            "fencepost.cli.check",
        ),
        "history": ("tell what happened in a simulated run, or show it as a page", "fencepost.cli.history"),
    },
}
COMMANDS: Final = {name: command for commands in GROUPS.values() for name, command in commands.items()}


class Refused(Exception):
    """The command cannot be carried out as it was given; the message says why and what to do."""


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses arguments in one sentence, without the usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30), **options
        )

    def error(self, message: str) -> NoReturn:
        """Exits with 2, and the sentence on standard error."""
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` says what there is\n")


class _Version(argparse.Action):
    """The option --version: prints the version and ends the process with exit code 0."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        told = importlib.import_module("fencepost.compiled.in_use").IN_USE.why
        print(f"fencepost {__version__} ({told})")
        parser.exit()


def parser(given: Sequence[str]) -> Parser:
    """The parser of the whole command line; commands that are not among the words given have no options in it."""
    lines = ["Transactional messaging that speaks Kafka's protocol."]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:<14}{purpose}" for name, (purpose, _) in commands.items())]
    lines += ["", "`fencepost COMMAND --help` says what options a command has."]
    whole = Parser(prog="fencepost", usage="fencepost COMMAND [OPTION ...]", description="\n".join(lines))
    whole.add_argument("--version", action=_Version, help="say which version it is, and whether it is compiled")
    subparsers = whole.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    for name, (purpose, module) in COMMANDS.items():
        command = subparsers.add_parser(name, description=purpose, prog=f"fencepost {name}")
        if name in given:
            importlib.import_module(module).add_arguments(command)
    return whole


def main(arguments: Sequence[str] | None = None, begin: Callable[[], object] = lambda: None) -> int:
    """Run a command; `begin` is called when it is imported and has been understood, right before its work.

    Its exit code: 0, 1 if it failed, 2 if it was given something that it cannot use, 130 after Ctrl-C, 141 if nobody
    reads any more what it prints.
    """
    with StandardOutput() as output:
        try:
            try:
                code = _carried_out(sys.argv[1:] if arguments is None else list(arguments), begin)
            finally:
                output.flush()
        except KeyboardInterrupt:
            code = 130
        except (OSError, SystemExit):
            if output.failure is None:
                raise
    if output.failure is None:
        return code
    if isinstance(output.failure, BrokenPipeError):
        return 141
    print(f"fencepost: what it says cannot be written: {output.failure.strerror}", file=sys.stderr)
    return 1


def _carried_out(given: list[str], begin: Callable[[], object]) -> int:
    whole = parser(given)
    if given and not given[0].startswith("-") and given[0] not in COMMANDS:
        whole.error(f"there is no command {given[0]!r}")
    options, unknown = whole.parse_known_args(given)
    if options.command is None:
        whole.error("a command is missing")
    if unknown:
        whole.exit(
            2,
            f"fencepost {options.command}: it takes no {unknown[0]!r}; "
            f"`fencepost {options.command} --help` says what there is\n",
        )
    command = importlib.import_module(COMMANDS[options.command][1])
    begin()
    try:
        code: int = command.run(options)
    except Refused as refused:
        print(f"fencepost {options.command}: {refused}", file=sys.stderr)
        return 2
    return code
