"""The features of the cluster and their finalized levels, durable in the metadata store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from fencepost.broker.metadata.store import MetadataDamaged, MetadataStore

TRANSACTION_VERSION: Final = "transaction.version"

#: feature -> (lowest level, highest level, level of a new cluster)
SUPPORTED: Final = {
    "group.version": (0, 0, 0),
    TRANSACTION_VERSION: (0, 2, 2),
}
_KEY = "features"


@dataclass
class Features:
    """Finalized levels; `epoch` rises with every change, so that clients can tell the newest."""

    store: MetadataStore
    levels: dict[str, int]
    epoch: int = 0

    @classmethod
    def load(cls, store: MetadataStore) -> Features:
        """The features of the store, with those of a new cluster where it has none.  Raises MetadataDamaged."""
        stored = store.get(_KEY)
        if stored is None:
            levels = {name: level for name, (_, _, level) in SUPPORTED.items()}
            store.write({_KEY: (json.dumps(levels).encode(), 0)})
            return cls(store, levels, 1)
        try:
            levels = {str(name): int(level) for name, level in json.loads(stored.value).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise MetadataDamaged(f"it is damaged: what it has under {_KEY!r} cannot be read") from error
        return cls(store, levels, stored.version)

    def level(self, name: str) -> int:
        return self.levels.get(name, 0)

    def transaction_version(self) -> int:
        return self.levels.get(TRANSACTION_VERSION, 0)

    def change(self, levels: dict[str, int]) -> bool:
        """Finalize these levels, durably; False if somebody else did meanwhile.  Raises as `MetadataStore.write`."""
        changed = self.levels | levels
        if not self.store.write({_KEY: (json.dumps(changed).encode(), self.epoch)}):
            return False
        self.levels, self.epoch = changed, self.epoch + 1
        return True
