"""What is said of a client that goes without having been closed."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Callable

from fencepost.client.home_process import HomeProcess

logger = logging.getLogger(__name__)


def tell_if_forgotten(client: object, what_is_left: Callable[[], tuple[str, int]]) -> weakref.finalize[..., object]:
    """Have it said when nobody has this client any more, or the process ends; `detach` what is returned at its end.

    `what_is_left`, which must not lead to the client: a sentence about it, and how many records are lost by that.  It
    is a ResourceWarning, which Python shows where that is asked for; where records are lost it is logged as well.
    """
    return weakref.finalize(client, _tell, HomeProcess(), what_is_left)


def _tell(home: HomeProcess, what_is_left: Callable[[], tuple[str, int]]) -> None:
    if not home.is_here:
        return  # its parent closes it
    sentence, lost = what_is_left()
    warnings.warn(sentence, ResourceWarning, stacklevel=2)
    if lost:
        logger.warning(sentence)
