"""`fencepost simulate`: a node, its clients and everything that goes wrong, in one process, decided by a seed."""

from __future__ import annotations

import argparse
import logging
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.cli import Refused
from fencepost.cli.files import Output

if TYPE_CHECKING:
    from fencepost.simulation.drawn_runs import Report
    from fencepost.simulation.plans import Plan
    from fencepost.simulation.troubles import Trouble

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST: Final = 365 * 24 * 3600
"""The longest `--for`, in seconds."""
LARGEST_SEED: Final = 2**63 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fencepost simulate`."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides everything, 0 to 2^63-1 (default: 0)")
    parser.add_argument(
        "--for",
        dest="duration",
        default="3s",
        metavar="TIME",
        help="how long they work, in virtual time: 500ms, 3s, 10m, 1h (default: 3s)",
    )
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="so many seeds, one after the other (default: 1)"
    )
    parser.add_argument(
        "--until-broken", action="store_true", help="end with the first seed that fails (default: with the last)"
    )
    parser.add_argument(
        "--faults",
        metavar="NAMES",
        help="what goes wrong, separated by commas; 'list' names them (default: drawn from the seed)",
    )
    parser.add_argument(
        "--bug", metavar="NAME", help="put this bug into the code first; 'list' names them (default: none)"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="only what failed, and the digest (default: the whole story)"
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        help="save everything that happens, for `fencepost history` (default: not saved)",
    )
    parser.add_argument("--page", metavar="OUT.html", help="write a page that shows it in any browser (default: none)")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="print the shortest plan that fails as this seed does, as a test (default: run the seed once)",
    )
    parser.add_argument(
        "--tries", type=int, default=500, metavar="N", help="plans that --shrink tries, at most (default: 500)"
    )


def run(options: argparse.Namespace) -> int:
    """Run simulations; exit code 1 if a promise was broken, else 0.  Raises Refused for options it cannot use."""
    seconds = duration(options.duration)
    check_seeds(options.seed, options.runs)
    if options.tries < 1:
        raise Refused(f"--tries {options.tries}: it must be at least 1")
    for option in ("history", "page", "shrink"):
        if options.runs > 1 and getattr(options, option):
            raise Refused(f"--{option}: of one seed at a time, without --runs")
    for option in ("history", "page"):
        if options.shrink and getattr(options, option) is not None:
            raise Refused(f"--{option}: what --shrink tries is not saved; run the seed once without --shrink")
    if options.bug is not None and not _put_in(options.bug):
        return 0
    if options.faults == "list":
        from fencepost.simulation.troubles import Trouble

        print("\n".join(trouble.name.lower().replace("_", "-") for trouble in Trouble))
        return 0
    troubles = None if options.faults is None else _troubles(options.faults)
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        if options.shrink:
            from fencepost.cli.shrink import shrink
            from fencepost.simulation.plans import plan_of

            plan = plan_of(options.seed, seconds, troubles)
            return shrink(plan, again(options, options.seed), options.tries)
        return _simulate(options, seconds, troubles)
    finally:
        logging.disable(former)


def _simulate(options: argparse.Namespace, seconds: float, troubles: Sequence[Trouble] | None) -> int:
    from fencepost.simulation import drawn_runs

    failed = False
    outputs = {
        name: Output(f"--{name}", path) for name in ("history", "page") if (path := getattr(options, name)) is not None
    }
    if len(outputs) > 1 and outputs["page"].is_at(options.history):
        raise Refused(f"--page {options.page}: it is the file of --history, too; name another one")
    for seed in range(options.seed, options.seed + options.runs):
        report, history = _carried_out(drawn_runs.plan_of(seed, seconds, troubles), again(options, seed), outputs)
        for line in () if options.quiet else report.history:
            print(line)
        for fault in report.faults:
            print(f"BROKEN: {fault}")
        print(f"seed {seed} {report.digest}{history}")
        if report.faults:
            failed = True
            print(f"broken with seed {seed}; again: {again(options, seed)}", file=sys.stderr)
            if options.until_broken:
                break
    return 1 if failed else 0


def _carried_out(plan: Plan, command: str, outputs: Mapping[str, Output]) -> tuple[Report, str]:
    """The report of a run, and a text with the digest of its history; empty without outputs."""
    from fencepost.simulation import drawn_runs

    if not outputs:
        return drawn_runs.carry_out(plan), ""
    from fencepost.simulation.history import file_format, page
    from fencepost.simulation.recorded_runs import carry_out_recorded

    report, events = carry_out_recorded(plan, command)
    if "history" in outputs:
        outputs["history"].write(file_format.lines(events))
    if "page" in outputs:
        outputs["page"].write(page.of(events))
    return report, f" history {file_format.digest_of(events)}"


def again(options: argparse.Namespace, seed: int) -> str:
    """The command, for a shell, that repeats a seed."""
    words = ["fencepost", "simulate", "--seed", str(seed), "--for", options.duration]
    for name in ("faults", "bug"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name}", value]
    return shlex.join(words)


def _put_in(name: str) -> bool:
    """Put this bug in, or list all (`list`); whether one was put in.  Raises Refused."""
    from fencepost.simulation import bugs

    if name == "list":
        for bug in bugs.BUGS.values():
            print(f"{bug.name:45} {bug.what}")
        return False
    try:
        bugs.put_in(name)
    except bugs.BugUnusable as unusable:
        raise Refused(str(unusable)) from None
    return True


def _troubles(names: str) -> list[Trouble]:
    from fencepost.simulation.troubles import Trouble

    known = {trouble.name.lower().replace("_", "-"): trouble for trouble in Trouble}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise Refused(f"--faults {unknown[0]}: there is no such fault; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def check_seeds(first: int, runs: int) -> None:
    """Raises Refused unless `runs` seeds, one at least, from `first` on are in the range."""
    if not 0 <= first <= LARGEST_SEED:
        raise Refused(f"--seed {first}: it must be 0 to {LARGEST_SEED}")
    if runs < 1:
        raise Refused(f"--runs {runs}: it must be at least 1")
    if (there := LARGEST_SEED + 1 - first) < runs:
        raise Refused(f"--runs {runs}: from --seed {first} on there are {there}")


def duration(text: str) -> float:
    """The seconds of a time like 500ms or 10m.  Raises Refused for what is none, or longer than 365 days."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text, re.ASCII)
    if found is None or not float(found[1]):
        raise Refused(f"--for {text}: a time is a number and ms, s, m or h, as in 500ms or 10m")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST:
        raise Refused(f"--for {text}: it must be at most {_LONGEST // 3600}h")
    return seconds
