"""What the pages and the code point to is there: sections of the facts, and files that links name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "docs" / "kafka" / "transactions.md"
FOLDERS = ("src", "tests", "benchmarks", "demo", "docs", "examples", "scripts", "stock_clients")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
SOURCES = sorted(source for folder in FOLDERS for source in (ROOT / folder).rglob("*.py"))

_HEADING = re.compile(r"^#+ ([0-9]+(?:\.[0-9]+)?)\.? ", re.MULTILINE)
_CITED = re.compile(r"\bfacts,? (§[0-9.]+[0-9](?:(?:,|-| and) ?§?[0-9.]*[0-9])*)", re.IGNORECASE)
_SECTION = re.compile(r"§([0-9]+(?:\.[0-9]+)?)")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def sections() -> set[str]:
    return set(_HEADING.findall(FACTS.read_text()))


def cited(text: str) -> Iterator[str]:
    """The sections of the facts that a file names, after the word itself: `facts §6.3, §6.5`."""
    for reference in _CITED.findall(text):
        yield from _SECTION.findall(reference)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_page_of_facts_points_to_sections_that_it_has() -> None:
    assert set(_SECTION.findall(FACTS.read_text())) - sections() == set()


def test_many_files_name_a_section_of_the_facts() -> None:
    assert sum(any(cited(source.read_text())) for source in SOURCES) > 50


def test_a_named_section_of_the_facts_exists() -> None:
    known = sections()
    missing = {name_of(path): set(cited(path.read_text())) - known for path in [*SOURCES, *PAGES]}
    assert {name: those for name, those in missing.items() if those} == {}


def test_a_link_leads_to_a_file() -> None:
    found = {name_of(page): _LINK.findall(page.read_text()) for page in PAGES}
    assert [(name, link) for name, links in found.items() for link in links if not leads(name, link)] == []


def leads(page: str, link: str) -> bool:
    return "://" in link or (ROOT / page).parent.joinpath(link).exists()
