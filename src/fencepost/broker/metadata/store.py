"""What the node must not forget beside its logs: topics, features, producer-id blocks.

A small compare-and-set interface, so that several nodes could share one store; on SQLite with synchronous=FULL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from fencepost.log.commit_log import StorageFailed
from fencepost.log.disk import DiskFull, NoDescriptors, make_file


class Versioned(NamedTuple):
    """A value and how often its key was written."""

    value: bytes
    version: int


class MetadataStore(Protocol):
    """Keys and values.  Everything is durable when a call returns."""

    def get(self, key: str) -> Versioned | None: ...

    def list(self, prefix: str) -> dict[str, Versioned]:
        """All keys that begin so, sorted."""
        ...

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        """Write (or, for None, remove) several keys at once.

        Each change names the version that its key must have, 0 if it must not exist.  False, and nothing written, if
        one has another.  Raises DiskFull, and nothing is written; StorageFailed, and nobody knows.
        """
        ...

    def close(self) -> None: ...


class SqliteMetadataStore:
    """One SQLite file."""

    def __init__(self, path: Path) -> None:
        make_file(path)  # its journal gets the same mode
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        tables = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if tables and tables != ["metadata"]:
            self._connection.close()
            raise ValueError(f"it is of another program, with tables {', '.join(tables)}")
        self._connection.execute("PRAGMA journal_mode=DELETE")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS metadata (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)"
        )

    def get(self, key: str) -> Versioned | None:
        row = self._connection.execute("SELECT value, version FROM metadata WHERE key = ?", (key,)).fetchone()
        return None if row is None else Versioned(*row)

    def list(self, prefix: str) -> dict[str, Versioned]:
        rows = self._connection.execute(
            "SELECT key, value, version FROM metadata WHERE substr(key, 1, ?) = ? ORDER BY key", (len(prefix), prefix)
        )
        return {key: Versioned(value, version) for key, value, version in rows}

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for key, (value, version) in changes.items():
                found = self.get(key)
                if (found.version if found else 0) != version:
                    connection.execute("ROLLBACK")
                    return False
                if value is None:
                    connection.execute("DELETE FROM metadata WHERE key = ?", (key,))
                else:
                    row = (key, value, version + 1)
                    connection.execute("INSERT OR REPLACE INTO metadata (key, value, version) VALUES (?, ?, ?)", row)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise DiskFull("no space is left for the metadata") from error
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:  # its journal
                raise NoDescriptors("no descriptor is left for the journal of the metadata") from error
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR:
                raise StorageFailed(f"the disk did not take a change of the metadata: {error}") from error
            raise
        return True

    def close(self) -> None:
        self._connection.close()


class ReservedMetadataStore:
    """A store that can be written to on a full disk: `attempt` does it a second time with what was kept for that."""

    def __init__(self, store: MetadataStore, attempt: Callable[[Callable[[], bool]], bool]) -> None:
        self._store = store
        self._attempt = attempt
        self.get, self.list, self.close = store.get, store.list, store.close

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        return self._attempt(lambda: self._store.write(changes))


class WatchedMetadataStore:
    """A store whose failure ends the node, as that of a log does, whoever was writing."""

    def __init__(self, store: MetadataStore, failed: Callable[[StorageFailed], None]) -> None:
        self._store = store
        self._failed = failed
        self.get, self.list, self.close = store.get, store.list, store.close

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        try:
            return self._store.write(changes)
        except StorageFailed as failure:
            self._failed(failure)
            raise


def guarded(
    store: MetadataStore, attempt: Callable[[Callable[[], bool]], bool], failed: Callable[[StorageFailed], None]
) -> MetadataStore:
    """The store as a node uses it."""
    return WatchedMetadataStore(ReservedMetadataStore(store, attempt), failed)
