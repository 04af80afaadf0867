"""Start a Fencepost node of its own process for a benchmark."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def fencepost_node(flush: str = "durable") -> Iterator[tuple[str, int, float]]:
    """`fencepost serve` on a free port: (bootstrap address, process id, seconds until it was ready)."""
    # Beside the checkout, not in /tmp: that may be memory, and then nothing is durable.
    root = Path(__file__).resolve().parent.parent / ".bench"
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", folder]
        start = time.perf_counter()
        process = subprocess.Popen([*command, f"--flush={flush}"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        if found is None:
            raise SystemExit("fencepost serve did not become ready")
        seconds = time.perf_counter() - start
        try:
            yield found[0], process.pid, seconds
        finally:
            process.terminate()
            process.wait()


def resident_megabytes(process_id: int) -> float:
    """Memory of a process in MB (10^6 bytes), as the kernel counts it."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024 / 1e6  # type: ignore[index]
