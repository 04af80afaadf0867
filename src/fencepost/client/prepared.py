"""Transactions that are prepared: something outside of Kafka decides whether they are committed (KIP-939)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from fencepost.client.arguments import text
from fencepost.client.errors import BrokerError, ClientError, UnsupportedByBrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch

#: The version of InitProducerId that knows of two-phase commit.
SINCE_TWO_PHASE: Final = 6
_AS_TEXT: Final = re.compile(r"(\d{1,19}):(\d{1,5})", re.ASCII)
_LARGEST_ID: Final = 2**63 - 1


class PreparedTxnState(NamedTuple):
    """The producer id and epoch of a prepared transaction, with which any process can complete it.

    `str` makes a text of it to keep with what decides, `parse` reads that: `"17:3"`, or `""` for one without records
    and positions, of which no broker knows.  Apache Kafka's Java client (4.2) has the same texts.
    """

    producer_id: int = NO_PRODUCER.producer_id
    epoch: int = NO_PRODUCER.producer_epoch

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}" if self.has_records else ""

    @property
    def has_records(self) -> bool:
        """Whether the transaction has records or positions, so that a broker may know of it."""
        return self.producer_id >= 0

    @classmethod
    def parse(cls, kept: str) -> Self:
        """The state that `str` made this text of.  Raises TypeError, ValueError."""
        if not text("prepared transaction", kept):
            return cls()
        found = _AS_TEXT.fullmatch(kept)
        state = cls(int(found[1]), int(found[2])) if found else None
        if state is None or state.producer_id > _LARGEST_ID or state.epoch > MAX_PRODUCER_EPOCH:
            raise ValueError(f"{kept!r} is no prepared transaction: it is written as producer id, ':' and epoch, or ''")
        return state

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch.of(self.producer_id, self.epoch)


def two_phase_refusal(error: ClientError, *, keep: bool) -> ClientError:
    """The error where a broker refuses to claim a transactional id for two-phase commit."""
    code = error.code if isinstance(error, BrokerError) else None
    if keep and code == ErrorCode.UNSUPPORTED_VERSION:
        return UnsupportedByBrokerError(
            "the broker keeps no prepared transactions for init_transactions(keep_prepared=True), as Apache Kafka 4.3 "
            "does not: call complete_transaction() first, then init_transactions() without it"
        )
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return BrokerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the transactional id was not given for two-phase commit: the broker needs "
            "transaction.two.phase.commit.enable=true, and the user the right TWO_PHASE_COMMIT",
        )
    if isinstance(error, UnsupportedByBrokerError):
        return UnsupportedByBrokerError(
            f"{error}. For two-phase commit the broker needs transaction.two.phase.commit.enable=true, and Apache "
            "Kafka unstable.api.versions.enable=true as well"
        )
    return error
