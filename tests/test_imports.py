"""What is loaded with the clients: nothing that only some of their users need."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Modules that take long to load, or much memory.
HEAVY = (
    *("fencepost.broker", "fencepost.coordinator", "fencepost.log", "fencepost.simulation", "fencepost.spark"),
    *("fencepost.client.blocking", "http", "json", "multiprocessing", "sqlite3", "unittest", "xml"),
    *("numpy", "pandas", "pyarrow", "pyspark", "pytest", "hypothesis"),
)


def loaded(statement: str) -> set[str]:
    """Modules, and the packages that they are in, that are there after this and were not before."""
    code = f"import asyncio, sys; had = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - had))"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(told.stdout.split())


@pytest.mark.parametrize("statement", ["import fencepost", "import fencepost.client"])
def test_the_clients_load_nothing_heavy(statement: str) -> None:
    found = loaded(statement)
    assert "fencepost" in found
    assert found & set(HEAVY) == set()


def test_what_is_heavy_is_seen() -> None:
    assert loaded("import fencepost.client, json") & set(HEAVY) == {"json"}
