"""The rules of the house: imports go down, the outside world comes in by one door, files stay readable."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.source_trees import EVERYWHERE, MODULES, ROOT, SOURCE, calls, name_of, plain_calls, room_of, tree_of, wrong

from scripts import imports

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

ANYWHERE = ("",)
#: what reaches outside, by itself or with all that is in it -> the modules that may use it; the longest name counts
DOORS: dict[str, tuple[str, ...]] = {
    "time": (),
    "time.time_ns": ("runtime.py",),
    "datetime.datetime.now": (),
    "datetime.datetime.today": (),
    "datetime.datetime.utcnow": (),
    "datetime.date.today": (),
    "open": ("cli/files.py",),
    "io.open": (),
    "fcntl": ("log/disk.py",),
    "glob": (),
    "mmap": (),
    "os": ("client/home.py", "log/disk.py"),
    "os.PathLike": ANYWHERE,
    "os.R_OK": ANYWHERE,
    "os.access": ("client/tls.py",),
    "os.environ": ("compiled/in_use.py", "simulation/bugs/__init__.py", "spark/java.py", "spark/session.py"),
    "os.fspath": ANYWHERE,
    "os.fstat": ("cli/files.py", "log/disk.py"),
    "os.getpid": ("spark/java.py",),
    "os.path.samestat": ("cli/files.py",),
    "os.replace": ("log/disk.py",),
    "os.stat": ("cli/files.py",),
    "pathlib.Path.cwd": (),
    "pathlib.Path.home": ("spark/java.py",),
    "shutil": (),
    "shutil.which": ("spark/java.py",),
    "tempfile": (),
    "tempfile.NamedTemporaryFile": ("client/tls.py",),
    "tempfile.TemporaryDirectory": ("broker/running.py",),
    "tempfile.TemporaryFile": ("client/commit_order/spill_file.py",),
    "sqlite3": ("broker/metadata/store.py",),
    "random": (),
    "random.Random": ANYWHERE,
    "random.SystemRandom": ("runtime.py",),
    "secrets": (),
    "uuid.uuid1": (),
    "uuid.uuid4": (),
    "threading.Thread": ("broker/running.py", "client/portal.py"),
    "threading.Timer": (),
    "concurrent.futures.ProcessPoolExecutor": (),
    "multiprocessing": (),
    "signal": ("cli/history.py", "cli/serve.py"),
    "asyncio.open_connection": (),
    "asyncio.start_server": (),
    "asyncio.create_subprocess_exec": (),
    "asyncio.create_subprocess_shell": (),
    "socket": ("listening.py",),
    "subprocess": (),
    "subprocess.run": ("spark/java.py",),
}
#: methods of `pathlib.Path` that touch a disk -> the modules that may use them
ON_DISK: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("glob", "hardlink_to", "is_file", "lchmod", "lstat", "open", "readlink", "rename"), ()),
    **dict.fromkeys(("resolve", "rglob", "samefile", "stat", "symlink_to", "touch", "walk", "write_bytes"), ()),
    "chmod": ("spark/java.py",),
    "exists": ("log/disk.py", "spark/java.py"),
    "is_dir": ("log/disk.py",),
    "is_symlink": ("log/disk.py",),
    "iterdir": ("compiled/files.py",),
    "mkdir": ("log/disk.py", "spark/java.py"),
    "read_bytes": ("cli/files.py", "compiled/files.py"),
    "read_text": ("simulation/bugs/__init__.py", "simulation/history/page.py", "spark/java.py"),
    "replace": ("spark/java.py",),
    "rmdir": ("log/disk.py",),
    "unlink": ("log/disk.py",),
    "write_text": ("spark/java.py",),
}
#: What has methods of these names and is no path: the disk that was handed in, others of ours, Spark's file system.
NO_PATHS = ("disk", "space", "storage", "segment", "each", "self", "files", "markers", "conversation", "os", "os.path")


def imported(tree: ast.AST) -> Iterator[str]:
    """Rooms of this package that a module imports from."""
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module == "fencepost":
            names = [f"fencepost.{alias.name}" for alias in node.names if alias.name != "__version__"]
        yield from (name.split(".")[1] for name in names if name.startswith("fencepost."))


def imported_from_above(module: Path) -> list[str]:
    room = room_of(module)
    if room in ("__init__", "__main__"):
        return []
    known = {room, *MAY_KNOW[room]}
    return [name for name in imported(tree_of(module)) if name not in known]


def test_imports_go_down() -> None:
    assert wrong(imported_from_above) == {}


def door(what: str) -> tuple[str, ...]:
    """The modules that may use it."""
    while what not in DOORS and "." in what:
        what = what.rpartition(".")[0]
    return DOORS.get(what, ANYWHERE)


def on_disk(tree: ast.AST) -> Iterator[str]:
    """Methods of paths that are called, or handed on: by their names, as nothing here knows the types."""
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    of_others = {id(call.func) for call in called if len(call.args) == 2 or call.keywords}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ON_DISK:
            owner = ast.unparse(node.value)
            plain = owner.partition("(")[0].rpartition(".")[2].lstrip("_")
            if not {owner, plain} & {*NO_PATHS} and not (node.attr == "replace" and id(node) in of_others):
                yield node.attr


def outside(tree: ast.AST, module: str) -> list[str]:
    """What a module reaches that it may not."""
    used = {*calls(tree), *({"open"} & {*plain_calls(tree)})}
    wrong = sorted(what for what in used if door(what) is not ANYWHERE and module not in door(what))
    return wrong + sorted({what for what in on_disk(tree) if module not in ON_DISK[what]})


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
        ("import os\nos.stat('x').st_size", ["os.stat"]),
        ("import os.path\nos.path.exists('x')", ["os.path.exists"]),
        ("import os\nf(os)", ["os"]),
        ("import os\nx: os.PathLike", []),
        ("from random import Random, randint\nRandom(7).random()\nrandint(1, 2)", ["random.randint"]),
        ("from pathlib import Path\nPath.home()", ["pathlib.Path.home"]),
        *((f"Path('x').{method}()", [method]) for method in ON_DISK),
        ("map(Path.unlink, found)", ["unlink"]),
        ("self.path.open()", ["open"]),
        ("self._disk.open('x')", []),
        ("disk.open('x')", []),
        ("path.with_name('x').replace(path)", ["replace"]),
        ("'x'.replace('x', 'y')", []),
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
    files = [file for folder in EVERYWHERE for file in (ROOT / folder).rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files}
    assert {name: length for name, length in lengths.items() if length > 420} == {}
