"""The result of sending records without asyncio: a thread waits in `Delivery.result` for the acknowledgement."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from fencepost.client.errors import ClosedError
from fencepost.client.portal import Portal

T = TypeVar("T")


class Delivery(Generic[T]):
    """The acknowledgement of one record, or of the records of one `send_many`, that is to come."""

    __slots__ = ("_portal", "future")

    def __init__(self, portal: Portal, future: asyncio.Future[T] | None = None) -> None:
        self._portal = portal
        self.future = future
        """Of the portal's loop; None until the record is in a batch, which it is when the next call begins."""

    def result(self) -> T:
        """Wait for the acknowledgement.

        Raises DeliveryError if it was not delivered within `delivery_timeout_ms`, TransactionAbortedError if it was not
        sent because its transaction was aborted, BrokerError if the broker refused it.
        """
        if self.future is not None and self.future.done():
            return self.future.result()  # also after the client was closed
        try:
            return self._portal.call(self._wait())
        except ClosedError:
            if self.future is not None and self.future.done():  # it ended together with the client
                return self.future.result()
            raise

    async def _wait(self) -> T:
        assert self.future is not None, "what was handed over is in a batch before a call begins"
        return await asyncio.shield(self.future)  # whoever is interrupted asks again, and others wait for it too
