"""Logs each subscribed topic that does not exist, once."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class MissingTopics:
    """Logs topics that a client is to read and that are not there.

    `poll` raises nothing for them: the other topics are read.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._missed: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._missed

    def miss(self, name: str) -> None:
        """Note that a topic was looked for and is not there; it is logged the first time."""
        if name not in self._missed:
            self._missed.add(name)
            logger.warning("%s: topic %r is not there: nothing is read of it until it is made", self._client_id, name)

    def found(self, name: str) -> None:
        """Note that a topic is there; it is logged again if it is missed again."""
        self._missed.discard(name)
