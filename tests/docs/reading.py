"""What a page is made of: its sentences, the words that it shows as code, the lines and blocks that a reader copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""The pages that are written by hand, for users."""

_FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_LINE = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)


def name_of(page: Path) -> str:
    """Its path in the repository."""
    return str(page.relative_to(ROOT))


def spans(page: Path) -> list[str]:
    """What stands in backquotes within the sentences of a page; a line end in it is a space."""
    return [" ".join(span.split()) for span in _SPAN.findall(_FENCED.sub("", page.read_text()))]


def lines(page: Path) -> list[str]:
    """Indented lines, as a shell or a file has them."""
    return _LINE.findall(_FENCED.sub("", page.read_text()))


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language."""
    return [text for kind, text in _FENCED.findall(page.read_text()) if kind == language]


def of_guides() -> Iterator[tuple[str, str]]:
    """(page, span), over all guides."""
    return ((name_of(page), span) for page in GUIDES for span in spans(page))
