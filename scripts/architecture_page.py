"""Put the drawing and the list of rooms into docs/architecture.md, from the imports and the docstrings.

python scripts/architecture_page.py
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.imports import imports, modules, rooms, without_detours
from scripts.page import DOCS, ROOT, Pages, first_sentence, table, write

SOURCE = ROOT / "src" / "fencepost"
_PART = re.compile(r"(<!-- made from the code: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def parts(room: str) -> list[str]:
    """The folders inside a room."""
    return [
        name.split(".", 1)[1].replace(".", "/") for name, path in modules(SOURCE).items() if _is_part(name, path, room)
    ]


def _is_part(name: str, path: Path, room: str) -> bool:
    return name.startswith(f"{room}.") and path.name == "__init__.py"


def drawing() -> str:
    graph = rooms(imports(SOURCE))
    lines = ["```mermaid", "flowchart TD"]
    for name in sorted(graph):
        inside = "".join(f"<br/>{part}" for part in parts(name))
        lines.append(f'    {name}["{name}{inside}"]')
    for name, others in sorted(without_detours(graph).items()):
        lines += [f"    {name} --> {other}" for other in sorted(others)]
    return "\n".join([*lines, "```"])


def listed() -> str:
    known = modules(SOURCE)
    rows = []
    for room in sorted(rooms(imports(SOURCE))):
        for name in (room, *(f"{room}.{part.replace('/', '.')}" for part in parts(room))):
            is_folder = known[name].name == "__init__.py"
            shown = name.replace(".", "/") + ("" if is_folder else ".py")
            rows.append([f"`{shown}`", first_sentence(ast.get_docstring(ast.parse(known[name].read_text())))])
    return "\n".join(table(["room", "what it is"], rows))


MADE = {"drawing": drawing, "rooms": listed}


def page() -> str:
    text = (DOCS / "architecture.md").read_text()
    names = [name for _, name, _ in _PART.findall(text)]
    assert names == list(MADE), f"docs/architecture.md has places for {names}"
    return _PART.sub(lambda found: f"{found[1]}{MADE[found[2]]()}\n{found[3]}", text)


PAGES: Pages = {"architecture.md": page}

if __name__ == "__main__":
    write(PAGES)
