"""Write docs/reference/bugs.md, and a page for each room: the bugs on purpose, and what finds them.

As the last run of `find_bugs` has it.

python scripts/bugs_page.py
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.find_bugs import SEEDS, known
from scripts.page import Cell, Pages, table, write
from tests.simulation import group_bugs, spark_bugs

from fencepost.simulation.bugs import BUGS

NOT_TRIED: Final = "not tried yet"
NOT_FOUND: Final = "**not found**"
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


def found_by(found: dict[str, Any] | None) -> str:
    if found is None:
        return NOT_TRIED
    if found["found"] is None:
        return NOT_FOUND
    if not found.get("test"):
        return f"{finder(found['found'])}, seed {found['seeds'] - 1}"
    path, _, test = found["test"].partition("::")
    return f"`{path.removeprefix('tests/')}` {test.replace('_', ' ').removeprefix('test ')}".strip()


@cache
def rows() -> dict[str, list[tuple[Cell, ...]]]:
    """The bugs of each room: name, what goes wrong, the bug of Apache Kafka that it is like, and what finds it."""
    before, rooms = known(), dict[str, list[tuple[Cell, ...]]]()
    for bug in BUGS.values():
        by = f"masked: {bug.masked}" if bug.masked else found_by(before.get(bug.name))
        rooms.setdefault(bug.room, []).append((f"`{bug.name}`", _sentence(bug.what), bug.upstream, by))
    return dict(sorted(rooms.items()))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _counts(made: Sequence[tuple[Cell, ...]]) -> tuple[int, int, int, int, int]:
    """How many there are, are masked, were tried, are found, and are not."""
    by = Counter(
        "masked" if row[-1].startswith("masked") else row[-1] if row[-1] in {NOT_TRIED, NOT_FOUND} else "found"
        for row in made
    )
    return len(made), by["masked"], by["found"] + by[NOT_FOUND], by["found"], by[NOT_FOUND]


def of_a_room(room: str) -> str:
    made = rows()[room]
    count, _, _, found, _ = _counts(made)
    return "\n".join(
        [
            f"# Bugs on purpose: {room}",
            "",
            f"Of {count} [bugs](../bugs.md) {found} are found.",
            "",
            *table(("bug", "what goes wrong", "like", "found by"), made),
            "",
        ]
    )


def page() -> str:
    counts = {room: _counts(made) for room, made in rows().items()}
    together = [sum(column) for column in zip(*counts.values(), strict=True)]
    linked = [(f"[{room}](bugs/{room}.md)", *map(str, numbers)) for room, numbers in counts.items()]
    planted = [*group_bugs.BUGS, *(name.replace("_", " ") for name in spark_bugs.BUGS)]
    return "\n".join(
        [
            "# Bugs on purpose",
            "",
            "Each of these is a small change to one module, kept as a patch beside the simulator, such as one makes by",
            "mistake. `fencepost simulate --bug NAME` puts one in. `scripts/find_bugs.py` looks what of the default",
            f"tests finds it: one of {SEEDS} seeds of the simulation, by a checker, or a test of its room, of which",
            "the first that failed is named. What is not found is work that is left. A bug is masked where something",
            "else in the code makes up for it.",
            "",
            *table(("room", "bugs", "masked", "tried", "found", "not found"), [*linked, ("all", *map(str, together))]),
            "",
            "## In the runs of groups and of Spark",
            "",
            "These are put into the running code by the tests of these runs, which ask of each that it is found:",
            "",
            *(f"- {_sentence(name)}" for name in planted),
            "",
        ]
    )


PAGES: Pages = {
    "reference/bugs.md": page,
    **{f"reference/bugs/{room}.md": partial(of_a_room, room) for room in sorted({bug.room for bug in BUGS.values()})},
}

if __name__ == "__main__":
    write(PAGES)
