"""What the scripts that write pages share: a table in Markdown, and where pages go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

Cell = str
Pages = Mapping[str, Callable[[], str]]
"""Path below docs/ -> what makes its text."""


def table(head: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The lines of a Markdown table.  A bar in a cell is escaped, a line end becomes a space."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        assert len(row) == len(head), f"a cell for each column: {row}"
        lines.append(f"| {' | '.join(_cell(cell) for cell in row)} |")
    return lines


def _cell(text: Cell) -> str:
    return " ".join(text.replace("|", "\\|").split())


def first_sentence(docstring: str | None) -> str:
    """Of a docstring, with a full stop."""
    text = " ".join((docstring or "").split("\n\n")[0].split())
    return re.split(r"\.\s", text)[0].rstrip(".:") + "."


def write(pages: Pages) -> None:
    """Write every page, and say so."""
    for name, make in pages.items():
        target = DOCS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(make())
        print(f"wrote docs/{name}")
