"""Says in the log that no broker is reached: after a while, before a call's time is over, and once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fencepost.client.deadline import Waits, held_up

logger = logging.getLogger(__name__)

#: Seconds without a broker before it is said.
SAID_AFTER: Final = 2.0
#: Seconds between two outages that are said: a broker may come and go.
SAID_AGAIN_AFTER: Final = 60.0
#: Seconds without a try after which nobody wants a broker any more.
_WANTED_FOR: Final = 1.0


class Outage:
    """A time in which no broker is reached, logged once after 2 s.  `looking` is around each try; `close` it.

    `client_id` and `servers`: who looks for whom.  `login`: what in this process may hold a try up.
    """

    def __init__(self, client_id: str, servers: str, login: Waits | None = None) -> None:
        self._client_id, self._servers, self._login = client_id, servers, login
        self._began: float | None = None
        """When the outage began, in seconds of the event loop's clock; None: there is none."""
        self._is_said = False
        self._quiet_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tries = 0
        """The tries that are under way."""
        self._last_try = 0.0
        self._because = "nobody answers"

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A block in which a broker is looked for; one is found if nothing is raised."""
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = loop.time()
            self._timer = loop.call_later(SAID_AFTER, self._say)
        self._tries += 1
        try:
            yield
            self.ended()
        finally:
            self._tries -= 1
            self._last_try = loop.time()

    def failed(self, because: str) -> None:
        """Note why a broker was not reached."""
        self._because = because

    def ended(self) -> None:
        """Note that a broker was reached, by whomever."""
        if self._is_said and self._began is not None:
            after = asyncio.get_running_loop().time() - self._began
            logger.info("client %s: a broker was reached again, after %.1f s", self._client_id, after)
        self.close()

    def close(self) -> None:
        """End the outage, and log nothing of it any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._began, self._is_said = None, None, False

    def _say(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._began is None or (not self._tries and now - self._last_try > _WANTED_FOR):
            self.close()  # whoever looked has given up
        elif now >= self._quiet_until:
            self._is_said, self._quiet_until = True, now + SAID_AGAIN_AFTER
            logger.warning(
                "client %s: no broker has been reached for %.0f s, by bootstrap_servers %s: %s. It is tried again "
                "until the time of each call is over (max_block_ms, delivery_timeout_ms)",
                *(self._client_id, now - self._began, self._servers, held_up(self._login) or self._because),
            )
