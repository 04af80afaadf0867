"""ResourceWarnings for clients that are garbage-collected, or left at the end of the process, without a `close`."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Callable

from fencepost.client.home import HomeProcess
from fencepost.client.sender import Sender
from fencepost.client.sending import Sending
from fencepost.runtime import Runtime

logger = logging.getLogger(__name__)


def tell_if_forgotten(
    client: object, what_is_left: Callable[[], tuple[str, int]], runtime: Runtime | None
) -> weakref.finalize[..., object]:
    """Warn when this client is garbage-collected, or at the end of the process; `detach` the result once it is closed.

    `what_is_left`, which must not lead to the client: a sentence about it, and how many records are lost by that.  It
    is a ResourceWarning, which Python shows where that is asked for; where records are lost it is logged as well.
    With a `runtime` of its own, as in a simulated world, nothing is said at the end of the process: the broker goes,
    too.
    """
    finalizer = weakref.finalize(client, _tell, HomeProcess(), what_is_left)
    finalizer.atexit = runtime is None
    return finalizer


def _tell(home: HomeProcess, what_is_left: Callable[[], tuple[str, int]]) -> None:
    if not home.is_here:
        return  # its parent closes it
    sentence, lost = what_is_left()
    warnings.warn(sentence, ResourceWarning, stacklevel=2)
    if lost:
        logger.warning(sentence)


def left_by_a_consumer(named: str) -> tuple[str, int]:
    """The warning for a consumer that was not closed, and how many records are lost: none."""
    return (
        f"{named} was not closed: a group waits for it for max_poll_interval_ms, and what was not committed is read "
        "again. Use it in a `with` (`async with`) block, or close() it",
        0,
    )


def left_by_an_admin(named: str) -> tuple[str, int]:
    """The warning for an admin that was not closed, and how many records are lost: none."""
    return f"{named} was not closed: use it in a `with` (`async with`) block, or close() it", 0


def unacknowledged_records(named: str, sender: Sender, sending: Sending) -> tuple[str, int]:
    """The warning for a producer that was not closed, and how many records may be lost."""
    lost = sender.unacknowledged + sending.queued
    return (
        f"{named} was not closed, and {lost} records were not acknowledged: they may be lost. Use it in a `with` "
        "(`async with`) block, or close() it",
        lost,
    )
