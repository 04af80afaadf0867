"""What the owner of a sender decides: a transactional or idempotent producer, or a part of a shared transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fencepost.client.batches import Batch
from fencepost.client.errors import ClientError
from fencepost.client.outcomes import Outcome
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from fencepost.client.sender import Sender


class Rules(Protocol):
    """See the module."""

    transactional_id: str | None
    sender: Sender | None

    @property
    def identity(self) -> ProducerIdAndEpoch | None:
        """Who writes; None while that is not known."""
        ...

    def admits(self, at: TopicPartition) -> bool:
        """Whether new batches may be sent to this partition now.  If not, the owner calls `wake` later."""
        ...

    def versions(self) -> tuple[int, int]:
        """Least and newest version of Produce."""
        ...

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, unresolved: bool) -> bool:
        """A batch failed; true to send it again under a new identity.

        `unresolved`: nobody knows whether it was written.
        """
        ...
