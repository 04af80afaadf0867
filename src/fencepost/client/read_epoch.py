"""The leader epoch of the last batch that was read of a partition (KIP-320).  Pure.

A fetch says it, and the leader tells where its log is different.  No checksum covers the epoch in a batch: one bit that
flips in it would have a consumer begin anew where nothing was lost.  So an epoch counts once two batches in a row have
it; epochs of a log ascend, so one that is less than the epoch before is damaged.

    the batch has          which is then
    the epoch that counts  still the one
    a later one            the one, if the batch before it has it too; until then nothing is said
    an earlier one         damaged; nothing is said until the next batch
"""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = -1


class ReadEpoch:
    """The leader epoch of the last batch that was read since `begin`."""

    __slots__ = ("_at", "_counts", "_doubtful")

    def __init__(self, counts: int = UNKNOWN) -> None:
        """`counts`: the epoch of the batch before the position where reading begins; -1: not known."""
        self._counts = counts
        self._doubtful: int | None = None
        """The epoch that the last batch has, if that does not count."""
        self._at = -1
        """The base offset of that batch."""

    @property
    def known(self) -> int:
        """The epoch of the last batch; -1: not known."""
        return self._counts if self._doubtful is None else UNKNOWN

    def begin(self, counts: int = UNKNOWN) -> None:
        """Forget the batches so far: reading goes on elsewhere, behind one of the epoch `counts` (-1: not known)."""
        self._counts, self._doubtful, self._at = counts, None, -1

    def read(self, epoch: int, base_offset: int) -> None:
        """Note the epoch of a batch that was read; it may be one that was noted before."""
        if epoch == self._counts:
            self._doubtful = None
        elif epoch == self._doubtful and epoch > self._counts and base_offset > self._at:
            self._counts, self._doubtful = epoch, None
        else:
            self._doubtful, self._at = epoch, base_offset
