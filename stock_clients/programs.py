"""The clients that are not Python: a small program of each, which makes one call for each line that it reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.apache_kafka import VERSION, NoPeer, java

from stock_clients.scenario import Client, Names, Told

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fencepost"


class NoToolChain(Exception):
    """A client cannot be built here; the message says why."""


def java_program() -> list[str]:
    """The command of the Java client.  Raises NoToolChain."""
    try:
        return java(str(HERE / "java" / "Producers.java"))
    except NoPeer as reason:
        raise NoToolChain(str(reason)) from None


def go_program() -> list[str]:
    """The command of franz-go.  Raises NoToolChain."""
    target = CACHE / "franz-go-producers"
    _build("go", ["go", "build", "-o", str(target), "."], HERE / "go")
    return [str(target)]


def node_program() -> list[str]:
    """The command of kafkajs.  Raises NoToolChain."""
    folder = CACHE / "kafkajs-producers"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "producers.js"):
        shutil.copy(HERE / "js" / name, folder)
    if shutil.which("node") is None:
        raise NoToolChain("node is not on the PATH")
    if not (folder / "node_modules" / "kafkajs").exists():
        _build("npm", ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], folder)
    return ["node", str(folder / "producers.js")]


#: client -> its command
PROGRAMS = {"java": java_program, "franz-go": go_program, "kafkajs": node_program}


def _build(tool: str, command: list[str], folder: Path) -> None:
    if shutil.which(tool) is None:
        raise NoToolChain(f"{tool} is not on the PATH")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise NoToolChain(f"`{' '.join(command[:2])}` did not end in time") from None
    if done.returncode != 0:
        raise NoToolChain(f"`{' '.join(command[:2])}` failed: {done.stderr.strip().splitlines()[-1:]}")


def program_version(client: str) -> str:
    """Which version of the client its program uses."""
    if client == "java":
        return VERSION
    if client == "kafkajs":
        return str(json.loads((HERE / "js" / "package.json").read_text())["dependencies"]["kafkajs"])
    return (HERE / "go" / "go.mod").read_text().split("franz-go v")[1].split()[0]


class Program:
    """A running program with producers in it."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.count = 0

    def ask(self, *words: object) -> Told:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("="):
                return Told(line[1:].strip())
        raise RuntimeError(f"the program ended at {words}")

    def producer(self, names: Names) -> RemoteProducer:
        self.count += 1
        return RemoteProducer(self, f"p{self.count}", names)


class RemoteProducer:
    """A producer in another program."""

    def __init__(self, program: Program, name: str, names: Names) -> None:
        self.program = program
        self.name = name
        self.names = names
        self.open = False

    def start(self) -> Told:
        of = self.names
        self.open = True
        return self.program.ask(
            self.name, "start", of.bootstrap, of.transactional_id, of.topic, of.group or "-", of.timeout_ms
        )

    def begin(self) -> Told:
        return self.program.ask(self.name, "begin")

    def send(self, partition: int, value: str) -> Told:
        return self.program.ask(self.name, "send", partition, value)

    def offsets(self, offset: int) -> Told:
        return self.program.ask(self.name, "offsets", offset)

    def commit(self) -> Told:
        return self.program.ask(self.name, "commit")

    def abort(self) -> Told:
        return self.program.ask(self.name, "abort")

    def close(self) -> None:
        if self.open:
            self.open = False
            self.program.ask(self.name, "close")


@contextmanager
def program(client: str) -> Iterator[Client]:
    """A client's program, running: makes producers.  Raises NoToolChain."""
    running = Program(PROGRAMS[client]())
    try:
        yield running.producer
    finally:
        running.process.kill()
        running.process.wait()
