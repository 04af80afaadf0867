"""A broker as its own process, to be killed, and the folder that it leaves."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from fencepost.log.disk import DirectoryInUse, LocalDisk


def empty(folder: Path, data: Path) -> None:
    """Remove what an earlier run left in a folder, and make it again.

    A person may have started a broker on its data since, as the demo's last lines say: then nothing is removed, and
    this exits with a sentence.
    """
    lock = data / ".lock"
    if lock.exists():
        try:
            LocalDisk().lock(lock)()
        except DirectoryInUse:
            sys.exit(f"a broker runs on {data}, which this would remove: stop it, or move the data elsewhere")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


class Node:
    """`fencepost serve` on one port and directory."""

    def __init__(self, data: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.data = data
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start, and wait for the ready line; seconds that it took.  Exits if the broker does not start."""
        begin = time.monotonic()
        command = [sys.executable, "-m", "fencepost", "serve", "--listen", self.address, "--data", str(self.data)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        if self.address not in self._process.stdout.readline():
            sys.exit(f"the broker did not start; {self._log} says why")
        return time.monotonic() - begin

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it: SIGTERM is a clean stop, SIGKILL is the bad day."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()
