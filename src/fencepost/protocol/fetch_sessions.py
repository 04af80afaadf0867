"""Fetch sessions on the wire (KIP-227): their numbers, and since which version of Fetch they are there."""

from __future__ import annotations

from typing import Final

#: The session id of a request or an answer that is in none.
NO_SESSION: Final = 0
#: Epoch of the request that begins a session.
BEGIN: Final = 0
#: Epoch of a request that wants none, and ends the one that it names.
CLOSE: Final = -1
#: Largest epoch of a request in a session (int32).
LAST_SESSION_EPOCH: Final = 2**31 - 1
#: The version of Fetch that has them.
SESSIONS_SINCE: Final = 7
#: The version of Fetch that names topics by their ids, and no more by their names.
TOPIC_IDS_SINCE: Final = 13


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with this epoch: after the largest comes 1, as 0 begins a session."""
    return 1 if epoch == LAST_SESSION_EPOCH else epoch + 1
