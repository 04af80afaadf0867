"""The command line.  Each command is a module with `add_arguments` and `run`; only the one that is used is imported."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from fencepost import __version__

#: command -> what it does, and the module that does it
COMMANDS: Final = {
    "serve": ("run a broker", "fencepost.cli.serve"),
}


class Refused(Exception):
    """The command cannot be carried out as it was given; the message says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code: 0, 1 if it failed, 2 if it was given something that it cannot use."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="fencepost", description="Transactional messaging that speaks Kafka's protocol."
    )
    parser.add_argument("--version", action="version", version=f"fencepost {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    wanted = next((word for word in given if word in COMMANDS), None)
    for name, (purpose, module) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        if name == wanted:
            importlib.import_module(module).add_arguments(command)
    options = parser.parse_args(given)
    try:
        code: int = importlib.import_module(COMMANDS[options.command][1]).run(options)
    except Refused as refused:
        print(f"fencepost {options.command}: {refused}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code
