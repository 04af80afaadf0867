"""Bugs on purpose: each a small change to one module, made while that module is imported, by name.

They are what shows that the simulation finds such bugs.  The code itself has no switch for them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from types import CodeType, ModuleType
from typing import Final

from fencepost.simulation.bugs.bug import Bug, BugUnusable, read

__all__ = ["BUGS", "Bug", "BugUnusable", "put_in"]

_ROOMS: Final = (
    "log",
    "recovery",
    "removal",
    "compaction",
    "reading",
    "transactions",
    "groups",
    "members",
    "answers",
    "administration",
    "limits",
    "protocol",
    "compiled",
    "client",
    "admin",
    "security",
    "consumers",
    "commit_order",
    "loops",
    "spark",
)
BUGS: Final[Mapping[str, Bug]] = {
    bug.name: bug for room in _ROOMS for bug in read(resources.files(__name__).joinpath(f"{room}.patch").read_text())
}
"""Every bug by its name."""
#: Modules whose functions compiled code stands in for, and what keeps that from being used.  As `compiled.files` says,
#: which is not imported here: none of its bugs could be put in.
COMPILED: Final = tuple(
    f"fencepost.protocol.{name}"
    for name in (
        "record_kernel",
        "record_pieces",
        "record_tuples",
        "records",
        "record_decoding",
        "record_scan",
        "partitioning",
    )
)
FORCE_PURE: Final = "FENCEPOST_PURE"


def put_in(name: str) -> None:
    """Have the module with this bug imported in the place of the right one, in this process, for good.

    Raises BugUnusable if there is no such bug, or its module is imported already.
    """
    bug = BUGS.get(name)
    if bug is None:
        raise BugUnusable(f"--bug {name}: there is no such bug; --bug list names them")
    if bug.module in sys.modules or (bug.module in COMPILED and "fencepost.compiled.in_use" in sys.modules):
        raise BugUnusable(f"--bug {name}: {bug.module} is imported already; a bug goes into a fresh process only")
    os.environ[FORCE_PURE] = "a bug is put in"  # what was compiled of the right text would stand in for the wrong one
    sys.meta_path.insert(0, _Finder(bug))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module of a bug, and nothing else."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._bug.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Loader(fullname, spec.origin, self._bug)
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with a bug, whatever is cached of it."""

    def __init__(self, fullname: str, path: str, bug: Bug) -> None:
        super().__init__(fullname, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname)
        assert source is not None, "modules are there as source"
        code: CodeType = compile(self._bug.put_into(source), self.path, "exec", dont_inherit=True)
        return code
