"""The outside world comes in by a few doors, and what says that it is pure has none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.source_trees import MODULES, SOURCE, aliases, calls, name_of, plain_names, tree_of, wrong

ANYWHERE = ("",)
#: Where modules are found by a name that is handed in.
BY_NAME = ("cli/__init__.py", "simulation/reach.py", "simulation/small_limits.py", "spark/security.py")
#: Where somebody else's function runs in a thread, or work that would hold up the event loop.
THREADS = (
    *("broker/network/pacing.py", "cli/serve.py", "client/authentication.py", "client/blocking/consumer.py"),
    "spark/sink.py",
)
#: what reaches outside, by itself or with all that is in it -> the modules that may use it; the longest name counts
DOORS: dict[str, tuple[str, ...]] = {
    "time": (),
    "time.time_ns": ("runtime.py",),
    "datetime.datetime.now": (),
    "datetime.datetime.today": (),
    "datetime.datetime.utcnow": (),
    "datetime.date.today": (),
    "open": ("cli/files.py", "cli/standard_output.py"),
    "__import__": (),
    "importlib": ("compiled/files.py", "simulation/bugs/__init__.py"),
    "importlib.import_module": (
        "cli/__init__.py",
        "simulation/reach.py",
        "simulation/small_limits.py",
        "spark/security.py",
    ),
    "importlib.resources": ("simulation/bugs/__init__.py", "simulation/history/page.py"),
    "io.open": (),
    "io.FileIO": (),
    "logging.FileHandler": (),
    "logging.handlers": (),
    "sys.stdin": (),
    "fcntl": ("log/disk.py", "spark/ledger_file.py"),
    "glob": (),
    "mmap": (),
    "os": ("client/home.py", "log/disk.py", "spark/ledger_file.py"),
    "os.PathLike": ANYWHERE,
    "os.R_OK": ANYWHERE,
    "os._exit": ("__main__.py",),
    "os.access": ("client/tls.py", "log/disk.py"),
    "os.cpu_count": ("cli/serve.py",),
    "os.devnull": ANYWHERE,
    "os.dup2": ("cli/standard_output.py",),
    "os.environ": (
        *("cli/serve.py", "compiled/in_use.py", "simulation/bugs/__init__.py", "spark/java.py", "spark/session.py"),
    ),
    "os.fspath": ANYWHERE,
    "os.fstat": ("cli/files.py", "log/disk.py"),
    "os.getpid": ("spark/java.py",),
    "os.path.samestat": ("cli/files.py",),
    "os.replace": ("log/disk.py",),
    "os.stat": ("cli/files.py",),
    "os.write": ("__main__.py",),
    "os.sysconf": ("cli/freed_memory.py",),
    "pathlib.Path.cwd": (),
    "pathlib.Path.home": ("spark/java.py",),
    "shutil": (),
    "shutil.which": ("spark/java.py",),
    "tempfile": (),
    "tempfile.NamedTemporaryFile": ("client/tls.py", "spark/ledger_file.py"),
    "tempfile.TemporaryDirectory": ("broker/running.py",),
    "tempfile.TemporaryFile": ("client/commit_order/spill_file.py",),
    "sqlite3": ("broker/metadata/store.py",),
    "random": (),
    "random.Random": ANYWHERE,
    "random.Random()": ("runtime.py",),
    "numpy.random": (),
    "random.SystemRandom": ("runtime.py",),
    "secrets": (),
    "uuid.uuid1": (),
    "uuid.uuid4": (),
    "threading.Thread": ("broker/running.py", "client/portal.py"),
    "threading.Timer": (),
    "_thread": (),
    "concurrent.futures.ProcessPoolExecutor": (),
    "concurrent.futures.ThreadPoolExecutor": ("cli/serve.py", "log/disk.py"),
    "multiprocessing": (),
    "signal": ("__main__.py", "cli/history.py", "cli/stop_signals.py"),
    "asyncio.open_connection": (),
    "asyncio.open_unix_connection": (),
    "asyncio.start_server": (),
    "asyncio.start_unix_server": (),
    "asyncio.create_subprocess_exec": (),
    "asyncio.create_subprocess_shell": (),
    "asyncio.to_thread": THREADS,
    "socket": ("connecting.py", "listening.py"),
    "select": ("cli/ends_apart.py",),
    "selectors": ("cli/ends_apart.py",),
    "http": (),
    "urllib": (),
    "subprocess": (),
    "subprocess.run": ("spark/java.py",),
}
#: methods of `pathlib.Path` that touch a disk -> the modules that may use them
ON_DISK: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("glob", "hardlink_to", "is_file", "lchmod", "lstat", "open", "readlink", "rename"), ()),
    **dict.fromkeys(("resolve", "rglob", "samefile", "symlink_to", "touch", "walk", "write_bytes"), ()),
    "chmod": ("spark/java.py",),
    "exists": ("log/disk.py", "spark/java.py"),
    "is_dir": ("log/disk.py",),
    "is_symlink": ("log/disk.py",),
    "iterdir": ("compiled/files.py",),
    "mkdir": ("log/disk.py", "spark/java.py"),
    "read_bytes": ("cli/files.py", "compiled/files.py"),
    "read_text": ("simulation/bugs/__init__.py", "simulation/history/page.py", "spark/java.py", "cli/freed_memory.py"),
    "replace": ("spark/java.py",),
    "rmdir": ("log/disk.py",),
    "stat": ("log/disk.py",),
    "unlink": ("log/disk.py",),
    "write_text": ("spark/java.py",),
}
#: methods of an event loop that open sockets, watch descriptors, or begin threads and processes -> who may use them
OF_THE_LOOP: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("create_datagram_endpoint", "create_server", "create_unix_connection", "create_unix_server"), ()),
    **dict.fromkeys(("add_writer", "connect_read_pipe", "connect_write_pipe", "sock_accept", "sock_connect"), ()),
    **dict.fromkeys(("subprocess_exec", "subprocess_shell"), ()),
    "add_reader": ("listening.py",),
    "add_signal_handler": (),
    "connect_accepted_socket": ("listening.py",),
    "create_connection": ("runtime.py",),
    "run_in_executor": ("log/cleaner/work.py", "log/disk.py"),
}
#: What has methods of these names and is no path: the disk that was handed in, others of ours, Spark's file system.
NO_PATHS = ("disk", "space", "storage", "segment", "each", "self", "files", "markers", "conversation", "os", "os.path")


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


def seedless(tree: ast.AST) -> Iterator[str]:
    """Generators that are made without a seed: they begin with what the operating system gives."""
    known = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            first, dot, rest = ast.unparse(node.func).partition(".")
            if known.get(first, "") + dot + rest == "random.Random":
                yield "random.Random()"


def of_the_loop(tree: ast.AST) -> Iterator[str]:
    """Methods of event loops: by their names, which nothing else of ours has."""
    yield from (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in OF_THE_LOOP)


def outside(tree: ast.AST, module: str) -> list[str]:
    """What a module reaches that it may not."""
    used = {*calls(tree), *({"open", "__import__"} & {*plain_names(tree)}), *seedless(tree)}
    wrong = sorted(what for what in used if door(what) is not ANYWHERE and module not in door(what))
    wrong += sorted({what for what in on_disk(tree) if module not in ON_DISK[what]})
    return wrong + sorted({what for what in of_the_loop(tree) if module not in OF_THE_LOOP[what]})


def test_the_outside_world_is_handed_in() -> None:
    assert wrong(lambda module: outside(tree_of(module), name_of(module))) == {}


_POOL = "concurrent.futures.ThreadPoolExecutor"


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("import time\ntime.time()", ["time.time"]),
        ("from time import time\ntime()", ["time.time"]),
        ("from time import time as now\nnow()", ["time.time"]),
        ("import time as clock\nx = clock.sleep", ["time.sleep"]),
        ("from datetime import datetime\ndatetime.now()", ["datetime.datetime.now"]),
        ("open('x')", ["open"]),
        ("opened = map(open, names)", ["open"]),
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
        ("import importlib\nimportlib.import_module('time')", ["importlib.import_module"]),
        ("__import__('time')", ["__import__"]),
        ("from random import Random\nRandom()", ["random.Random()"]),
        ("import random as r\nr.Random()", ["random.Random()"]),
        ("import numpy as np\nnp.random.rand()", ["numpy.random.rand"]),
        ("import asyncio\nasyncio.to_thread(print)", ["asyncio.to_thread"]),
        ("from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1)", [_POOL]),
        ("import urllib.request\nurllib.request.urlopen('x')", ["urllib.request.urlopen"]),
        *((f"loop.{method}()", [method]) for method in OF_THE_LOOP),
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
    *("fencepost.log.disk", "fencepost.node_log", "fencepost.connecting", "fencepost.listening", "fencepost.runtime"),
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
    return ways + sorted({"open", "print", "input"} & set(plain_names(tree)))


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
