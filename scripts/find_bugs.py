"""Put each bug on purpose into a process of its own, and see which seed of the simulation finds it, and how.

    python scripts/find_bugs.py [NAME ...]

Writes tests/simulation/bugs_found.jsonl, from which docs/reference/bugs.md is made.  Takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT

from fencepost.simulation.bugs import BUGS

FOUND = ROOT / "tests" / "simulation" / "bugs_found.jsonl"
#: Of the seeds that the default tests run.
SEEDS = 20
PATIENCE = 120
"""Seconds."""


def find(name: str) -> dict[str, Any]:
    """What is known of a bug afterwards."""
    command = [sys.executable, "-m", "fencepost", "simulate", "--bug", name, "--runs", str(SEEDS)]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [*command, "--quiet", "--until-broken"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        lines = done.stdout.splitlines()
    except subprocess.TimeoutExpired:
        lines = ["BROKEN: the run does not end"]
    first = next((line.removeprefix("BROKEN: ") for line in lines if line.startswith("BROKEN: ")), None)
    seeds = sum(line.startswith("seed ") for line in lines)
    return {"name": name, "found": first, "seeds": max(seeds, 1), "seconds": round(time.monotonic() - begun)}


def main() -> None:
    known = {each["name"]: each for each in map(json.loads, FOUND.read_text().splitlines())} if FOUND.exists() else {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(find, sys.argv[1:] or list(BUGS)):
            known[found["name"]] = found
            print(f"{found['name']}: {'not found' if found['found'] is None else found['found']}"[:150], flush=True)
            FOUND.write_text("".join(json.dumps(known[name]) + "\n" for name in BUGS if name in known))


if __name__ == "__main__":
    main()
