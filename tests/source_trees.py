"""The modules of the package as trees, for tests that read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fencepost"
MODULES = sorted(SOURCE.rglob("*.py"))
#: The folders with our Python in them.
EVERYWHERE = ("src", "tests", "benchmarks", "demo", "examples", "scripts", "stock_clients")

_DOTTED = re.compile(r"\w+(\.\w+)*")


def name_of(module: Path) -> str:
    """Its place in the package, as `log/disk.py`."""
    return str(module.relative_to(SOURCE))


@cache
def tree_of(module: Path) -> ast.Module:
    """What is in it; it must not be changed, since all tests share it."""
    return ast.parse(module.read_text())


def wrong(find: Callable[[Path], object], modules: Iterable[Path] = MODULES) -> dict[str, object]:
    """What is found in a module that should not be there, by its name."""
    return {name_of(module): found for module in modules if (found := find(module))}


def room_of(module: Path) -> str:
    """The folder, or file, of the package that it is in, as `log`."""
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def aliases(tree: ast.AST) -> dict[str, str]:
    """What a name that was imported stands for, as `sleep` for `time.sleep`, `t` for `time`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names if alias.asname}
            found |= {alias.name.split(".")[0]: alias.name.split(".")[0] for alias in node.names if not alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def calls(tree: ast.AST) -> Iterator[str]:
    """What is reached by an imported name, as `time.time` however it was imported; a parameter of that name is none."""
    known = aliases(tree)
    parts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in parts:
            name = ast.unparse(node)
            first, dot, rest = name.partition(".")
            if first in known and _DOTTED.fullmatch(name):
                yield known[first] + dot + rest


def plain_names(tree: ast.AST) -> Iterator[str]:
    """Functions that are called, or handed on, by nothing but their name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
