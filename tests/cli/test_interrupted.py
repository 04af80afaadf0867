"""A command that is interrupted before it has begun ends as one that is interrupted while it works."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.broker.directories import to_recover
from tests.processes import begun

from fencepost.broker import running_broker
from fencepost.client.blocking import Consumer, Producer
from fencepost.protocol.types import TopicPartition

#: Sends this process a signal while it looks for a module, and then is the command.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
sys.meta_path.insert(0, Interrupts())
sys.argv = ["fencepost", "serve", "--help"]
{begin}
"""
AS = {
    "a module": "runpy.run_module('fencepost', run_name='__main__')",
    "a script": f"runpy.run_path({str(Path(sys.executable).with_name('fencepost'))!r}, run_name='__main__')",
}


MODULES = ["fencepost.cli", "argparse", "fencepost.cli.standard_output", "fencepost.cli.serve"]


def interrupted(begin: str, module: str, how: str) -> tuple[int, str, str]:
    code = INTERRUPTED.format(module=module, begin=AS[begin], signal=how)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("begin", AS)
@pytest.mark.parametrize("module", MODULES)
def test_an_interrupt_while_modules_are_loaded_leaves_no_traceback(begin: str, module: str) -> None:
    assert interrupted(begin, module, "SIGINT") == (130, "", "")


@pytest.mark.parametrize("begin", AS)
@pytest.mark.parametrize("module", MODULES)
def test_a_node_that_is_told_to_stop_while_modules_are_loaded_has_stopped_cleanly(begin: str, module: str) -> None:
    """A supervisor that stops what it has just started is not to take it for a failure."""
    code, printed, told = interrupted(begin, module, "SIGTERM")
    assert (code, printed) == (0, "")
    assert told == "fencepost serve: told to stop before it had begun, and has touched nothing\n"


TIDYING = """
import os, runpy, signal, sys
from fencepost.cli import simulate

def run(options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    finally:
        print("tidied up")

signal.signal(signal.SIGINT, signal.default_int_handler)
simulate.run = run
sys.argv = ["fencepost", "simulate"]
runpy.run_module("fencepost", run_name="__main__")
"""


def test_a_command_that_works_is_not_ended_without_what_it_does_at_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", TIDYING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "tidied up\n", "")


#: Sends this process a signal at each call of something, and then is the command; the name of what was called is told.
SIGNALLED = """
import functools, importlib, os, runpy, signal, sys

def signals(module, name):
    owner = importlib.import_module(module)
    *owners, last = name.split(".")
    owner = functools.reduce(getattr, owners, owner)
    inner = getattr(owner, last)

    def call(*given, **named):
        for _ in range({times}):
            os.kill(os.getpid(), signal.{signal})
        return inner(*given, **named)

    setattr(owner, last, call)

class End:
    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.{signal}):
        kill(process, number)

for module, name in {places!r}:
    if name == "End":
        signal.end = End()  # goes with the module
    else:
        signals(module, name)
sys.argv = ["fencepost", "serve", "--listen", "127.0.0.1:0", "--data", {data!r}]
runpy.run_module("fencepost", run_name="__main__")
"""
#: What a start does, in its order, and then a stop.
STARTING: Final = [
    ("fencepost.broker.broker", "open_node"),
    ("fencepost.log.storage", "Storage.recover"),
    ("fencepost.log.storage", "Storage.create_partition"),
    ("fencepost.log.storage", "Storage.start"),
    ("fencepost.coordinator.loading", "in_turn"),
    ("fencepost.broker.node", "Node.forget_topics"),
    ("fencepost.broker.broker", "_reconcile"),
]
STOPPING: Final = [
    ("fencepost.cli.serve", "say"),
    ("fencepost.broker.broker", "Broker.stop"),
    ("fencepost.log.storage", "Storage.settle"),
    ("fencepost.log.storage", "Storage.close"),
    ("asyncio", "Runner.close"),
    ("fencepost.cli.standard_output", "StandardOutput.flush"),
    ("", "End"),
]


@pytest.mark.parametrize(("number", "times"), [("SIGTERM", 3), ("SIGINT", 1)])
@pytest.mark.parametrize(("module", "name"), [*STARTING, *STOPPING])
def test_a_node_that_is_told_to_stop_at_any_moment_stops_cleanly(
    tmp_path: Path, number: str, times: int, module: str, name: str
) -> None:
    """And the next start has nothing to recover, though this one had: nobody begins again what was done."""
    data = tmp_path / "data"
    _leave_something_to_recover(data)
    code = SIGNALLED.format(times=times, signal=number, places=[(module, name)], data=str(data))
    with begun(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as run:
        if (module, name) in STOPPING[1:]:
            assert run.stdout is not None and run.stdout.readline().startswith(b"fencepost is ready")
            run.send_signal(signal.SIGTERM)
        printed, told = run.communicate(timeout=60)
    assert (run.returncode, b"Traceback" in told) == (0, False), told
    is_ready = printed != b"" or (module, name) in STOPPING[1:]
    assert is_ready or (module, name) in STARTING
    assert not is_ready or (module, name) not in STARTING[:4], "then it turns round only when it is ready"
    assert told.count(b"told to stop before it was ready") == told.count(b"\n") == (not is_ready)
    assert to_recover(data) == 0
    with running_broker(data=data) as broker, Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        at = TopicPartition("t", 0)
        consumer.assign([at])
        consumer.seek_to_beginning([at])
        assert next(iter(consumer)).value == b"kept"


@pytest.mark.parametrize("later", STOPPING[1:4])
def test_a_node_that_is_told_to_stop_while_it_starts_is_not_told_again(tmp_path: Path, later: tuple[str, str]) -> None:
    """A second signal comes while the stop is at work, and the next start has nothing to recover all the same."""
    data = tmp_path / "data"
    _leave_something_to_recover(data)
    code = SIGNALLED.format(times=1, signal="SIGTERM", places=[STARTING[2], later], data=str(data))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert to_recover(data) == 0


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("place", STARTING[:3])
def test_a_long_start_that_is_told_to_stop_ends_soon_and_leaves_it_to_the_next_one(
    tmp_path: Path, number: str, place: tuple[str, str]
) -> None:
    """What would take too long is long here at once."""
    data = tmp_path / "data"
    _leave_something_to_recover(data)
    impatient = "import fencepost.log.interruption; fencepost.log.interruption.PATIENCE_SECONDS = 0\n"
    code = impatient + SIGNALLED.format(times=2, signal=number, places=[place], data=str(data))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)
    assert done.stderr.endswith("nothing is lost, the next start begins again with what this one was at\n")
    assert to_recover(data) > 0
    with running_broker(data=data) as broker, Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        at = TopicPartition("t", 0)
        consumer.assign([at])
        consumer.seek_to_beginning([at])
        assert next(iter(consumer)).value == b"kept"


def _leave_something_to_recover(data: Path) -> None:
    """A directory as kill -9 leaves it, with a record that stands in the commit log."""
    with running_broker(data=data.with_name("running")) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"kept").result()
        shutil.copytree(data.with_name("running"), data)
    assert to_recover(data) > 0
