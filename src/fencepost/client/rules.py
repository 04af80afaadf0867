"""The decisions that a sender leaves to its owner: a producer, or a part of a shared transaction."""

from __future__ import annotations

from typing import Protocol

from fencepost.client.batches import Batch
from fencepost.client.errors import ClientError
from fencepost.client.outcomes import Outcome
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition


class Rules(Protocol):
    """The questions of a sender to its owner."""

    transactional_id: str | None

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        """The producer id and epoch under which batches are written; None while there is none: nothing is sent then."""
        ...

    def admits(self, at: TopicPartition) -> bool:
        """Whether new batches may be sent to this partition now.  If not, the owner calls `wake` later."""
        ...

    def versions(self) -> tuple[int, int]:
        """The least and the newest version of Produce that may be used."""
        ...

    def answered(self, took: float) -> None:
        """Note that a request was answered, these many seconds after it was sent."""
        ...

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, is_spent: bool) -> ClientError:
        """Note that a batch failed for good; the error that its records get.

        Its numbers are its own for good: it is not sent again under others (KIP-360).
        `is_spent`: nor can others have them, since it may be written, or batches with numbers after them were sent.
        """
        ...
