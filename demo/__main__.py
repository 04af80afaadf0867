"""`make demo`: real flights through an exactly-once Spark pipeline on a bad day, and an independent verdict."""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo import bad_company, feed, markers, verdict
from demo.audit import Audit, audited
from demo.flights import ALL
from demo.node import Node, empty
from fencepost.client import ClientError
from fencepost.protocol.types import ProducerIdAndEpoch

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".demo"
DATA = FOLDER / "data"
FLIGHTS_PER_BATCH = 50_000
FEWEST_BATCHES = 4  # so that there is something left to go wrong

console = Console(highlight=False)


class Day:
    """The demo's run: what it found on the way."""

    def __init__(self, bootstrap: str | None, count: int) -> None:
        self.count = count
        self.prefix = "" if bootstrap is None else f"demo{uuid.uuid4().hex[:8]}-"
        self.node = Node(DATA, FOLDER / "broker.log") if bootstrap is None else None
        self.bootstrap = bootstrap or (self.node.address if self.node is not None else "")
        self.old_producer_id_and_epoch: ProducerIdAndEpoch | None = None
        self.zombie: list[str] = []
        self.lives = 0
        self.faults: list[str] = []

    def say(self, text: str) -> None:
        console.print(f"[dim]{time.monotonic() - START:6.1f} s[/]  {text}")

    def run(self) -> verdict.Verdict:
        if self.node is not None:
            seconds = self.node.start()
            self.say(f"broker ready on {self.bootstrap} after {seconds:.2f} s, its data in {self.node.data}")
        try:
            asyncio.run(feed.make_topics(self.bootstrap, self.prefix))
        except (ClientError, ValueError) as error:
            sys.exit(f"no topics can be made on {self.bootstrap}: {error}")
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            feeds = asyncio.run(feed.produce(self.bootstrap, self.prefix, self.count, progress))
        self.say(f"{self.count:,} flights produced in {feeds} transactions")
        self.live("written:0:die", "[red]killed -9[/] with all records written and nothing committed")
        asyncio.run(bad_company.forgetful(self.bootstrap, self.prefix))
        self.say("another producer has opened a transaction in the output, and is [red]forgotten[/]")
        self.live("committed:0:die", "[red]killed -9[/] after the commit, before Spark noted it")
        self.meet_zombie()
        self.live("written:1:wait" if self.node is not None else "", "the batches are done")
        return self.judge()

    def live(self, deed: str, end: str) -> None:
        """One life of the Spark driver."""
        self.lives += 1
        self.say(f"Spark driver, life {self.lives}: starting")
        command = [sys.executable, "-m", "demo.driver", self.bootstrap, str(FOLDER / "checkpoint"), self.prefix]
        command.append(str(min(FLIGHTS_PER_BATCH, max(self.count // FEWEST_BATCHES, 1))))
        with (FOLDER / f"driver-{self.lives}.log").open("w") as log:
            driver = subprocess.Popen(
                [*command, *([deed] if deed else [])],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert driver.stdout is not None
        try:
            with console.status("Spark is at work"):
                for line in driver.stdout:
                    self.told(driver, line.split(), deed)
                code = driver.wait()
        except BaseException:
            driver.kill()
            raise
        expected = -signal.SIGKILL if deed.endswith(":die") else 0
        if code != expected:
            sys.exit(f"the Spark driver ended with {code}, not {expected}; {FOLDER}/driver-{self.lives}.log says why")
        self.say(f"Spark driver, life {self.lives}: {end}")

    def told(self, driver: subprocess.Popen[str], words: list[str], deed: str) -> None:
        if words[:1] != ["step"]:
            return
        step, batch, producer_id_and_epoch = (
            words[1],
            int(words[2]),
            ProducerIdAndEpoch.of(int(words[3]), int(words[4])),
        )
        if step == "written":
            self.old_producer_id_and_epoch = self.old_producer_id_and_epoch or producer_id_and_epoch
            name, first, what = deed.split(":") if deed else ("", "0", "")
            if name == "written" and what == "wait" and batch >= int(first) and self.node is not None:
                self.kill_broker(driver)
        elif step == "skipped":
            self.say(f"  micro-batch {batch} was committed before: not written again")
        elif step == "committed":
            self.say(f"  micro-batch {batch} committed")
        elif step == "repeated":
            self.say(f"  micro-batch {batch} is run again")

    def kill_broker(self, driver: subprocess.Popen[str]) -> None:
        if self.faults:
            return
        assert self.node is not None
        assert driver.stdin is not None
        self.node.stop(signal.SIGKILL)
        seconds = self.node.start()
        self.faults.append("broker")
        self.say(f"  broker [red]killed -9[/] before the commit of this batch, serving again after {seconds:.2f} s")
        driver.stdin.write("go on\n")
        driver.stdin.flush()

    def meet_zombie(self) -> None:
        assert self.old_producer_id_and_epoch is not None
        self.zombie = asyncio.run(bad_company.zombie(self.bootstrap, self.prefix, self.old_producer_id_and_epoch))
        self.say(f"a [red]zombie[/] of the first driver wakes up: {', '.join(self.zombie)}")

    def judge(self) -> verdict.Verdict:
        self.say("reading everything back with confluent-kafka, read_committed")
        found = verdict.judge(self.bootstrap, self.prefix, self.count)
        self.say("asking the logs in SQL what became of every transaction: .option('schema', 'audit')")
        with console.status("Spark is at work"):
            audit = audited(self.bootstrap, self.prefix, FOLDER)
        ends = asyncio.run(markers.count_ends(self.bootstrap, self.prefix))
        found.open, found.torn_transactions = audit.open, audit.torn if self.node is not None else 0
        show(found, ends, audit, self)
        return found


def show(found: verdict.Verdict, ends: markers.Ends, audit: Audit, day: Day) -> None:
    table = Table(title="\nWhat confluent-kafka found, against the table of flights", title_justify="left")
    for column in ("", "expected", "found"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("departures", f"{found.expected:,}", f"{found.found:,}")
    for name, wrong in (
        ("missing", found.missing),
        ("duplicated", found.duplicated),
        ("with other contents", found.wrong),
        ("torn micro-batches", found.torn),
    ):
        table.add_row(name, "0", str(len(wrong)))
    table.add_row("carriers with wrong sums", "0", str(len(found.wrong_sums)))
    table.add_row("transactions that hang", "0", str(found.open))
    if day.node is not None:  # before transaction.version 2 the audit cannot tell
        table.add_row("torn transactions", "0", str(found.torn_transactions))
    console.print(table)
    sums = Table(title="Departures and summed delay (minutes) by carrier", title_justify="left")
    for column in ("carrier", "expected", "found", ""):
        sums.add_column(column, justify="right" if column in ("expected", "found") else "left")
    for carrier, (expected, seen) in found.sums.items():
        told = [f"{flights:,} / {delay:,}" for flights, delay in (expected, seen)]
        sums.add_row(carrier, *told, "ok" if expected == seen else "[red]WRONG[/]")
    console.print(sums)
    for producer_id, aborted, records in audit.in_vain:
        console.print(f"producer {producer_id}: {aborted:,} of {records:,} records aborted, shown to nobody")
    refused = sum("refused" in told for told in day.zombie)
    console.print(
        f"transactions: {ends.committed} committed, {ends.aborted} aborted (of these 1 timed out: the forgotten one); "
        f"fenced: {refused} requests of the zombie"
    )
    console.print("[bold green]exactly once[/]" if found.holds else "[bold red]NOT exactly once[/]")


def what_next(day: Day) -> None:
    console.print("\nTry next:")
    if day.node is not None:
        console.print(f"  .venv/bin/fencepost serve --listen 127.0.0.1:9092 --data {DATA.relative_to(ROOT)}")
    console.print("  less examples/flights_pipeline.py")
    console.print("  make test")
    console.print("The same job runs on an Apache Kafka that you have: make demo with BOOTSTRAP=host:port.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of an Apache Kafka to use (default: a broker of our own)")
    parser.add_argument("--flights", type=int, default=ALL, help=f"how many of the {ALL:,} flights")
    options = parser.parse_args()
    empty(FOLDER, DATA)
    day = Day(options.bootstrap, options.flights)
    try:
        found = day.run()
        untaken = not any("TAKEN" in told for told in day.zombie)
    finally:
        if day.node is not None:
            day.node.stop()
    if not (found.holds and untaken):
        return 1
    what_next(day)
    return 0


START = time.monotonic()
if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
