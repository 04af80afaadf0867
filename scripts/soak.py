"""Run simulated seeds on all cores for so many hours, new ones each time, and keep every failure.

    python scripts/soak.py --hours 8

In the folder (build/soak) there is a file for each failure: the seed, the failed property, the command that repeats it;
beside it, when it is found, a test of the shortest plan that fails.  `state.json` has the totals of all times.  Ctrl-C
ends it and loses nothing of that.  Exit code: 0, 1 if a failure was found, 2 for what it cannot use, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT

#: Seeds that one process runs, one after the other.
TOGETHER: Final = 20
#: Seconds that such a process may take, and that a failure may take to be shrunk.
PATIENCE: Final = 900
_FORMAT: Final = "fencepost-soak"
_VERSION: Final = 1
_BETWEEN_LINES: Final = 30.0
_LARGEST_START: Final = 2**62


class Totals(NamedTuple):
    """Of all times."""

    seeds: int = 0
    seconds: float = 0
    failures: int = 0


def load(state: Path) -> tuple[Totals, str]:
    """The totals, and what is to be said of a file that has none: it is put aside, and counting begins anew."""
    try:
        content = json.loads(state.read_bytes())
        assert content["format"] == _FORMAT and content["version"] == _VERSION
        numbers = [content[name] for name in Totals._fields]
        assert all(type(number) in (int, float) and number >= 0 for number in numbers)
    except FileNotFoundError:
        return Totals(), ""
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        aside = state.with_suffix(".damaged")
        os.replace(state, aside)
        return Totals(), f"{state} cannot be read and is now {aside.name}; the totals begin at 0, failures are kept"
    return Totals(*numbers), ""


def save(state: Path, totals: Totals) -> None:
    """All of it or nothing."""
    half = state.with_suffix(".new")
    half.write_text(json.dumps({"format": _FORMAT, "version": _VERSION, **totals._asdict()}) + "\n")
    os.replace(half, state)


class Job:
    """A process that runs seeds, or shrinks the plan of one."""

    def __init__(self, options: argparse.Namespace, seed: int, *, shrinks: bool = False) -> None:
        self.seed, self.shrinks = seed, shrinks
        self.begun = time.monotonic()
        words = ["--seed", str(seed), "--for", options.duration]
        words += ["--bug", options.bug] if options.bug else []
        words += (
            ["--shrink", "--tries", str(options.tries)]
            if shrinks
            else ["--runs", str(TOGETHER), "--until-broken", "--quiet"]
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", "simulate", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if shrinks else subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we end them
        )

    @property
    def is_late(self) -> bool:
        """It takes longer than anything should."""
        return time.monotonic() - self.begun > PATIENCE

    def end(self) -> str:
        """What it said, when it is over or made to be."""
        if self.process.poll() is None:
            self.process.kill()
        return self.process.communicate()[0]


class Soak:
    """One time: from now on for so many hours."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._folder: Path = options.folder
        self._failures = self._folder / "failures"
        self._failures.mkdir(parents=True, exist_ok=True)
        self._state = self._folder / "state.json"
        self._before, said = load(self._state)
        if said:
            self._tell(said)
        self._begun = time.monotonic()
        # Not from the state: whatever becomes of that, no seed comes again.
        self._next = secrets.randbelow(_LARGEST_START) if options.first is None else options.first
        self._jobs: list[Job] = []
        self._to_shrink: list[int] = []
        self.seeds = self.failures = 0
        self._told = 0.0
        self.is_interrupted = False

    def run(self) -> int:
        """The exit code."""
        self._tell(f"seeds from {self._next} on, {self._options.jobs} at a time; failures go to {self._failures}")
        while not self.is_interrupted and (self._jobs or self._goes_on or self._to_shrink):
            self._begin_jobs()
            time.sleep(0.05)
            for job in [job for job in self._jobs if job.process.poll() is not None or job.is_late]:
                self._jobs.remove(job)
                self._done(job)
            if time.monotonic() - self._told > _BETWEEN_LINES:
                self._tell(self._progress())
        for job in self._jobs:
            job.end()
        save(self._state, self._totals)
        how = "interrupted; " if self.is_interrupted else ""
        self._tell(f"{how}{self._progress()}; all times: {self._totals.seeds} seeds, {self._totals.failures} failures")
        return 130 if self.is_interrupted else 1 if self.failures else 0

    def interrupt(self, *_: object) -> None:
        """End soon, with everything kept that was found."""
        self.is_interrupted = True

    @property
    def _goes_on(self) -> bool:
        hours: float = self._options.hours
        return time.monotonic() - self._begun < hours * 3600

    @property
    def _totals(self) -> Totals:
        seconds = round(self._before.seconds + time.monotonic() - self._begun, 1)
        return Totals(self._before.seeds + self.seeds, seconds, self._before.failures + self.failures)

    def _begin_jobs(self) -> None:
        while len(self._jobs) < self._options.jobs and (self._to_shrink or self._goes_on):
            if self._to_shrink:
                self._jobs.append(Job(self._options, self._to_shrink.pop(0), shrinks=True))
            else:
                self._jobs.append(Job(self._options, self._next))
                self._next += TOGETHER

    def _done(self, job: Job) -> None:
        late = job.is_late and job.process.poll() is None
        said = job.end()
        if job.shrinks:
            if said and job.process.returncode == 1:
                (self._failures / f"test_seed_{job.seed}.py").write_text(said)
            return
        finished = [line for line in said.splitlines() if line.startswith("seed ")]
        self.seeds += len(finished)
        if job.process.returncode or late:
            broken = [line for line in said.splitlines() if line.startswith("BROKEN: ")]
            self._failed(job.seed + len(finished) - bool(broken), said, late=late, is_broken=bool(broken))
        save(self._state, self._totals)

    def _failed(self, seed: int, said: str, *, late: bool, is_broken: bool) -> None:
        """Kept before anything else is done with it."""
        self.failures += 1
        bug = f" --bug {self._options.bug}" if self._options.bug else ""
        what = [line for line in said.splitlines() if line.startswith("BROKEN: ")]
        if late:
            what = [f"BROKEN: the run has not ended after {PATIENCE} s"]
        elif not is_broken:
            what = said.splitlines()[-20:] or ["the process ended without a word"]
        again = f"fencepost simulate --seed {seed} --for {self._options.duration}{bug}"
        path = self._failures / f"seed_{seed}.txt"
        path.write_text("\n".join([f"seed {seed}", *what, f"again: {again}", ""]))
        self._tell(f"FAILED {path}: {what[0][:200]}")
        if is_broken:
            self._to_shrink.append(seed)

    def _progress(self) -> str:
        seconds = time.monotonic() - self._begun
        minutes, rest = divmod(int(seconds), 60)
        time_so_far = f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
        return f"{time_so_far} {self.seeds} seeds, {self.seeds / seconds:.2f}/s, {self.failures} failures"

    def _tell(self, text: str) -> None:
        self._told = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command was given.  Exits with 2 for what it cannot use."""
    parser = argparse.ArgumentParser(description="Run simulated seeds on all cores, and keep every failure.")
    parser.add_argument("--hours", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--for", dest="duration", default="3s", help="virtual time of each seed (default: 3s)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "soak", help="where failures are kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="seeds at a time (default: all cores)")
    parser.add_argument("--tries", type=int, default=500, help="plans tried to shrink a failure (default: 500)")
    parser.add_argument("--first", type=int, help="the first seed (default: one that nobody has had)")
    parser.add_argument("--bug", help="put this bug into the code first, to see that it is found")
    options: Any = parser.parse_args(arguments)
    if not 0 <= options.hours < 10_000:
        parser.error(f"--hours {options.hours:g}: it must be 0 to 10000")
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: it must be at least 1")
    return options  # type: ignore[no-any-return]


def main() -> None:
    """As the docstring above says."""
    options = options_of()
    try:
        soak = Soak(options)
    except OSError as error:
        print(f"soak.py: {options.folder} cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, soak.interrupt)
    sys.exit(soak.run())


if __name__ == "__main__":
    main()
