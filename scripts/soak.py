"""Run simulated seeds on all cores for so many hours, new ones each time, and keep every failure.

    python scripts/soak.py --hours 8

In the folder (build/soak) there is a file for each failure: the seed, the failed property, the command that repeats it;
beside it, when it is found, a test of the shortest plan that fails.  `state.json` has the totals of all times.  Ctrl-C
ends it and loses nothing of that: failures that have no such test yet are shrunk the next time.  One at a time uses a
folder.  Exit code: 0, 1 if a failure was found, 2 for what it cannot use, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT

from fencepost.cli import Refused
from fencepost.cli.simulate import duration
from fencepost.simulation import bugs

#: Seeds that one process runs, one after the other.
TOGETHER: Final = 20
#: Seconds that one seed may take, and that a failure may take to be shrunk.
PATIENCE: Final = 900
#: Seconds that the shortest plan so far may take to be printed.
_TO_PRINT: Final = 20
_FORMAT: Final = "fencepost-soak"
_VERSION: Final = 1
_BETWEEN_LINES: Final = 30.0
_LARGEST_START: Final = 2**62
_NOT_ENDED: Final = "BROKEN: the run has not ended after"


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
    """A process that runs seeds, or shrinks the plan of one.  `words`: which seed, for `fencepost simulate`."""

    def __init__(self, options: argparse.Namespace, seed: int, words: Sequence[str], *, shrinks: bool = False) -> None:
        self.seed, self.shrinks = seed, shrinks
        what = ["--shrink", "--tries", str(options.tries)] if shrinks else ["--runs", str(TOGETHER), "--until-broken"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", "simulate", *words, *what, *([] if shrinks else ["--quiet"])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if shrinks else subprocess.STDOUT,  # without us it ends when it says something
            bufsize=0,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},  # what it said is known, however it ends
            start_new_session=True,  # Ctrl-C is for us; we end them
        )
        self._pipes = [pipe for pipe in (self.process.stdout, self.process.stderr) if pipe is not None]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._said = bytearray()
        self.seeds = 0
        """How many are over."""
        self._since = time.monotonic()

    @property
    def said(self) -> str:
        """What it has printed."""
        return self._said.decode(errors="replace")

    def hear(self) -> None:
        """Take what it has said, so that it never waits for us; each seed has its own time."""
        for pipe in self._pipes:
            while part := pipe.read(65536):
                if pipe is self.process.stdout:
                    self._said += part
        if (seeds := self._said.count(b"\n")) > self.seeds:
            self.seeds, self._since = seeds, time.monotonic()

    @property
    def is_late(self) -> bool:
        """It takes longer than anything should."""
        return time.monotonic() - self._since > PATIENCE

    def end(self) -> None:
        """Take the rest of what it says, when it is over or made to be."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT if self.shrinks else signal.SIGKILL)
        try:
            rest, _ = self.process.communicate(timeout=_TO_PRINT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            rest, _ = self.process.communicate()
        self._said += rest


class Soak:
    """One time: from now on for so many hours."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._folder: Path = options.folder
        self._failures: Path = self._folder / "failures"
        self._failures.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(None, "another soak writes there; give this one its own --folder") from None
        self._state = self._folder / "state.json"
        self._before, said = load(self._state)
        if said:
            self._tell(said)
        self._begun = time.monotonic()
        # Not from the state: whatever becomes of that, no seed comes again.
        self._next = secrets.randbelow(_LARGEST_START) if options.first is None else options.first
        self._jobs: list[Job] = []
        self._to_shrink = list(self._not_shrunk())
        self.seeds = self.failures = 0
        self._told = 0.0
        self.is_interrupted = False

    def run(self) -> int:
        """The exit code."""
        self._tell(f"seeds from {self._next} on, {self._options.jobs} at a time; failures go to {self._failures}")
        try:
            while not self.is_interrupted and (self._jobs or self._goes_on or self._to_shrink):
                self._turn()
        finally:
            for job in self._jobs:
                job.end()
        while self._jobs:
            self._done(self._jobs.pop(), is_cut_off=True)
        save(self._state, self._totals)
        how = "interrupted; " if self.is_interrupted else ""
        self._tell(f"{how}{self._progress()}; all times: {self._totals.seeds} seeds, {self._totals.failures} failures")
        return 130 if self.is_interrupted else 1 if self.failures else 0

    def _turn(self) -> None:
        self._begin_jobs()
        time.sleep(0.05)
        for job in self._jobs[:]:
            job.hear()
            if job.process.poll() is not None or job.is_late:
                self._jobs.remove(job)
                late = job.process.poll() is None
                job.end()
                self._done(job, late=late)
        if time.monotonic() - self._told > _BETWEEN_LINES:
            self._tell(self._progress())

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

    def _not_shrunk(self) -> Iterator[tuple[int, list[str]]]:
        """Failures of earlier times that have no test yet: the seed, and how `fencepost simulate` repeats it."""
        for path in sorted(self._failures.glob("seed_*.txt")):
            text = path.read_text(errors="replace")
            _, _, again = text.rpartition("\nagain: fencepost simulate ")
            seed = path.stem.removeprefix("seed_")
            is_broken = again and _NOT_ENDED not in text and "\nBROKEN: " in text
            if is_broken and seed.isdecimal() and not self._test_of(int(seed)).exists():
                yield int(seed), shlex.split(again)

    def _test_of(self, seed: int) -> Path:
        return self._failures / f"test_seed_{seed}.py"

    def _words(self, seed: int) -> list[str]:
        """What `fencepost simulate` runs a seed with."""
        bug = ["--bug", self._options.bug] if self._options.bug else []
        return ["--seed", str(seed), "--for", self._options.duration, *bug]

    def _begin_jobs(self) -> None:
        while len(self._jobs) < self._options.jobs and (self._to_shrink or self._goes_on):
            if self._to_shrink:
                self._jobs.append(Job(self._options, *self._to_shrink.pop(0), shrinks=True))
            else:
                self._jobs.append(Job(self._options, self._next, self._words(self._next)))
                self._next += TOGETHER

    def _done(self, job: Job, *, late: bool = False, is_cut_off: bool = False) -> None:
        """Keep what came of it.  `is_cut_off`: it was ended before its time."""
        said = job.said
        if job.shrinks:
            if said and job.process.returncode == 1:
                self._test_of(job.seed).write_text(said)
            return
        lines = said.splitlines()
        self.seeds += sum(line.startswith("seed ") for line in lines)
        broken = next((n for n, line in enumerate(lines) if line.startswith("BROKEN: ")), None)
        if broken is not None or late or (job.process.returncode and not is_cut_off):
            passed = sum(line.startswith("seed ") for line in lines[:broken])
            self._failed(job.seed + passed, said, late=late, is_broken=broken is not None)
        save(self._state, self._totals)

    def _failed(self, seed: int, said: str, *, late: bool, is_broken: bool) -> None:
        """Kept before anything else is done with it."""
        self.failures += 1
        what = [line for line in said.splitlines() if line.startswith("BROKEN: ")]
        if late and not is_broken:
            what = [f"{_NOT_ENDED} {PATIENCE} s"]
        elif not is_broken:
            what = said.splitlines()[-20:] or ["the process ended without a word"]
        path = self._failures / f"seed_{seed}.txt"
        self._tell(f"FAILED {path}: {what[0][:200]}")
        again = shlex.join(["fencepost", "simulate", *self._words(seed)])
        path.write_text("\n".join([f"seed {seed}", *what, f"again: {again}", ""]))
        if is_broken:
            self._to_shrink.append((seed, self._words(seed)))

    def _progress(self) -> str:
        seconds = time.monotonic() - self._begun
        minutes, rest = divmod(int(seconds), 60)
        time_so_far = f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
        seeds = self.seeds + sum(job.seeds for job in self._jobs)
        return f"{time_so_far} {seeds} seeds, {seeds / seconds:.2f}/s, {self.failures} failures"

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
    for name in ("jobs", "tries"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: it must be at least 1")
    if options.first is not None and not 0 <= options.first <= _LARGEST_START:
        parser.error(f"--first {options.first}: it must be 0 to {_LARGEST_START}")
    if options.bug is not None and options.bug not in bugs.BUGS:
        parser.error(f"--bug {options.bug}: there is no such bug; fencepost simulate --bug list names them")
    try:
        duration(options.duration)
    except Refused as refused:
        parser.error(str(refused))
    return options  # type: ignore[no-any-return]


def main() -> None:
    """As the docstring above says."""
    options = options_of()
    try:
        soak = Soak(options)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, soak.interrupt)
        sys.exit(soak.run())
    except OSError as error:
        print(f"soak.py: {options.folder} cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
