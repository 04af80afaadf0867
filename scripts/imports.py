"""Who imports whom inside a package, read from its source: files, rooms (top folders and files), and circles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Graph = dict[str, set[str]]
"""Module -> the modules that it imports, all of the package; names with dots, without the package's own."""


def modules(package: Path) -> dict[str, Path]:
    """Name -> file; a package has the name of its folder."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: Path) -> Graph:
    """The whole graph, with what is imported for the type checker only, and inside functions."""
    known = modules(package)
    return {name: set(_imported(path, package.name, known)) - {name} for name, path in known.items()}


def _imported(path: Path, package: str, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == package or name.startswith(f"{package}."):
                yield _module(name.removeprefix(package).removeprefix("."), known)


def _module(name: str, known: Mapping[str, Path]) -> str:
    """The module that has this name, or that defines it."""
    while name not in known:
        name = name.rpartition(".")[0]
    return name


def room(module: str) -> str:
    """The top folder, or top file, of a module."""
    return module.split(".")[0]


def rooms(graph: Graph) -> Graph:
    """The graph of rooms; the package's own two files are none."""
    found: Graph = {}
    for module, imported in graph.items():
        if module not in ("", "__main__"):
            of = found.setdefault(room(module), set())
            of |= {room(other) for other in imported if other} - {room(module)}
    return found


def circles(graph: Graph) -> list[set[str]]:
    """The largest sets of modules in which everyone reaches everyone (Tarjan 1972), in the order of their names."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            together = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(together) > 1:
                found.append(set(together))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return sorted(found, key=sorted)


def without_detours(graph: Graph) -> Graph:
    """The arrows that no longer way replaces.  The graph has no circles."""
    return {name: others - set(_reached(graph, others)) for name, others in graph.items()}


def _reached(graph: Graph, begin: Iterable[str]) -> Iterator[str]:
    """What can be reached from these in one step or more."""
    seen: set[str] = set()
    waiting = list(begin)
    while waiting:
        for other in graph[waiting.pop()] - seen:
            seen.add(other)
            waiting.append(other)
            yield other
