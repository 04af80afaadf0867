"""One contract, two stores: the one on SQLite and its twin in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.broker.metadata_store import MetadataStore, SqliteMetadataStore, Versioned
from fencepost.simulation.metadata import MemoryMetadataStore

Open = Callable[[], MetadataStore]


@pytest.fixture(params=["sqlite", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same store, again and again."""
    if request.param == "sqlite":
        return lambda: SqliteMetadataStore(tmp_path / "metadata.sqlite")
    memory = MemoryMetadataStore()
    return lambda: memory(tmp_path)


def test_a_value_is_kept_with_its_version(opened: Open) -> None:
    store = opened()
    assert store.get("a") is None
    assert store.write({"a": (b"1", 0)})
    assert store.get("a") == Versioned(b"1", 1)
    assert store.write({"a": (b"2", 1)})
    assert store.get("a") == Versioned(b"2", 2)
    store.close()
    again = opened()
    assert again.get("a") == Versioned(b"2", 2)
    again.close()


@pytest.mark.parametrize("version", [0, 2, 7, -1])
def test_another_version_changes_nothing(opened: Open, version: int) -> None:
    store = opened()
    store.write({"a": (b"1", 0)})
    assert not store.write({"a": (b"x", version)})
    assert not store.write({"a": (None, version)})
    assert store.get("a") == Versioned(b"1", 1)
    store.close()


def test_what_is_not_there_has_version_0(opened: Open) -> None:
    store = opened()
    assert not store.write({"a": (b"1", 1)})
    assert store.get("a") is None
    store.close()


def test_all_or_nothing(opened: Open) -> None:
    store = opened()
    store.write({"a": (b"1", 0)})
    assert not store.write({"b": (b"1", 0), "a": (b"2", 0)})
    assert not store.write({"a": (b"2", 1), "b": (b"1", 5)})
    assert store.list("") == {"a": Versioned(b"1", 1)}
    assert store.write({"a": (None, 1), "b": (b"1", 0), "c": (b"2", 0)})
    assert store.list("") == {"b": Versioned(b"1", 1), "c": Versioned(b"2", 1)}
    store.close()


def test_what_was_removed_begins_anew(opened: Open) -> None:
    store = opened()
    store.write({"a": (b"1", 0)})
    store.write({"a": (b"2", 1)})
    assert store.write({"a": (None, 2)})
    assert store.get("a") is None
    assert store.write({"a": (b"3", 0)})
    assert store.get("a") == Versioned(b"3", 1)
    store.close()


def test_a_list_is_sorted_and_takes_its_prefix_literally(opened: Open) -> None:
    store = opened()
    names = ["topic/b", "topic/a", "topic/%", "topic", "topic_x", "Topic/c", "other"]
    store.write({name: (name.encode(), 0) for name in names})
    assert list(store.list("topic/")) == ["topic/%", "topic/a", "topic/b"]
    assert list(store.list("topic_")) == ["topic_x"]
    assert list(store.list("%")) == []
    assert list(store.list("")) == sorted(names)
    store.close()


def test_nothing_to_write_is_written(opened: Open) -> None:
    store = opened()
    assert store.write({})
    assert store.list("") == {}
    store.close()
