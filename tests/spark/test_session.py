"""A session on this machine: what is missing is named."""

from __future__ import annotations

import sys

import pytest

from fencepost.spark import local_session


def test_without_pyspark_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyspark\.sql.*fencepost\[spark\]"):
        local_session("ledger")
