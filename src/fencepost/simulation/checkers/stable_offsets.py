"""The last stable offset of a partition never passes an open transaction, and never goes back (facts §6.8).

Looked at in every answer to a Fetch, against what was appended, apart from what the log itself keeps of it.
"""

from __future__ import annotations

from uuid import UUID

from fencepost.protocol.batch import BatchHeader

At = tuple[str, int]
"""Topic and partition."""


Told = dict[tuple[UUID | None, int], int]
"""Topic id and partition -> the last stable offset that somebody was told last."""


class StableOffsets:
    """The open transactions of all partitions of one life of a node; those open from before are to be added, too.

    `told`: the newest offset that each was told, also in its earlier lives if these are given the same one.
    """

    def __init__(self, told: Told) -> None:
        self._open: dict[At, dict[int, int]] = {}
        """Of each producer id with an open transaction, where it begins."""
        self._topic_ids: dict[At, UUID] = {}
        self._newest = told

    def begin(self, at: At, topic_id: UUID) -> None:
        """Note that a partition is made, or opened by a start; the topic of its name may be another one."""
        self._open.pop(at, None)
        self._topic_ids[at] = topic_id

    def add(self, at: At, header: BatchHeader) -> None:
        """Note that a batch was appended."""
        if not header.is_transactional:
            return
        if header.is_control:
            self._open.get(at, {}).pop(header.producer_id, None)
        else:
            self._open.setdefault(at, {}).setdefault(header.producer_id, header.base_offset)

    def tell(self, at: At, stable: int, start: int) -> str | None:
        """Note that somebody is told the last stable offset, and the log's start; what is wrong with that, or None."""
        if stable < 0:
            return None
        key = self._topic_ids.get(at), at[1]
        newest = self._newest.get(key, 0)
        if stable < newest:
            return f"the last stable offset of {at[0]}-{at[1]} goes back from {newest} to {stable}"
        self._newest[key] = stable
        first = min(self._open.get(at, {}).values(), default=stable)
        if stable > max(first, start):
            return f"the last stable offset of {at[0]}-{at[1]} is {stable}, a transaction is open from {first} on"
        return None
