"""The same examples in every run, however slow the machine is; tests/soak looks at others every time.

What takes longest comes first, so that no core is idle at the end.
"""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from tests.processes import end_all
from tests.twins import need_compiled, python_alone
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from fencepost.node_log import LIMIT

#: Folders whose files take a minute or two each, with few tests in them.
LONG = ("crash/", "fuzz/", "spark/", "simulation/", "stock_clients/", "test_readme.py")
_ROOT: Final = Path(__file__).parent.parent
JAVA: Final = "Java, which takes long to start and is slow at first"
_SHARED: Final = {
    JAVA: re.compile(r"[(,]\s*spark: (?:Any|SparkSession)\b"),
    "all of the code as trees": re.compile(r"^from tests\.source_trees import", re.MULTILINE),
}
"""What is made once in a process -> a file that uses it."""

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    """What earlier tests wrote to the log does not count against the limits of its lines."""
    LIMIT.forget()


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    """Those that were handed to `begun`; a test that fails in the middle ends none of its own."""
    yield
    end_all()


@functools.cache
def shares(file: str) -> str | None:
    """What tests of this file have in common with others, of `_SHARED`.  `file`: as the name of a test begins."""
    text = (_ROOT / file).read_text()
    return next((what for what, used in _SHARED.items() if used.search(text)), None)


class SharedInOneProcess(LoadFileScheduling):  # type: ignore[misc]
    """A process runs whole files, and one of them all that share something."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return shares(file) or file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return SharedInOneProcess(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to the processes in this order (`--no-loadscope-reorder`)."""
    named_by_address = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named_by_address:  # the processes of one run would not agree on its name
        raise pytest.UsageError(f"{named_by_address[0]}: give its parameters ids")
    tests = Path(__file__).parent
    items.sort(
        key=lambda item: (
            shares(item.nodeid.partition("::")[0]) != JAVA,
            not str(item.path.relative_to(tests)).startswith(LONG),
        )
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Set the tests aside: to go over tens of thousands takes longer than a simulated run, which does so twice."""
    gc.freeze()


@pytest.fixture(params=["compiled", "python"], scope="module")
def each_twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once with compiled code for the work on records, where there is some, and once with Python."""
    if request.param == "compiled":
        need_compiled()
        yield
    else:
        with python_alone():
            yield
