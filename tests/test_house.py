"""The rules of the house: imports go down, in no circle; a seed decides the order; files and functions are short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.source_trees import (
    EVERYWHERE,
    MODULES,
    ROOT,
    SOURCE,
    calls,
    name_of,
    plain_names,
    room_of,
    tree_of,
    wrong,
)

from scripts import imports

#: room -> the rooms that it may import from (its own is understood)
MAY_KNOW = {
    "compiled": (),
    "protocol": ("compiled",),
    "runtime": ("connecting", "listening", "protocol"),
    "connecting": (),
    "listening": ("node_log",),
    "node_log": (),
    "log": ("node_log", "protocol", "runtime"),
    "coordinator": ("log", "node_log", "protocol", "runtime"),
    "broker": ("coordinator", "log", "node_log", "protocol", "runtime"),
    "client": ("protocol", "runtime"),
    "spark": ("client", "compiled", "protocol", "runtime"),
    "simulation": ("broker", "client", "compiled", "coordinator", "log", "protocol", "runtime", "spark"),
    "cli": (
        "broker",
        "client",
        "compiled",
        "coordinator",
        "log",
        "node_log",
        "protocol",
        "runtime",
        "simulation",
        "spark",
    ),
}


def imported(tree: ast.AST) -> Iterator[str]:
    """Rooms of this package that a module imports from."""
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module == "fencepost":
            names = [f"fencepost.{alias.name}" for alias in node.names if alias.name != "__version__"]
        yield from (name.split(".")[1] for name in names if name.startswith("fencepost."))


def unseen_imports(tree: ast.AST) -> list[str]:
    """Imports whose names are not all there: the other tests would not see what comes in by them."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or any(alias.name == "*" for alias in node.names))
    ]


#: The compiled one has these functions from its own .pxd, which an import of their names would hide.
MAY_BRING_ALL = {
    "protocol/record_kernel.py": [
        f"from fencepost.protocol.{name} import *" for name in ("record_pieces", "record_tuples")
    ]
}


def test_imports_name_all_that_they_bring() -> None:
    assert wrong(lambda module: unseen_imports(tree_of(module))) == MAY_BRING_ALL


@pytest.mark.parametrize("code", ["from . import a", "from .a import b", "from ..a import b", "from time import *"])
def test_an_import_that_hides_something_is_seen(code: str) -> None:
    assert unseen_imports(ast.parse(code)) == [code]


def imported_from_above(module: Path) -> list[str]:
    room = room_of(module)
    if room in ("__init__", "__main__"):
        return []
    known = {room, *MAY_KNOW[room]}
    return [name for name in imported(tree_of(module)) if name not in known]


def test_imports_go_down() -> None:
    assert wrong(imported_from_above) == {}


def test_nothing_is_imported_in_a_circle() -> None:
    """Not for the type checker only, either."""
    assert imports.circles(imports.imports(SOURCE)) == []


def test_no_room_is_in_a_circle() -> None:
    assert imports.circles(imports.rooms(imports.imports(SOURCE))) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "f"}, "f": {"e"}}
    assert imports.circles(graph) == [{"a", "b", "c"}, {"e", "f"}]
    assert imports.without_detours({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


ORDERLESS = ("set", "frozenset", "asyncio.all_tasks", "asyncio.wait", "asyncio.as_completed")


def is_orderless(node: ast.expr) -> bool:
    """A set, or something that gives its elements in no order that a seed decides."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ORDERLESS


def orderless_loops(module: Path) -> list[str]:
    if name_of(module) == "simulation/loop.py":
        return []  # what is cancelled when all is over
    loops = [
        node.iter for node in ast.walk(tree_of(module)) if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
    ]
    return [ast.unparse(node) for node in loops if is_orderless(node)]


def test_nothing_runs_in_the_order_of_a_set() -> None:
    assert wrong(orderless_loops) == {}


def unsteady_calls(module: Path) -> list[str]:
    """What takes fewer turns of the loop in newer versions of Python: gather where something is done already."""
    unsteady = {"asyncio.wait_for", "asyncio.gather"} if room_of(module) == "simulation" else {"asyncio.wait_for"}
    return sorted(unsteady & set(calls(tree_of(module))))


def test_a_seed_takes_as_many_turns_with_every_python() -> None:
    """`simulation/waiting.py` and `asyncio.timeout` stand for these."""
    assert wrong(unsteady_calls) == {}


#: What writes lines that nobody counts -> the modules of the node that may.
UNLIMITED: dict[str, tuple[str, ...]] = {
    "logging.getLogger": (),
    "logging.debug": (),
    "logging.info": (),
    "logging.warning": (),
    "logging.error": (),
    "logging.exception": (),
    "logging.critical": (),
    "logging.log": (),
    "warnings.warn": (),
    "traceback.print_exc": (),
    "sys.stdout": (),
    "sys.stderr": (),
    "print": ("cli/serve.py",),
}
ROOMS = ("broker", "coordinator", "log", "listening", "runtime")
NODE = [module for module in MODULES if room_of(module) in ROOMS or name_of(module) == "cli/serve.py"]


def unlimited_lines(module: Path) -> list[str]:
    tree = tree_of(module)
    used = {*calls(tree), *plain_names(tree)}
    unlimited = [what for what, allowed in UNLIMITED.items() if what in used and name_of(module) not in allowed]
    unlimited += [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("logging", "warnings")
    ]
    return unlimited


def test_every_line_of_the_node_is_limited() -> None:
    assert wrong(unlimited_lines, NODE) == {}


def test_files_stay_readable() -> None:
    files = [file for folder in EVERYWHERE for file in (ROOT / folder).rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files}
    assert {name: length for name, length in lengths.items() if length > 420} == {}


MOST_LINES = 60
"""Of a function: what fits on a screen."""
#: Longer ones, and why -> their names.
MAY_BE_LONG = {
    "the loop over the bytes of every record, where a call would cost more than what it does": (
        "src/fencepost/protocol/record_decoding.py: decode_records",
        "src/fencepost/protocol/record_kernel.py: decode_records",
        "src/fencepost/protocol/record_kernel.py: index_records",
        "src/fencepost/protocol/record_scan.py: _run",
    ),
    "half of it is the settings of a client, one a line": (
        "src/fencepost/client/consumer.py: __init__",
        "src/fencepost/client/producer.py: __init__",
    ),
}


def long_functions(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MOST_LINES]


def test_functions_fit_on_a_screen() -> None:
    files = sorted(file for folder in EVERYWHERE for file in (ROOT / folder).rglob("*.py"))
    found = [f"{file.relative_to(ROOT)}: {name}" for file in files for name in long_functions(tree_of(file))]
    assert sorted(found) == sorted(name for names in MAY_BE_LONG.values() for name in names)


@pytest.mark.parametrize(("lines", "found"), [(MOST_LINES, []), (MOST_LINES + 1, ["f"])])
def test_a_long_function_is_found(lines: int, found: list[str]) -> None:
    assert long_functions(ast.parse("def f():" + "\n    pass" * (lines - 1))) == found
