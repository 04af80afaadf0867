"""The rules of the house: imports go down, the outside world comes in by one door, files stay readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fencepost"
MODULES = sorted(SOURCE.rglob("*.py"))

#: room -> the rooms that it may import from (its own is understood)
MAY_KNOW = {
    "protocol": (),
    "runtime": ("listening", "protocol"),
    "listening": ("node_log",),
    "node_log": (),
    "log": ("node_log", "protocol", "runtime"),
    "coordinator": ("log", "node_log", "protocol", "runtime"),
    "broker": ("coordinator", "log", "node_log", "protocol", "runtime"),
    "client": ("protocol", "runtime"),
    "spark": ("client", "protocol", "runtime"),
    "simulation": ("broker", "client", "coordinator", "log", "protocol", "runtime"),
    "cli": ("broker", "client", "coordinator", "log", "node_log", "protocol", "runtime", "spark"),
}

#: what reaches outside -> the modules that may use it
DOORS = {
    "time.time": (),
    "time.time_ns": ("runtime.py",),
    "time.monotonic": (),
    "time.sleep": (),
    "datetime.datetime.now": (),
    "os.open": ("log/disk.py",),
    "random.random": (),
    "random.choice": (),
    "random.randrange": (),
    "uuid.uuid4": (),
    "os.urandom": (),
    "threading.Thread": ("broker/running.py", "client/portal.py"),
    "asyncio.open_connection": (),
    "asyncio.start_server": (),
    "socket.socket": ("listening.py",),
}


def name_of(module: Path) -> str:
    return str(module.relative_to(SOURCE))


def room_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Rooms of this package that a module imports from."""
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module == "fencepost":
            names = [f"fencepost.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("fencepost."))


def calls(tree: ast.AST) -> Iterator[str]:
    """What is reached through an imported module, as `time.time`; a parameter of the same name is none."""
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node).split(".")[0] in modules:
            yield ast.unparse(node)


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_imports_go_down(module: Path) -> None:
    room = room_of(module)
    if room in ("__init__", "__main__"):
        return
    known = {room, *MAY_KNOW[room]}
    assert [name for name in imported(ast.parse(module.read_text())) if name not in known] == []


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_the_outside_world_is_handed_in(module: Path) -> None:
    used = set(calls(ast.parse(module.read_text())))
    wrong = [what for what, doors in DOORS.items() if what in used and name_of(module) not in doors]
    assert wrong == []


ORDERLESS = ("set", "frozenset", "asyncio.all_tasks", "asyncio.wait", "asyncio.as_completed")


def is_orderless(node: ast.expr) -> bool:
    """A set, or something that gives its elements in no order that a seed decides."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ORDERLESS


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_nothing_runs_in_the_order_of_a_set(module: Path) -> None:
    if name_of(module) == "simulation/loop.py":
        return  # what is cancelled when all is over
    loops = [
        node.iter
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
    ]
    assert [ast.unparse(node) for node in loops if is_orderless(node)] == []


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


@pytest.mark.parametrize(
    "module", [*NODE, SOURCE / "cli" / "serve.py", SOURCE / "listening.py", SOURCE / "runtime.py"], ids=name_of
)
def test_every_line_of_the_node_is_limited(module: Path) -> None:
    nodes = list(ast.walk(tree := ast.parse(module.read_text())))
    plain = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    used = set(calls(tree)) | plain
    assert [what for what, allowed in UNLIMITED.items() if what in used and name_of(module) not in allowed] == []
    assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module in ("logging", "warnings")]


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_files_stay_readable(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= 420


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text()))
