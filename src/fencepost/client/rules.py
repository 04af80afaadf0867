"""What a sender leaves to its owner: a transactional or idempotent producer, or a part of a shared transaction."""

from __future__ import annotations

from typing import Protocol

from fencepost.client.batches import Batch
from fencepost.client.errors import ClientError
from fencepost.client.outcomes import Outcome
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition


class Rules(Protocol):
    """What a sender asks its owner."""

    transactional_id: str | None

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        """The pair under which batches are written; None while there is none."""
        ...

    def admits(self, at: TopicPartition) -> bool:
        """Whether new batches may be sent to this partition now.  If not, the owner calls `wake` later."""
        ...

    def versions(self) -> tuple[int, int]:
        """Least and newest version of Produce."""
        ...

    def answered(self, took: float) -> None:
        """Note that a request was answered, these many seconds after it was sent."""
        ...

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, is_spent: bool) -> ClientError:
        """Note that a batch failed; what its records are told.

        Its numbers are its own for good: it is not sent again under others (KIP-360).
        `is_spent`: nor can others have them, since it may be written, or batches with numbers after them were sent.
        """
        ...
