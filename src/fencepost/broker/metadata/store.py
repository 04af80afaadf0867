"""The metadata store: topics, features and blocks of producer ids, durable beside the logs.

A small compare-and-set interface, so that several nodes could share one store; on SQLite with synchronous=FULL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from fencepost.log.commit_log import StorageFailed
from fencepost.log.disk import DiskFull, LocalDisk, NoDescriptors, NothingLeft, Withheld, make_file

_START_WAITS_SECONDS: Final = 5.0
"""Seconds that opening the file waits for another process that has locked it."""
_WAITS_MS: Final = 20
"""Milliseconds that a running node waits so; every client waits with it."""
_LONGEST_PATH: Final = 504
"""Bytes of the path of the file: SQLite takes 512, eight of which are for the name of its journal."""
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS metadata "
    "(key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, checksum INTEGER)"
)


class MetadataDamaged(Exception):
    """The metadata file is not as it was written; the message has its path and what is wrong."""


class Versioned(NamedTuple):
    """A value and how often its key was written."""

    value: bytes
    version: int


class MetadataStore(Protocol):
    """Keys and values.  Everything is durable when a call returns.  Reading raises MetadataDamaged, Withheld."""

    def get(self, key: str) -> Versioned | None: ...

    def list(self, prefix: str) -> dict[str, Versioned]:
        """The values of all keys that begin with `prefix`, in the order of the keys."""
        ...

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        """Write (or, for None, remove) several keys at once.

        Each change names the version that its key must have, 0 if it must not exist.  False, and nothing written, if
        one has another.  Raises NothingLeft, and nothing is written; StorageFailed, and nobody knows.
        """
        ...

    def close(self) -> None: ...


class SqliteMetadataStore:
    """One SQLite file.

    Each row has a checksum, for SQLite has none, and one bit makes a retention of years one of days; in a row that an
    older Fencepost wrote it is NULL, and any value is believed.  Others may read the file while it is open: what they
    lock is refused and not waited for.  Where nothing is written nothing is changed: a file that was empty stays so,
    and one that was not there is gone again when this is closed.

    Raises MetadataDamaged, NothingLeft; ValueError for a file of another program.
    """

    def __init__(self, path: Path) -> None:
        disk, files = LocalDisk(), (path, path.with_name(f"{path.name}-journal"))
        self._unused = [each for each in files if not disk.exists(each)]
        """Files that were made here and in which nothing was written yet."""
        self._has_table = False
        self._path = path
        try:
            for each in files:
                make_file(each)
            # SQLite syncs it too when it makes its journal, and passes over a failure of that.
            disk.sync_directory(path.parent)
            self._connection = sqlite3.connect(
                path, timeout=_START_WAITS_SECONDS, isolation_level=None, check_same_thread=False
            )
        except BaseException as error:
            self._remove_unused()
            if isinstance(error, sqlite3.OperationalError) and len(bytes(path.absolute())) > _LONGEST_PATH:
                raise Withheld(f"{path} is longer than SQLite takes, {_LONGEST_PATH} bytes: shorten it") from error
            raise
        try:
            self._open()
        except BaseException as error:
            self.close()
            refusal = self._refusal(error)
            if refusal is not None:
                raise refusal from error
            raise

    def _open(self) -> None:
        execute = self._connection.execute
        tables = [name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if tables and tables != ["metadata"]:
            raise ValueError(f"it is of another program, with tables {', '.join(tables)}")
        (wrong,) = execute("PRAGMA integrity_check(1)").fetchone()
        if wrong != "ok":
            raise MetadataDamaged(f"it is damaged: {wrong}")
        # With DELETE a commit is the removal of the journal, which SQLite does not sync: a power loss would bring that
        # back, and it would undo the change.  Nor would there be a change where the disk can have no more files.
        execute("PRAGMA journal_mode=TRUNCATE")
        execute("PRAGMA synchronous=FULL")
        self._has_table = bool(tables)
        if tables and "checksum" not in [column for _, column, *_ in execute("PRAGMA table_info(metadata)")]:
            execute("ALTER TABLE metadata ADD COLUMN checksum INTEGER")
        self.list("")
        execute(f"PRAGMA busy_timeout={_WAITS_MS}")

    def _refusal(self, error: BaseException) -> NothingLeft | None:
        """The NothingLeft to raise where SQLite wrote nothing and may be able to later; None for any other error."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # its kind
        if code == sqlite3.SQLITE_FULL:
            return DiskFull("no space is left for the metadata")
        if code == sqlite3.SQLITE_CANTOPEN:  # its journal
            return NoDescriptors("no descriptor is left for the journal of the metadata")
        if code == sqlite3.SQLITE_BUSY:
            return Withheld(f"another process has locked {self._path}: end it, or let it end what it does there")
        if code == sqlite3.SQLITE_READONLY:
            return Withheld(f"{self._path} may not be written to, or was moved away: put that right")
        return None

    def _read(self, where: str, *values: object) -> dict[str, Versioned]:
        """The rows for which `where` (SQL) holds, by key.  Raises MetadataDamaged for a wrong checksum; NothingLeft."""
        found: dict[str, Versioned] = {}
        if not self._has_table:
            return found
        try:
            rows = self._connection.execute(
                f"SELECT key, value, version, checksum FROM metadata WHERE {where} ORDER BY key",
                values,
            )
            for key, value, version, checksum in rows:
                typed = isinstance(key, str) and isinstance(value, bytes) and isinstance(version, int)
                if not typed or checksum not in (None, _checksum(key, value, version)):
                    raise MetadataDamaged(f"it is damaged: what it has under {key!r} is not what was written")
                found[key] = Versioned(value, version)
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) or MetadataDamaged(f"it cannot be read: {error}") from error
        return found

    def get(self, key: str) -> Versioned | None:
        return self._read("key = ?", key).get(key)

    def list(self, prefix: str) -> dict[str, Versioned]:
        return self._read("substr(key, 1, ?) = ?", len(prefix), prefix)

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            if changes and not self._has_table:
                connection.execute(_TABLE)
            for key, (value, version) in changes.items():
                found = self.get(key)
                if (found.version if found else 0) != version:
                    connection.execute("ROLLBACK")
                    return False
                if value is None:
                    connection.execute("DELETE FROM metadata WHERE key = ?", (key,))
                else:
                    row = (key, value, version + 1, _checksum(key, value, version + 1))
                    connection.execute(
                        "INSERT OR REPLACE INTO metadata (key, value, version, checksum) VALUES (?, ?, ?, ?)", row
                    )
            connection.execute("COMMIT")
            self._has_table, self._unused = self._has_table or bool(changes), []
        except (sqlite3.Error, MetadataDamaged) as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, MetadataDamaged):
                raise
            refusal = self._refusal(error)
            if refusal is not None:
                raise refusal from error
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR:
                raise StorageFailed(f"the disk did not take a change of the metadata: {error}") from error
            raise
        return True

    def close(self) -> None:
        self._connection.close()
        self._remove_unused()

    def _remove_unused(self) -> None:
        for each in self._unused:
            LocalDisk().remove(each)
        self._unused = []


def _checksum(key: str, value: bytes, version: int) -> int:
    return crc32c(b"%d\0%s\0%s" % (version, key.encode(), value))


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
    """The store as a node uses it: `attempt` lets it write on a full disk, and `failed` is told of a failure."""
    return WatchedMetadataStore(ReservedMetadataStore(store, attempt), failed)
