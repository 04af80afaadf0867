"""The id and epoch of a producer without transactions: each record once, whatever is sent again (KIP-98, KIP-360)."""

from __future__ import annotations

import asyncio
from typing import Final

from fencepost.client.batches import Batch
from fencepost.client.cluster import Cluster
from fencepost.client.deadline import Deadline
from fencepost.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    TimedOutError,
    UnreachableError,
)
from fencepost.client.outcomes import Outcome
from fencepost.client.sender import Sender
from fencepost.client.transactional_id import BEFORE_TV2
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.types import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition

#: The broker does not know where we were; the next epoch starts anew.
_LOST_PLACE: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


class Idempotence:
    """The rules (`rules.Rules`) of a sender without transactions."""

    def __init__(self, cluster: Cluster) -> None:
        self.transactional_id: str | None = None
        self.sender: Sender | None = None
        self._cluster = cluster
        self._producer_id_and_epoch: ProducerIdAndEpoch | None = None
        self._asking: asyncio.Task[None] | None = None
        self.error: ClientError | None = None

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        if self._producer_id_and_epoch is None and self.error is None and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._producer_id_and_epoch

    @property
    def takes_records(self) -> bool:
        """Whether a record can be sent now; if not it is refused, or something is waited for first."""
        return self.error is None

    def versions(self) -> tuple[int, int]:
        return 3, BEFORE_TV2["Produce"]

    def admits(self, at: TopicPartition) -> bool:  # noqa: ARG002
        return True

    def answered(self, took: float) -> None:
        """Does nothing: what is sent next does not depend on how long an answer took."""

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, is_spent: bool) -> ClientError:
        if outcome is Outcome.FATAL:
            self.error = error
            return error
        lost_place = isinstance(error, BrokerError) and error.code in _LOST_PLACE
        if (is_spent or lost_place) and batch.producer_id_and_epoch == self._producer_id_and_epoch:
            # What is on its way keeps its pair; what comes after it goes under the next one.
            producer_id, epoch = self._producer_id_and_epoch
            exhausted = epoch >= MAX_PRODUCER_EPOCH
            self._producer_id_and_epoch = None if exhausted else ProducerIdAndEpoch.of(producer_id, epoch + 1)
        return error

    async def _ask(self) -> None:
        deadline = self._cluster.deadline("InitProducerId")
        try:
            while self._producer_id_and_epoch is None:
                try:
                    answer = await deadline.within(self._request())
                except (ConnectionLostError, UnreachableError) as lost:
                    await self._again(deadline, lost)
                    continue
                error = ErrorCode(answer.error_code)
                if not error:
                    self._producer_id_and_epoch = ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)
                elif error.retriable:
                    await self._again(deadline, error.name)
                else:
                    raise BrokerError(error, "no producer id was given")
        except TimedOutError:
            pass  # it is asked again as long as something is to be sent
        except AuthenticationError as error:
            # It is asked again when somebody sends again, not for what was sent until now.
            if self.sender is not None:
                self.sender.abandon(error)
            return
        except ClientError as error:
            self.error = error
            if self.sender is not None:
                self.sender.abandon(error)
        if self.sender is not None:
            self.sender.wake()

    async def _again(self, deadline: Deadline, because: object) -> None:
        if self.sender is not None:
            self.sender.hindered(None, f"no producer id was given: {because}")
        await deadline.pause(because)

    async def _request(self) -> InitProducerIdResponse:
        connection = await self._cluster.any_connection()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        version = connection.version_of(InitProducerIdRequest, 5)
        answer: InitProducerIdResponse = await connection.request(request, version)
        return answer

    def close(self) -> None:
        """Stop asking for a producer id."""
        if self._asking is not None:
            self._asking.cancel()
