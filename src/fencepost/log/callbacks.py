"""Calls callbacks one after the other; one that raises keeps none of the others from being called.

Whoever waits for a partition or for durability is somebody's request.  If one of them fails, the others are called all
the same, and the append, the sync or the request of yet somebody else that called them goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.log.outcome import StorageFailed
from fencepost.node_log import get_logger

logger = get_logger(__name__)


def call_each(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call every one of them, in order.  What one raises is logged; StorageFailed, which ends the node, is raised."""
    for callback in callbacks:
        try:
            callback()
        except StorageFailed:
            raise
        except Exception:
            logger.exception("somebody who waited could not be told; the others are: %r", callback)
