"""What is defined is used, is whole once it is made, and says what it is."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.source_trees import EVERYWHERE, MODULES, ROOT, SOURCE, aliases, name_of, tree_of, wrong

#: Tests that name what is in the package and use none of it.
NAMING = (Path(__file__), ROOT / "tests" / "test_house.py", ROOT / "tests" / "test_outside_world.py")


#: As `__all__`, and `_missing_` of an Enum.
_OF_THE_LANGUAGE = re.compile(r"_\w*_")


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
    """What a module defines: at its top, and in classes.

    What others' base classes have too they call by themselves; of bases that are `ours` everything is here.
    """
    known = aliases(tree)
    for node in tree.body:
        yield from _defined(node)
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).split("[")[0] for base in node.bases} - ours
            called = {name for base in bases for name in names_in(base, known)}
            for inner in node.body:
                yield from (name for name in _defined(inner) if name not in called)


def names_in(base: str, known: Mapping[str, str]) -> list[str]:
    """The names that a class of others has; `known`: what the imported names of the module stand for."""
    first, dot, rest = base.partition(".")
    found: object = builtins
    for part in (known.get(first, first) + dot + rest).split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(part if found is builtins else f"{getattr(found, '__name__', '')}.{part}")
    return dir(found)


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
        case ast.Assign(targets=[ast.Tuple(elts=names)]):
            yield from (name.id for name in names if isinstance(name, ast.Name) and name.id != "_")


def test_every_definition_is_used() -> None:
    trees = {path: tree_of(path) for folder in EVERYWHERE for path in (ROOT / folder).rglob("*.py")}
    used = used_names(tree for path, tree in trees.items() if path not in NAMING)
    ours = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    ours |= {"NamedTuple", "Protocol", "Generic", "Enum"}
    found: set[str] = set()
    for module in MODULES:
        if not module.is_relative_to(SOURCE / "protocol" / "messages"):  # what is on the wire, used or not
            found |= {name for name in definitions(trees[module], ours) if not _OF_THE_LANGUAGE.fullmatch(name)} - used
    assert found == set(), "remove what nothing uses"


def test_every_request_that_is_declared_is_served_or_sent() -> None:
    declared = SOURCE / "protocol" / "messages"
    named = used_names([tree_of(declared / "__init__.py")])
    used = used_names(tree_of(module) for module in MODULES if not module.is_relative_to(declared))
    assert {name for name in named if name.endswith("Request")} <= used, "declare it when it is served"


def test_a_definition_that_nothing_uses_is_found() -> None:
    lines = ["class A:", "    def used(self): ...", "    def unused(self): ...", "A().used()"]
    lines += ["import asyncio", "class B(asyncio.Protocol):", "    def data_received(self): ..."]
    tree = ast.parse("\n".join([*lines, "    def called_by_nobody(self): ..."]))
    assert set(definitions(tree, {"A"})) - used_names([tree]) == {"unused", "B", "called_by_nobody"}


def late_attributes(tree: ast.AST) -> list[str]:
    """Attributes of `self` that some method sets, but that the object has not from the beginning."""
    found = []
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = [node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        whole = {"__class__"}
        for node in owner.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _has_value(node, owner):
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


def _has_value(field: ast.AnnAssign, owner: ast.ClassDef) -> bool:
    """Whether the field is there in every object: it has a value, or who makes the object gives one."""
    if field.value is None:
        return bool(owner.decorator_list or owner.bases)
    said = {f"{each.arg}={ast.unparse(each.value)}" for each in getattr(field.value, "keywords", ())}
    return "init=False" not in said or any(each.startswith("default") for each in said)


def _set_on_self(method: ast.AST) -> list[str]:
    only_said = {id(node.target) for node in ast.walk(method) if isinstance(node, ast.AnnAssign) and node.value is None}
    return [
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        if id(node) not in only_said
    ]


def test_objects_are_whole_once_made() -> None:
    assert wrong(lambda module: late_attributes(tree_of(module))) == {}


@pytest.mark.parametrize(
    ("body", "late"),
    [
        ("def __init__(self): self.a = 1\n def go(self): self.a = 2", []),
        ("a: int = 1\n def go(self): self.a = 2", []),
        ("def go(self): self.a = 2", ["A.a"]),
        ("a: int\n def go(self): self.a = 2", ["A.a"]),
        ("a: int = field(init=False)\n def go(self): self.a = 2", ["A.a"]),
        ("a: int = field(init=False)\n def __post_init__(self): self.a = 2", []),
        ("a: int = field(init=False, default=1)\n def go(self): self.a = 2", []),
        ("def __init__(self): self.a: int\n def go(self): self.a = 2", ["A.a"]),
        ("def __init__(self): pass\n async def go(self): self.a, self.b.c = 1, 2", ["A.a"]),
    ],
)
def test_an_attribute_that_comes_later_is_seen(body: str, late: list[str]) -> None:
    assert late_attributes(ast.parse(f"class A:\n {body}")) == late


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


#: What is called so is no plain number -> its type.
TYPED = {
    r"now|.*_ms|(.*_)?timestamp": "Milliseconds",
    r"(.*_)?lsn": "Lsn",
    r"(?!relative_)(.*_)?offset|high_watermark": "Offset",
    r"(.*_)?producer_id": "ProducerId",
    r"(.*_)?producer_epoch": "Epoch",
    r"(.*_)?(leader|coordinator)_epoch": "LeaderEpoch",
}
#: In these users hand numbers in and are handed them, or a step of a simulated one is said.
OF_USERS = ("cli/", "client/", "simulation/", "spark/")
#: But these are told by nodes only.
OF_NODES = r"high_watermark|last_stable_offset|log_start_offset"
MAY_BE_NUMBERS = {
    "compiled, or called for every batch or record, where the call of a type would cost": (
        "log/batch_check.py: timestamp",
        "log/segment.py: least_offset",
        "protocol/record_kernel.py: base_offset",
        "protocol/record_kernel.py: base_timestamp",
        "protocol/record_scan.py: offset",
        "protocol/record_scan.py: timestamp",
        "protocol/record_tuples.py: offset",
        "protocol/record_tuples.py: timestamp",
        "protocol/records.py: base_offset",
        "protocol/records.py: base_timestamp",
        "protocol/records.py: max_timestamp",
        "protocol/records.py: timestamp",
    ),
    "makes a pair of numbers as they came off the wire": (
        "protocol/types.py: producer_epoch",
        "protocol/types.py: producer_id",
    ),
}


def plain_numbers(tree: ast.AST) -> Iterator[str]:
    """Parameters, attributes and results by whose name they have a type, but which are said to be an int."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.arg(arg=name, annotation=ast.expr() as said)
                | ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=said)
            ):
                pass
            case ast.FunctionDef(name=name, returns=ast.expr() as said):
                pass
            case _:
                continue
        is_int = ast.unparse(said) in ("int", "int | None")
        if is_int and any(re.fullmatch(names, name) for names in TYPED):
            yield name


def test_a_number_that_has_a_type_is_of_it() -> None:
    """So that the type checker finds an epoch in the place of an offset."""
    modules = [each for each in MODULES if not name_of(each).startswith(OF_USERS)]
    found = {f"{name_of(each)}: {name}" for each in modules for name in plain_numbers(tree_of(each))}
    assert found == {name for names in MAY_BE_NUMBERS.values() for name in names}


def test_what_a_node_tells_of_a_log_has_its_type_among_users_too() -> None:
    assert wrong(lambda each: [name for name in plain_numbers(tree_of(each)) if re.fullmatch(OF_NODES, name)]) == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(now: int): pass", ["now"]),
        ("async def f(*, last_lsn: int | None = None): pass", ["last_lsn"]),
        ("def leader_epoch(self) -> int: pass", ["leader_epoch"]),
        ("class A:\n coordinator_epoch: int", ["coordinator_epoch"]),
        ("self.timeout_ms: int = 1", ["timeout_ms"]),
        ("def f(offset: int, relative_offset: int) -> None: pass", ["offset"]),
        ("def log_end_offset(self) -> int: pass", ["log_end_offset"]),
        ("def f(now: Milliseconds, count: int, producer_id: ProducerId | None): pass", []),
        ("timeout_ms: int32", []),
    ],
)
def test_a_plain_number_is_found(code: str, found: list[str]) -> None:
    assert list(plain_numbers(ast.parse(code))) == found
