"""Write docs/reference/bugs.md: the bugs on purpose, and what finds them, from the last run of `find_bugs`.

python scripts/bugs_page.py
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.find_bugs import FOUND, SEEDS
from scripts.page import Cell, Pages, table, write

from fencepost.simulation.bugs import BUGS

#: what a finding says -> what finds it; the first that fits
FINDERS = {
    "an answer left": "an answer before its time",
    "is not durable": "an answer before its time",
    "is next": "the order of sequences",
    "under epoch": "the order of sequences",
    "is lost": "a lost record",
    "is shown [0-9]+ times": "a doubled record",
    "of the aborted transaction": "an aborted record",
    "records are shown": "a torn transaction",
    "out of order": "order",
    "never sent": "an invented record",
    "the group": "offsets beside their output",
    "does not end": "liveness",
    "hangs": "liveness",
    "stays": "liveness",
    "the run ended": "the run itself: somebody failed who may not",
    "": "what a producer is told",
}


def finder(found: str) -> str:
    """Which checker said this."""
    return next(name for says, name in FINDERS.items() if re.search(says, found))


def rows() -> Iterator[tuple[Cell, ...]]:
    known = {each["name"]: each for each in map(json.loads, FOUND.read_text().splitlines())}
    for bug in BUGS.values():
        found = known.get(bug.name)
        if found is None:
            by, seeds = "not tried yet", ""
        elif found["found"] is None:
            by, seeds = "**not found**", str(found["seeds"])
        else:
            by, seeds = finder(found["found"]), str(found["seeds"])
        yield f"`{bug.name}`", bug.what[0].upper() + bug.what[1:] + ".", bug.room, bug.upstream, by, seeds


def page() -> str:
    made = list(rows())
    found = sum(row[4] not in ("not tried yet", "**not found**") for row in made)
    return "\n".join(
        [
            "# Bugs on purpose",
            "",
            "Each of these is a small change to one module, kept as a patch beside the simulator. It is put in by",
            "`fencepost simulate --bug NAME`, and the runs of the default tests are made with it until one fails:",
            f"{found} of {len(made)} are found by one of these {SEEDS} seeds. What is not found is work that is left.",
            "Consumers, groups and the write protocol of Spark have lists of their own beside their tests.",
            "",
            *table(("bug", "what goes wrong", "room", "like", "found by", "seeds"), made),
            "",
        ]
    )


PAGES: Pages = {"reference/bugs.md": page}

if __name__ == "__main__":
    write(PAGES)
