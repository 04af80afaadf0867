"""The last stable offset of a partition never passes an open transaction, and never goes back (facts §6.8).

Looked at in every answer to a Fetch, against what was appended, apart from what the log itself keeps of it.
"""

from __future__ import annotations

from fencepost.protocol.batch import BatchHeader

At = tuple[str, int]
"""Topic and partition."""


class StableOffsets:
    """Every partition of one life of a node; what is open since before is to be added, too."""

    def __init__(self) -> None:
        self._open: dict[At, dict[int, int]] = {}
        """Of each producer id with an open transaction, where it begins."""
        self._newest: dict[At, int] = {}

    def forget(self, at: At) -> None:
        """Another topic of that name is made."""
        self._open.pop(at, None)
        self._newest.pop(at, None)

    def add(self, at: At, header: BatchHeader) -> None:
        """A batch was appended."""
        if not header.is_transactional:
            return
        if header.is_control:
            self._open.get(at, {}).pop(header.producer_id, None)
        else:
            self._open.setdefault(at, {}).setdefault(header.producer_id, header.base_offset)

    def tell(self, at: At, stable: int, start: int) -> str | None:
        """Somebody is told the last stable offset, and the start of the log; what is wrong with that."""
        if stable < 0:
            return None
        newest = self._newest.get(at, 0)
        if stable < newest:
            return f"the last stable offset of {at[0]}-{at[1]} goes back from {newest} to {stable}"
        self._newest[at] = stable
        first = min(self._open.get(at, {}).values(), default=stable)
        if stable > max(first, start):
            return f"the last stable offset of {at[0]}-{at[1]} is {stable}, a transaction is open from {first} on"
        return None
