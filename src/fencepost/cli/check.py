"""`fencepost check`: the workload and the checkers of the simulation, pointed at a cluster that runs somewhere."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fencepost.cli import Refused
from fencepost.cli.simulate import check_seeds, duration
from fencepost.cli.standard_output import say
from fencepost.client.addresses import addresses_of
from fencepost.client.security import renamed
from fencepost.runtime import Runtime

if TYPE_CHECKING:
    from fencepost.simulation.real_runs import Report

_SHOWN: Final = 20
"""Broken promises of a run that are printed one by one, at most."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fencepost check`."""
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", required=True, help="where a broker is (required)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="decides who does what, and what is lost (default: 0)"
    )
    parser.add_argument(
        "--for", dest="duration", default="10s", metavar="TIME", help="how long requests go wrong (default: 10s)"
    )
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="so many seeds, one after the other (default: 1)"
    )
    parser.add_argument(
        "--until-broken", action="store_true", help="end with the first seed that fails (default: with the last)"
    )
    parser.add_argument("--quiet", action="store_true", help="only what came of it (default: the whole story)")


def run(options: argparse.Namespace) -> int:
    """Run the check; exit code 1 if a promise was broken, else 0.  Raises Refused, as for a broker it cannot reach."""
    from fencepost.client import ClientError

    seconds = duration(options.duration)
    check_seeds(options.seed, options.runs)
    try:
        addresses_of(options.bootstrap_server)
    except ValueError as wrong:
        raise Refused(renamed(str(wrong), {"bootstrap_servers": "--bootstrap-server"})) from None
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return _check(options, seconds)
    except ClientError as error:
        raise Refused(f"--bootstrap-server {options.bootstrap_server}: {error}") from None
    finally:
        logging.disable(former)


def _check(options: argparse.Namespace, seconds: float) -> int:
    from fencepost.simulation.real_runs import real_plan_of, work_on

    failed = False
    for seed in range(options.seed, options.seed + options.runs):
        tell = _say_nothing if options.quiet else _say_it
        report = asyncio.run(work_on(real_plan_of(seed, seconds), Runtime.real(), options.bootstrap_server, tell))
        for line in _lines(report):
            print(line)
        if report.faults:
            failed = True
            print(f"broken with seed {seed}; again: {_again(options, seed)}", file=sys.stderr)
            if options.until_broken:
                break
    return 1 if failed else 0


def _say_it(line: str) -> None:
    # Whoever tells has other things to do than to look whether somebody reads it.
    say(line)


def _say_nothing(line: str) -> None:
    """Drops a line about the run: `--quiet` was given."""


def _lines(report: Report) -> Iterator[str]:
    """The result of a run, line by line: broken promises, then the counts."""
    for fault in report.faults[:_SHOWN]:
        yield f"BROKEN: {fault}"
    if len(report.faults) > _SHOWN:
        yield f"BROKEN: {len(report.faults)} promises in all"
    outcomes = report.outcomes
    counts = f"{len(outcomes.committed)} committed, {len(outcomes.aborted)} aborted, {len(outcomes.unknown)} in doubt"
    befallen = ", ".join(f"{count} {what}" for what, count in sorted(report.befallen.items()))
    yield f"seed {report.plan.seed}: transactions: {counts}; reads: {report.reads}; requests: {befallen or 'all well'}"


def _again(options: argparse.Namespace, seed: int) -> str:
    """The command, for a shell, that repeats a seed; a cluster has its own time, so that it may take several runs."""
    words = ["fencepost", "check", "--bootstrap-server", options.bootstrap_server, "--seed", str(seed)]
    return shlex.join([*words, "--for", options.duration])
