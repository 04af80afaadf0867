"""How many transactions a second of processor time simulates, with readers and checkers on; and where it goes.

    python -m benchmarks.simulation
    python -m benchmarks.simulation --against ../earlier   # in turn with another checkout; the histories must agree
    python -m benchmarks.simulation --rooms                # what each room of the code takes

Both checkouts need `make setup`: a record kernel that is compiled in one of them only would be compared as well.

A transaction counts when its markers are written: those of producers, of loops that consume, transform and produce,
and micro-batches, committed or aborted.  Everything that a run does is in the time: start and crashes of the node, all
clients, what looks on, and the checkers at the end.  Processor time, of one thread, as a simulation has no other.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
_DEFAULT_SEEDS: Final = "seeds 0 to 19, each for as long as make test runs one"
_SAMPLE_SECONDS: Final = 0.001
_CALIBRATION: Final = 1_000_000


class Taken(NamedTuple):
    """What one mix took."""

    is_compiled: bool
    """Whether the record kernel was."""
    transactions: int
    seconds: float
    digests: list[str]
    """Of the histories."""


def _mixes() -> dict[str, list[Any]]:
    """What is run -> the plans of it.

    Producers are as seeds draw them where they are alone: 1 to 6 records to four partitions, a position in every third
    transaction, one in twenty replaced, one in five aborted.  Readers read again and again from the start.
    """
    from fencepost.simulation.plans import Circumstances, Plan, plan_of
    from fencepost.simulation.troubles import Trouble
    from fencepost.simulation.workload import Load

    quiet = Circumstances(
        settings={"group.initial.rebalance.delay.ms": 0},
        log={"segment_bytes": 10_000, "checkpoint_bytes": 30_000},
        producers=4,
        load=Load(positions=0.3, takeovers=0.05, transaction_timeout_ms=1500, request_timeout_ms=400),
        between=0.5,
    )
    failing = quiet._replace(troubles=(Trouble.KILLED, Trouble.POWER_LOST, Trouble.CONNECTIONS_CUT), readers=1)

    def plans(given: Circumstances) -> list[Any]:
        return [Plan(seed, 2, given, given.clients) for seed in range(3)]

    return {
        "4 producers, no reader": plans(quiet),
        "4 producers, 1 reader": plans(quiet._replace(readers=1)),
        "4 producers, 2 readers": plans(quiet._replace(readers=2)),
        "4 producers, 1 reader; kills, power losses, cut connections": plans(failing),
        _DEFAULT_SEEDS: [plan_of(seed, 3) for seed in range(20)],
    }


def _run(plans: Iterable[Any]) -> Taken:
    """Raises SystemExit if a promise is broken: then the figure is none."""
    from fencepost.compiled.in_use import compiled
    from fencepost.protocol.record_kernel import murmur2
    from fencepost.simulation.drawn_runs import carry_out
    from fencepost.simulation.reach import Mark, counted

    ends = Mark("a transaction ends", "fencepost.coordinator.transaction.coordinator:complete")
    digests: list[str] = []
    begun = time.process_time()
    with counted([ends]) as reached:
        for plan in plans:
            report = carry_out(plan)
            if report.faults:
                raise SystemExit(f"seed {plan.seed} is broken: {report.faults[0]}")
            digests.append(report.digest)
    return Taken(compiled(murmur2) is not None, reached[ends.what], time.process_time() - begun, digests)


def _take(wanted: str) -> None:
    """Of the code on the path: a line of JSON for each mix.  The first run is not counted, it compiles codecs."""
    logging.disable(logging.CRITICAL)
    mixes = _mixes()
    _run(next(iter(mixes.values()))[:1])
    print(json.dumps({name: _run(plans) for name, plans in mixes.items() if wanted in name}))


def _taken(checkout: Path, wanted: str) -> dict[str, Taken]:
    command = [sys.executable, str(ROOT / "benchmarks" / "simulation.py"), "--take", "--only", wanted]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONHASHSEED": "0"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return {name: Taken(*taken) for name, taken in json.loads(told).items()}


def measure(checkouts: dict[str, Path], rounds: int, wanted: str) -> None:
    """Print the figures of each checkout: the best of some rounds, taken in turn."""
    begun = time.process_time()
    for _ in range(_CALIBRATION):
        pass
    step = (time.process_time() - begun) / _CALIBRATION * 1e9
    print(f"an empty turn of a Python loop takes {step:.0f} ns here")
    found = [{name: _taken(checkout, wanted) for name, checkout in checkouts.items()} for _ in range(rounds)]
    for mix in found[0]["this"]:
        best = {name: min((each[name][mix] for each in found), key=lambda taken: taken.seconds) for name in checkouts}
        line = f"{mix:62}"
        for name, taken in best.items():
            how = "compiled" if taken.is_compiled else "in Python"
            line += f"  {name}, {how}: {taken.transactions / taken.seconds:,.0f}/s ({taken.transactions:,})"
        if "before" in best:
            ratio = best["this"].seconds / best["before"].seconds
            same = best["this"].digests == best["before"].digests
            line += f"  time {ratio:.3f}, {'the same histories' if same else 'OTHER HISTORIES'}"
        print(line)


def _room(frame: FrameType | None) -> str:
    """The innermost room of ours that is at work there: a package, or one of the simulation."""
    while frame is not None:
        _, found, path = frame.f_code.co_filename.rpartition("/fencepost/")
        if found:
            room, *rest = path.removesuffix(".py").split("/")
            return f"{room}/{rest[0]}" if room == "simulation" else room
        frame = frame.f_back
    return "elsewhere"


def rooms(wanted: str) -> None:
    """Print the share of the samples that each room has, and each function by itself, the largest first."""
    logging.disable(logging.CRITICAL)
    found: Counter[str] = Counter()
    functions: Counter[str] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        assert frame is not None, "Python was at work"
        found[_room(frame)] += 1
        functions[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"] += 1

    plans = [plan for name, each in _mixes().items() if wanted in name for plan in each]
    _run(plans[:1])
    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)
    _run(plans)
    signal.setitimer(signal.ITIMER_PROF, 0)
    for counter in (found, functions):
        for name, count in counter.most_common(25):
            print(f"{count / found.total():6.1%}  {name}")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, whose figures come first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument("--rooms", action="store_true", help="say where the time goes")
    parser.add_argument("--take", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.take:
        _take(options.only)
    elif options.rooms:
        rooms(options.only)
    else:
        before = {} if options.against is None else {"before": options.against.resolve()}
        measure({**before, "this": ROOT}, options.rounds, options.only)


if __name__ == "__main__":
    main()
