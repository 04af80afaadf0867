"""Blocks of producer ids, which are never given out twice."""

from __future__ import annotations

from typing import Final

from fencepost.broker.metadata.store import MetadataStore
from fencepost.log.disk import NothingLeft
from fencepost.node_log import get_logger

logger = get_logger(__name__)

PRODUCER_IDS: Final = "producer-ids"
"""Key of the first producer id that is not given out, in the metadata store."""


class StoredProducerIds:
    """Blocks of producer ids from the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def allocate(self, count: int) -> int | None:
        """The first of `count` fresh producer ids, durably taken; None if that is not possible now."""
        try:
            known = self._store.get(PRODUCER_IDS)
            first, version = (int(known.value), known.version) if known else (0, 0)
            return first if self._store.write({PRODUCER_IDS: (str(first + count).encode(), version)}) else None
        except NothingLeft as full:
            logger.error("no producer ids can be given out: %s", full)
            return None
