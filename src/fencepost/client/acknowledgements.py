"""Producers that do not number their batches, and whose acknowledgement a producer waits for (Kafka's `acks`)."""

from __future__ import annotations

from typing import Final

from fencepost.client.batches import Batch
from fencepost.client.errors import ClientError
from fencepost.client.outcomes import Outcome
from fencepost.client.sender import Sender
from fencepost.client.settings import check_switches
from fencepost.client.transactional_id import BEFORE_TV2
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition

ALL: Final = -1
#: What a setting may be -> what a request says.
_ACKS: Final[dict[object, int]] = {"all": ALL, "-1": ALL, -1: ALL, "1": 1, 1: 1, "0": 0, 0: 0}


def checked_acks(acks: int | str, *, enable_idempotence: bool, transactional_id: str | None) -> int:
    """Acknowledgements as a request names them: -1 of all in sync, 1 of the leader, 0 of nobody.

    Raises TypeError, ValueError; also for fewer than all where batches have numbers, as Apache Kafka does (KIP-679).
    """
    check_switches(enable_idempotence=enable_idempotence)
    if isinstance(acks, bool) or not isinstance(acks, int | str):
        raise TypeError(f'acks={acks!r}: it must be 0, 1 or "all"')
    if acks not in _ACKS:
        raise ValueError(f'acks={acks!r}: it must be 0, 1 or "all"')
    if transactional_id is not None and not enable_idempotence:
        raise ValueError("enable_idempotence=False: a producer with a transactional_id needs it; leave one of them out")
    if _ACKS[acks] != ALL and transactional_id is not None:
        raise ValueError(f'acks={acks!r}: a producer with a transactional_id needs acks="all"')
    if _ACKS[acks] != ALL and enable_idempotence:
        raise ValueError(
            f'acks={acks!r}: with enable_idempotence it must be "all". Set enable_idempotence=False if records may be '
            "lost or written twice"
        )
    return _ACKS[acks]


class Unnumbered:
    """The rules (`rules.Rules`) of a sender without idempotence: a batch that is sent again may be written twice."""

    def __init__(self) -> None:
        self.transactional_id: str | None = None
        self.sender: Sender | None = None

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        return NO_PRODUCER

    @property
    def takes_records(self) -> bool:
        """Whether a record can be sent now: always."""
        return True

    def versions(self) -> tuple[int, int]:
        return 3, BEFORE_TV2["Produce"]

    def admits(self, at: TopicPartition) -> bool:  # noqa: ARG002
        return True

    def answered(self, took: float) -> None:
        """Does nothing: what is sent next does not depend on how long an answer took."""

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, is_spent: bool) -> ClientError:  # noqa: ARG002
        return error

    def close(self) -> None:
        """Does nothing: no batch is waited for."""
