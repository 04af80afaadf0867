"""The metadata store in memory: the twin of the SQLite one.  A call that has returned survives everything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fencepost.broker.metadata.store import Versioned


class MemoryMetadataStore:
    """A MetadataStore in memory; keep it where a restarted node finds it again."""

    def __init__(self) -> None:
        self._values: dict[str, Versioned] = {}

    def __call__(self, path: Path) -> MemoryMetadataStore:  # noqa: ARG002 - there is one
        return self

    def get(self, key: str) -> Versioned | None:
        return self._values.get(key)

    def list(self, prefix: str) -> dict[str, Versioned]:
        return {key: value for key, value in sorted(self._values.items()) if key.startswith(prefix)}

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        for key, (_, version) in changes.items():
            known = self._values.get(key)
            if (known.version if known else 0) != version:
                return False
        for key, (value, version) in changes.items():
            if value is None:
                del self._values[key]
            else:
                self._values[key] = Versioned(value, version + 1)
        return True

    def close(self) -> None:
        """Do nothing: what is stored stays."""
