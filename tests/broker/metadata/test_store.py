"""One contract, two stores: the one on SQLite and its twin in memory."""

from __future__ import annotations

import errno
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.metadata.producer_ids import PRODUCER_IDS, StoredProducerIds
from fencepost.broker.metadata.store import (
    MetadataDamaged,
    MetadataStore,
    SqliteMetadataStore,
    Versioned,
    WatchedMetadataStore,
)
from fencepost.log.commit_log import StorageFailed
from fencepost.log.disk import LocalDisk, Withheld
from fencepost.simulation.metadata import MemoryMetadataStore

Open = Callable[[], MetadataStore]


@pytest.fixture(params=["sqlite", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same store, again and again."""
    if request.param == "sqlite":
        return lambda: SqliteMetadataStore(tmp_path / "metadata.sqlite")
    memory = MemoryMetadataStore()
    return lambda: memory(tmp_path)


def test_a_path_that_is_too_long_for_sqlite_is_named_as_that(tmp_path: Path) -> None:
    """Of a path of 505 bytes SQLite says only that it cannot open the file, as of one that is damaged."""
    left = 504 - len(f"{tmp_path.resolve()}/metadata.sqlite")
    directory = tmp_path.resolve().joinpath(*["d" * 99] * (left // 100 - 1), "d" * (left % 100 + 99))
    directory.mkdir(parents=True)
    longest = directory / "metadata.sqlite"
    assert len(str(longest)) == 504
    SqliteMetadataStore(longest).close()
    longer = longest.with_name("metadata.sqlites")
    with pytest.raises(Withheld, match=r"longer than SQLite takes, 504 bytes: shorten it"):
        SqliteMetadataStore(longer)
    assert list(directory.iterdir()) == []


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


def test_one_changed_bit_is_never_taken_for_what_was_written(tmp_path: Path) -> None:
    """Whatever it hits of the file: it is refused, or everything reads as it was."""
    path, changed = tmp_path / "metadata.sqlite", tmp_path / "changed.sqlite"
    store = SqliteMetadataStore(path)
    written = {f"topic/{n}": b'{"partitions": %d, "settings": {"retention.ms": "604800000"}}' % n for n in range(40)}
    store.write({key: (value, 0) for key, value in written.items()})
    expected = store.list("")
    store.close()
    whole, refused = path.read_bytes(), 0
    places = random.Random(1).sample(range(len(whole) * 8), 600)
    for place in places:
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        changed.write_bytes(data)
        try:
            store = SqliteMetadataStore(changed)
        except (MetadataDamaged, sqlite3.DatabaseError, ValueError):
            refused += 1
            continue
        assert store.list("") == expected, f"bit {place}"
        store.close()
    assert refused > 100


def test_rows_of_an_older_version_are_read_and_get_their_checksums_when_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("CREATE TABLE metadata (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)")
        old.execute("INSERT INTO metadata VALUES ('a', x'31', 1), ('b', x'31', 1)")
    store = SqliteMetadataStore(path)
    assert store.write({"b": (b"2", 1)})
    assert store.list("") == {"a": Versioned(b"1", 1), "b": Versioned(b"2", 2)}
    store.close()
    for key, is_refused in (("a", False), ("b", True)):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE metadata SET value = x'33' WHERE key = ?", (key,))
        if is_refused:
            with pytest.raises(MetadataDamaged, match="under 'b' is not what was written"):
                SqliteMetadataStore(path)
        else:
            SqliteMetadataStore(path).close()


def test_a_sync_that_fails_ends_the_node(tmp_path: Path) -> None:
    """And nobody takes it for an error of the request that was being served."""
    failures: list[StorageFailed] = []
    inner = SqliteMetadataStore(tmp_path / "metadata.sqlite")
    store = WatchedMetadataStore(inner, failures.append)
    assert store.write({"a": (b"1", 0)})

    class Failing:
        """A connection whose commits fail as fsync does."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> object:
            return getattr(self.connection, name)

        def execute(self, statement: str, *values: Any) -> object:
            if statement == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return self.connection.execute(statement, *values)

    inner._connection = Failing(inner._connection)  # type: ignore[assignment]
    with pytest.raises(StorageFailed, match="disk I/O error"):
        store.write({"a": (b"2", 1)})
    assert [str(failure) for failure in failures] == ["the disk did not take a change of the metadata: disk I/O error"]
    assert store.get("a") == Versioned(b"1", 1)
    store.close()


LOCKS = ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE", "BEGIN"]


def locked(path: Path, how: str) -> sqlite3.Connection:
    """A foreign process's connection that has something under way: the last one only reads."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(how)
    other.execute("SELECT * FROM metadata").fetchall()
    return other


@pytest.mark.parametrize("how", LOCKS)
def test_what_somebody_has_locked_is_refused_and_nobody_waits_for_it(tmp_path: Path, how: str) -> None:
    path = tmp_path / "metadata.sqlite"
    store = SqliteMetadataStore(path)
    assert store.write({"a": (b"1", 0)})
    for _ in range(2):
        with closing(locked(path, how)):
            with pytest.raises(Withheld, match=f"another process has locked {path}"):
                store.write({"a": (b"2", 1)})
            if how == "BEGIN EXCLUSIVE":
                with pytest.raises(Withheld):
                    store.get("a")
                with pytest.raises(Withheld):
                    store.list("")
            else:
                assert store.get("a") == Versioned(b"1", 1)
    assert store.write({"a": (b"2", 1)})
    (waits_ms,) = store._connection.execute("PRAGMA busy_timeout").fetchone()
    assert waits_ms < 50, "every client waits meanwhile"
    store.close()


@pytest.mark.parametrize("put_back", [True, False])
def test_a_file_that_was_moved_away_is_not_written_to(tmp_path: Path, put_back: bool) -> None:
    path, away = tmp_path / "metadata.sqlite", tmp_path / "away"
    store = SqliteMetadataStore(path)
    assert store.write({"a": (b"1", 0)})
    path.rename(away)
    if not put_back:
        path.write_bytes(away.read_bytes())
    with pytest.raises(Withheld, match="was moved away"):
        store.write({"a": (b"2", 1)})
    assert store.get("a") == Versioned(b"1", 1)
    if put_back:
        away.rename(path)
        assert store.write({"a": (b"2", 1)})
    store.close()


def test_a_change_needs_no_new_file_and_the_removal_of_none(tmp_path: Path) -> None:
    """Whose removal SQLite does not sync: a power loss brings the journal back, which undoes the change."""
    store = SqliteMetadataStore(tmp_path / "metadata.sqlite")
    assert store.write({"a": (b"1", 0)})
    there = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert store.write({"a": (b"2", 1)})
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == there
    assert (tmp_path / "metadata.sqlite-journal").stat().st_size == 0, "it undoes nothing"
    store.close()


@pytest.mark.parametrize("fails", [False, True])
def test_the_names_of_its_files_are_durable_before_anything_is_written(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite syncs the directory when it makes its journal, and passes over a failure of that."""
    synced = list[set[str]]()

    def sync(_: LocalDisk, directory: Path) -> None:
        assert directory == tmp_path
        synced.append({path.name for path in directory.iterdir()})
        if fails:
            raise OSError(errno.EIO, "the disk has failed")

    monkeypatch.setattr(LocalDisk, "sync_directory", sync)
    with pytest.raises(OSError, match="has failed") if fails else nullcontext():
        SqliteMetadataStore(tmp_path / "metadata.sqlite").close()
    assert synced == [{"metadata.sqlite", "metadata.sqlite-journal"}]


def test_a_damaged_row_stops_no_change_of_others(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "metadata.sqlite")
    assert store.write({"a": (b"1", 0), "b": (b"1", 0)})
    with closing(sqlite3.connect(tmp_path / "metadata.sqlite", isolation_level=None)) as disk:
        disk.execute("UPDATE metadata SET value = ? WHERE key = 'a'", (b"2",))
    for version in (1, 2):
        with pytest.raises(MetadataDamaged):
            store.write({"b": (b"x", version), "a": (b"x", 1)})
        assert store.write({"b": (b"2", version)})
    store.close()


def test_producer_ids_that_somebody_else_took_meanwhile_are_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    ids = StoredProducerIds(store)
    assert [ids.allocate(10), ids.allocate(10)] == [0, 10]
    known = store.get(PRODUCER_IDS)
    assert store.write({PRODUCER_IDS: (b"30", 2)})
    with monkeypatch.context() as late:
        late.setattr(store, "get", lambda _: known)
        assert ids.allocate(10) is None
    assert ids.allocate(10) == 30


@pytest.mark.parametrize("there", [[], ["metadata.sqlite"], ["metadata.sqlite-journal"]])
@pytest.mark.parametrize("fails", ["first file", "second file", "sync", "connection"])
def test_a_store_that_cannot_be_opened_leaves_nothing_behind(
    fails: str, there: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes nothing that was there: an empty file would be one that nobody knows the origin of."""
    for name in there:
        (tmp_path / name).touch()
    error = OSError(errno.EIO, "the disk has failed")

    def fail(*_: object, **__: object) -> None:
        raise error

    def make(path: Path) -> None:
        if path.name.endswith("-journal") == (fails == "second file"):
            raise error
        path.touch()

    if fails.endswith("file"):
        monkeypatch.setattr("fencepost.broker.metadata.store.make_file", make)
    elif fails == "sync":
        monkeypatch.setattr(LocalDisk, "sync_directory", fail)
    else:
        monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(OSError, match="has failed"):
        SqliteMetadataStore(tmp_path / "metadata.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == there


def test_each_change_is_synced_whatever_else_sqlite_would_take_for_enough(tmp_path: Path) -> None:
    """With NORMAL a power loss at the wrong moment may leave a damaged file on some file systems."""
    with closing(SqliteMetadataStore(tmp_path / "metadata.sqlite")) as store:
        assert [row[0] for row in store._connection.execute("PRAGMA synchronous")] == [2]
