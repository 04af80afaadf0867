"""A command that is interrupted before it has begun ends as one that is interrupted while it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Sends this process an interrupt while it looks for a module, and then is the command.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
sys.meta_path.insert(0, Interrupts())
sys.argv = ["fencepost", "serve", "--help"]
{begin}
"""
AS = {
    "a module": "runpy.run_module('fencepost', run_name='__main__')",
    "a script": f"runpy.run_path({str(Path(sys.executable).with_name('fencepost'))!r}, run_name='__main__')",
}


@pytest.mark.parametrize("begin", AS)
@pytest.mark.parametrize(
    "module", ["fencepost.cli", "argparse", "fencepost.cli.standard_output", "fencepost.cli.serve"]
)
def test_an_interrupt_while_modules_are_loaded_leaves_no_traceback(begin: str, module: str) -> None:
    code = INTERRUPTED.format(module=module, begin=AS[begin])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


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
