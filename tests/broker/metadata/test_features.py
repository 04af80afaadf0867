"""Features and their levels: kept, told apart by an epoch, and never changed by two at once."""

from __future__ import annotations

from pathlib import Path

from fencepost.broker.metadata.features import SUPPORTED, TRANSACTION_VERSION, Features
from fencepost.broker.metadata.store import SqliteMetadataStore
from fencepost.simulation.metadata import MemoryMetadataStore


def test_a_new_cluster_has_the_newest_levels() -> None:
    features = Features.load(MemoryMetadataStore())
    assert features.levels == {name: level for name, (_, _, level) in SUPPORTED.items()}
    assert (features.transaction_version(), features.level("unknown"), features.epoch) == (2, 0, 1)
    assert all(low <= level <= high for low, high, level in SUPPORTED.values())


def test_a_level_is_there_at_the_next_start(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "metadata.sqlite")
    assert Features.load(store).change({TRANSACTION_VERSION: 1})
    store.close()
    again = SqliteMetadataStore(tmp_path / "metadata.sqlite")
    features = Features.load(again)
    assert (features.transaction_version(), features.epoch) == (1, 2)
    again.close()


def test_of_two_changes_at_once_one_is_made() -> None:
    store = MemoryMetadataStore()
    one, two = Features.load(store), Features.load(store)
    assert one.change({TRANSACTION_VERSION: 1})
    assert not two.change({TRANSACTION_VERSION: 0})
    assert (two.transaction_version(), two.epoch) == (2, 1), "it goes on with what it knew"
    assert Features.load(store).levels == one.levels
