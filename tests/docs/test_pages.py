"""What the pages and the code point to is there: sections of the facts, and files that links name."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts import imports

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "docs" / "kafka" / "transactions.md"
FOLDERS = ("src", "tests", "benchmarks", "demo", "docs", "examples", "scripts", "stock_clients")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
SOURCES = sorted(source for folder in FOLDERS for source in (ROOT / folder).rglob("*.py"))

_HEADING = re.compile(r"^#+ ([0-9]+(?:\.[0-9]+)?)\.? ", re.MULTILINE)
_SECTION = re.compile(r"§([0-9]+(?:\.[0-9]+)?)")
_LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)")
_TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)


def sections() -> set[str]:
    return set(_HEADING.findall(FACTS.read_text()))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_many_files_name_a_section_of_the_facts() -> None:
    assert sum("facts §" in source.read_text() for source in SOURCES) > 50


def test_every_section_that_is_named_is_one_of_the_facts() -> None:
    """No other page has numbered sections, so whoever writes `§` means that one."""
    known = sections()
    named = {name_of(path): set(_SECTION.findall(path.read_text())) for path in [*SOURCES, *PAGES]}
    assert {name: those - known for name, those in named.items() if those - known} == {}


_ROW_OF_SECTION = re.compile(r"§([0-9]+\.[0-9]+) ([a-z](?:[-,] ?[a-z])*)(?=[).,;:])")


def test_every_row_that_is_named_behind_a_section_is_in_it() -> None:
    """As in `§6.3 c, j`."""
    parts = re.split(r"^#+ ([0-9]+(?:\.[0-9]+)?)\.? ", FACTS.read_text(), flags=re.MULTILINE)
    rows = {
        (section, row)
        for section, text in zip(parts[1::2], parts[2::2], strict=True)
        for row in re.findall(r"^\| ([a-z]) \|", text, re.MULTILINE)
    }
    named = {
        (name_of(path), section, row)
        for path in [*SOURCES, *PAGES]
        for section, letters in _ROW_OF_SECTION.findall(path.read_text())
        for row in re.findall(r"[a-z]", letters)
    }
    assert len(named) > 5
    assert {each for each in named if each[1:] not in rows} == set()


def test_a_link_leads_to_a_file() -> None:
    found = {name_of(page): _LINK.findall(page.read_text()) for page in PAGES}
    assert [(name, link) for name, links in found.items() for link in links if not leads(name, *link)] == []


def test_a_link_says_where_it_leads() -> None:
    """Not at another place of its page, where the test above would not see it."""
    assert [name_of(page) for page in PAGES if re.search(r"^ {0,3}\[[^\]]+\]: ", page.read_text(), re.MULTILINE)] == []


def test_every_page_is_reached_from_the_index_by_links() -> None:
    """The tree at the side of the site has each of them as well; who reads the repository has links only."""
    docs = ROOT / "docs"
    reached, waiting = set(), [docs / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting += [page.parent / link for link, _ in _LINK.findall(page.read_text()) if link]
    assert {name_of(page) for page in PAGES if docs in page.parents and page not in reached} == set()


def leads(page: str, link: str, heading: str) -> bool:
    """Whether there is such a file, and such a heading in it (as GitHub names them)."""
    target = (ROOT / page).parent / link if link else ROOT / page
    if not target.exists():
        return False
    return not heading or heading in {anchor(title) for title in _TITLE.findall(target.read_text())}


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


_CODE = re.compile(r"`([^`\n]+)`|^ {4}(.+)$", re.MULTILINE)
_PATH = re.compile(rf"(?<![\w/.])(?:{'|'.join(FOLDERS)})/[\w/.]*\w(?!\w*[<*{{])")
_MODULE = re.compile(r"\bfencepost(?:\.[a-z_]+)+")
_TARGET = re.compile(r"\bmake ([a-z]+)\b")


def code(page: Path) -> str:
    """What a page shows as code, inside its sentences and between them."""
    return "\n".join(inline or block for inline, block in _CODE.findall(page.read_text()))


def test_a_file_that_a_page_names_is_there() -> None:
    named = {name_of(page): _PATH.findall(code(page)) for page in PAGES}
    assert [(name, path) for name, paths in named.items() for path in paths if not (ROOT / path).exists()] == []
    assert sum(map(len, named.values())) > 50


_NAME = re.compile(r"(?<![\w/.<*{-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b(?![\w/(])")
_IN_PROSE = re.compile(rf"`{_NAME.pattern}`|(?<![\w/.])((?:{'|'.join(FOLDERS)})/[\w/]+\.(?:py|md))\b")
#: What users make by themselves.
THEIRS = ("test_seed_7.py",)


def is_there(name: str) -> bool:
    """Whether some file of ours has this name, or its path ends so."""
    return name in THEIRS or any(f"/{name_of(path)}".endswith(f"/{name}") for path in (*SOURCES, *PAGES))


def test_a_file_that_is_named_without_its_folder_is_there_as_well() -> None:
    """By pages in code, by modules and tests in what they say of themselves."""
    named = {page: set(_NAME.findall(code(page))) for page in PAGES}
    for source in SOURCES:
        named[source] = {of or by for of, by in _IN_PROSE.findall("\n".join(prose(source)))}
    assert [(name_of(path), name) for path, names in named.items() for name in names if not is_there(name)] == []
    assert sum(map(len, named.values())) > 100


def prose(source: Path) -> Iterator[str]:
    """The comments and the docstrings of a module."""
    with source.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
                yield token.string


def test_a_module_that_a_page_names_is_there() -> None:
    known = {f"fencepost.{name}": path for name, path in imports.modules(ROOT / "src" / "fencepost").items()}
    named = {name_of(page): _MODULE.findall(code(page)) for page in PAGES}
    assert [(page, name) for page, names in named.items() for name in names if not is_known(name, known)] == []


def is_known(name: str, known: Mapping[str, Path]) -> bool:
    """A module, what is said in one (`fencepost.spark.write`), or something else of ours that begins so."""
    within, _, last = name.rpartition(".")
    in_module = within in known and re.search(rf"\b{last}\b", known[within].read_text())
    return name in known or bool(in_module) or name in ("fencepost.properties", "fencepost.progress")


def test_a_target_that_a_page_names_is_one_of_make() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name_of(page): set(_TARGET.findall(code(page))) for page in PAGES}
    assert {page: those - targets for page, those in named.items() if those - targets} == {}


def test_the_glossary_has_each_term_once_in_the_order_of_the_alphabet() -> None:
    rows = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| ")][1:]
    terms = [re.sub(r"[^a-z0-9 ]", "", row.split("|")[1].strip().lower()) for row in rows]
    assert len(terms) > 50
    assert terms == sorted(set(terms))
