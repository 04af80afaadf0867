"""The rules of the house: imports go down, the outside world comes in by one door, files stay readable."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts import imports

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fencepost"
MODULES = sorted(SOURCE.rglob("*.py"))

#: room -> the rooms that it may import from (its own is understood)
MAY_KNOW = {
    "compiled": (),
    "protocol": ("compiled",),
    "runtime": ("listening", "protocol"),
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

#: what reaches outside -> the modules that may use it
DOORS: dict[str, tuple[str, ...]] = {
    "time.time": (),
    "time.time_ns": ("runtime.py",),
    "time.monotonic": (),
    "time.monotonic_ns": (),
    "time.perf_counter": (),
    "time.perf_counter_ns": (),
    "time.sleep": (),
    "datetime.datetime.now": (),
    "datetime.datetime.utcnow": (),
    "open": ("cli/files.py",),
    "io.open": (),
    "os.open": ("log/disk.py",),
    "os.fdopen": (),
    "os.listdir": ("log/disk.py",),
    "os.replace": ("log/disk.py", "spark/java.py"),
    "os.remove": (),
    "os.rename": (),
    "os.unlink": (),
    "shutil.rmtree": (),
    "tempfile.TemporaryDirectory": ("broker/running.py",),
    "tempfile.TemporaryFile": ("client/commit_order/spill_file.py",),
    "sqlite3.connect": ("broker/metadata/store.py",),
    "random.random": (),
    "random.choice": (),
    "random.randint": (),
    "random.randrange": (),
    "random.shuffle": (),
    "random.uniform": (),
    "secrets.token_bytes": (),
    "uuid.uuid1": (),
    "uuid.uuid4": (),
    "os.urandom": (),
    "threading.Thread": ("broker/running.py", "client/portal.py"),
    "asyncio.open_connection": (),
    "asyncio.start_server": (),
    "socket.create_connection": (),
    "socket.socket": ("listening.py",),
    "subprocess.run": ("spark/java.py",),
    "subprocess.Popen": (),
}
#: methods of `pathlib.Path` that touch a disk -> the modules that may use them
ON_DISK: dict[str, tuple[str, ...]] = {
    "read_text": ("simulation/bugs/__init__.py", "simulation/history/page.py", "spark/java.py"),
    "write_text": ("spark/java.py",),
    "read_bytes": ("cli/files.py", "compiled/files.py"),
    "write_bytes": (),
}


def name_of(module: Path) -> str:
    return str(module.relative_to(SOURCE))


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def wrong(find: Callable[[Path], object], modules: Iterable[Path] = MODULES) -> dict[str, object]:
    """What is found in a module that should not be there, by its name."""
    return {name_of(module): found for module in modules if (found := find(module))}


def room_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Rooms of this package that a module imports from."""
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module == "fencepost":
            names = [f"fencepost.{alias.name}" for alias in node.names if alias.name != "__version__"]
        yield from (name.split(".")[1] for name in names if name.startswith("fencepost."))


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            first, dot, rest = ast.unparse(node).partition(".")
            if first in known:
                yield known[first] + dot + rest


def plain_calls(tree: ast.AST) -> Iterator[str]:
    """Functions that are called by nothing but their name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def imported_from_above(module: Path) -> list[str]:
    room = room_of(module)
    if room in ("__init__", "__main__"):
        return []
    known = {room, *MAY_KNOW[room]}
    return [name for name in imported(tree_of(module)) if name not in known]


def test_imports_go_down() -> None:
    assert wrong(imported_from_above) == {}


def outside(tree: ast.AST, module: str) -> list[str]:
    """What a module reaches that it may not."""
    used = {*calls(tree), *plain_calls(tree)}
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    wrong = [what for what, doors in DOORS.items() if what in used and module not in doors]
    return wrong + [what for what, doors in ON_DISK.items() if what in methods and module not in doors]


def test_the_outside_world_is_handed_in() -> None:
    assert wrong(lambda module: outside(tree_of(module), name_of(module))) == {}


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("import time\ntime.time()", ["time.time"]),
        ("from time import time\ntime()", ["time.time"]),
        ("from time import time as now\nnow()", ["time.time"]),
        ("import time as clock\nx = clock.sleep", ["time.sleep"]),
        ("from datetime import datetime\ndatetime.now()", ["datetime.datetime.now"]),
        ("open('x')", ["open"]),
        ("from os import open\nopen('x')", ["open", "os.open"]),
        ("Path('x').read_text()", ["read_text"]),
        ("disk.open('x')", []),
        ("def f(time):\n    return time.time()", []),
    ],
)
def test_the_outside_world_is_seen_however_it_is_reached(code: str, seen: list[str]) -> None:
    assert outside(ast.parse(code), "some/module.py") == seen


#: What a module says that reaches nothing outside; said by a package, it holds for all in it.
_CLAIM = re.compile(r"^Pure\b|\bpure functions?\b|^What a pure decision|\bNo I/O\b", re.MULTILINE)
#: Modules that decide and need not say it.
DECISIONS = (
    *(
        f"coordinator/transaction/{name}.py"
        for name in ("add_partitions", "decision", "end", "expiry", "initialize", "prepare", "reconcile", "state")
    ),
    *(f"coordinator/transaction/{name}.py" for name in ("timeout", "transaction", "verify")),
)
#: What a pure module has no use for: the standard library's ways out, and ours.
WAYS_OUT = (
    *("asyncio", "concurrent", "io", "logging", "os", "pathlib", "queue", "random", "secrets", "select", "shutil"),
    *("signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "warnings"),
    *("fencepost.log.disk", "fencepost.node_log", "fencepost.listening"),
)


def claims(module: Path) -> bool:
    """Whether the module, or a package around it, says that it is pure."""
    said = [module, *(parent / "__init__.py" for parent in module.parents if parent.is_relative_to(SOURCE))]
    return any(_CLAIM.search(ast.get_docstring(tree_of(each)) or "") for each in said if each.exists())


def impurities(tree: ast.AST) -> list[str]:
    """What a module imports or calls by which it could reach outside.  What only the type checker sees is no matter."""
    unseen = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    ways = [way for way in WAYS_OUT if any(name == way or name.startswith(f"{way}.") for name in found)]
    return ways + sorted({"open", "print", "input"} & set(plain_calls(tree)))


def test_what_is_pure_reaches_nothing_outside() -> None:
    pure = [module for module in MODULES if claims(module) or name_of(module) in DECISIONS]
    names = {name_of(module) for module in pure}
    assert set(DECISIONS) <= names, "a decision moved: name it here by its new place"
    assert {"client/assignors.py", "log/producer_state.py", "protocol/codec.py"} <= names, (
        "claimed where it is relied on"
    )
    assert wrong(lambda module: impurities(tree_of(module)), pure) == {}


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("import time", ["time"]),
        ("def f():\n    from os import path", ["os"]),
        ("from fencepost.log import disk", ["fencepost.log.disk"]),
        ("print(1)", ["print"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pathlib import Path", []),
    ],
)
def test_impurity_is_seen(code: str, seen: list[str]) -> None:
    assert impurities(ast.parse(code)) == seen


def test_nothing_is_imported_in_a_circle() -> None:
    """Not for the type checker only, either."""
    assert imports.circles(imports.imports(SOURCE)) == []


def test_no_room_is_in_a_circle() -> None:
    assert imports.circles(imports.rooms(imports.imports(SOURCE))) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "f"}, "f": {"e"}}
    assert imports.circles(graph) == [{"a", "b", "c"}, {"e", "f"}]
    assert imports.without_detours({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


EVERYWHERE = ("src", "tests", "benchmarks", "demo", "examples", "scripts", "stock_clients")


def used_names(trees: Iterable[ast.AST]) -> set[str]:
    """Every name that is read, imported, passed by keyword, or written as a string (as for getattr)."""
    used: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    used.add(name)
                case ast.alias(name=name) | ast.keyword(arg=str(name)):
                    used.add(name.rpartition(".")[2])
                case ast.MatchClass(kwd_attrs=names):
                    used.update(names)
                case ast.Constant(value=str(text)) if text.isidentifier():
                    used.add(text)
    return used


def definitions(tree: ast.Module, ours: set[str]) -> Iterator[str]:
    """What a module defines: at its top, and in classes whose bases, if any, are `ours`.

    Others' base classes call what they want of what is in a class.
    """
    for node in tree.body:
        yield from _defined(node)
        if isinstance(node, ast.ClassDef) and {ast.unparse(base).split("[")[0] for base in node.bases} <= ours:
            for inner in node.body:
                yield from _defined(inner)


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case (
            ast.FunctionDef(name=name, decorator_list=decorators)
            | ast.AsyncFunctionDef(name=name, decorator_list=decorators)
        ) if not any("(" in ast.unparse(each) for each in decorators):
            yield name
        case ast.ClassDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            yield name


def test_every_definition_is_used() -> None:
    trees = {path: tree_of(path) for folder in EVERYWHERE for path in (ROOT / folder).rglob("*.py")}
    used = used_names(tree for path, tree in trees.items() if path != Path(__file__))
    ours = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    ours |= {"NamedTuple", "Protocol", "Generic", "Enum"}
    found: set[str] = set()
    for module in MODULES:
        if not module.is_relative_to(SOURCE / "protocol" / "messages"):  # what is on the wire, used or not
            found |= {name for name in definitions(trees[module], ours) if not name.startswith("__")} - used
    assert found == set(), "remove what nothing uses"


def test_every_request_that_is_declared_is_served_or_sent() -> None:
    declared = SOURCE / "protocol" / "messages"
    named = used_names([tree_of(declared / "__init__.py")])
    used = used_names(tree_of(module) for module in MODULES if not module.is_relative_to(declared))
    assert {name for name in named if name.endswith("Request")} <= used, "declare it when it is served"


def test_a_definition_that_nothing_uses_is_found() -> None:
    lines = ["class A:", "    def used(self): ...", "    def unused(self): ...", "A().used()"]
    tree = ast.parse("\n".join([*lines, "class B(asyncio.Protocol):", "    def called_by_others(self): ..."]))
    assert set(definitions(tree, {"A"})) - used_names([tree]) == {"unused", "B"}


def late_attributes(tree: ast.AST) -> list[str]:
    """Attributes of `self` that some method sets, but that the object has not from the beginning."""
    found = []
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = [node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        whole = {"__class__"}
        for node in owner.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                whole.add(node.target.id)
            elif isinstance(node, ast.Assign):
                whole.update(target.id for target in node.targets if isinstance(target, ast.Name))
        for method in methods:
            if method.name in ("__init__", "__post_init__", "__new__"):
                whole.update(_set_on_self(method))
            if any(ast.unparse(each).endswith(".setter") for each in method.decorator_list):
                whole.add(method.name)
        found += [f"{owner.name}.{name}" for method in methods for name in _set_on_self(method) if name not in whole]
    return found


def _set_on_self(method: ast.AST) -> list[str]:
    return [
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    ]


def test_objects_are_whole_once_made() -> None:
    assert wrong(lambda module: late_attributes(tree_of(module))) == {}


@pytest.mark.parametrize(
    ("body", "late"),
    [
        ("def __init__(self): self.a = 1\n def go(self): self.a = 2", []),
        ("a: int = 1\n def go(self): self.a = 2", []),
        ("def go(self): self.a = 2", ["A.a"]),
        ("def __init__(self): pass\n async def go(self): self.a, self.b.c = 1, 2", ["A.a"]),
    ],
)
def test_an_attribute_that_comes_later_is_seen(body: str, late: list[str]) -> None:
    assert late_attributes(ast.parse(f"class A:\n {body}")) == late


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
    used = {*calls(tree), *plain_calls(tree)}
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
    lengths = {name_of(module): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: length for name, length in lengths.items() if length > 420} == {}


def test_every_module_says_what_it_is() -> None:
    assert wrong(lambda module: not ast.get_docstring(tree_of(module))) == {}


#: In these the module says it, which has one public name, or the name is all there is to say.
SAID_BY_THE_MODULE = ("broker/apis/", "protocol/messages/")


def undescribed(module: Path) -> list[str]:
    if name_of(module).startswith(SAID_BY_THE_MODULE):
        return []
    defined = [
        node
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    return [node.name for node in defined if not ast.get_docstring(node)]


def test_every_public_class_and_function_says_what_it_is() -> None:
    assert wrong(undescribed) == {}
