"""The same examples in every run, however slow the machine is; tests/soak looks at others every time.

What takes longest comes first, so that no core is idle at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.processes import end_all
from tests.twins import need_compiled, python_alone

from fencepost.node_log import LIMIT

#: Folders whose files take a minute or two each, with few tests in them.
LONG = ("crash/", "fuzz/", "spark/", "simulation/", "stock_clients/", "test_readme.py")

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to the processes in this order (`--no-loadscope-reorder`)."""
    named_by_address = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named_by_address:  # the processes of one run would not agree on its name
        raise pytest.UsageError(f"{named_by_address[0]}: give its parameters ids")
    tests = Path(__file__).parent
    items.sort(key=lambda item: not str(item.path.relative_to(tests)).startswith(LONG))


@pytest.fixture(params=["compiled", "python"], scope="module")
def each_twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once with compiled code for the work on records, where there is some, and once with Python."""
    if request.param == "compiled":
        need_compiled()
        yield
    else:
        with python_alone():
            yield
