"""Takes from an error of the client the advice at its end, which is for programs with a producer of their own."""

from __future__ import annotations

from typing import Final

from fencepost.client.remedies import ADVICE, Remedy
from fencepost.protocol.errors import ErrorCode

_FOR_A_PRODUCER: Final = (
    *{each.what_next for each in ADVICE.values() if each.remedy in (Remedy.ABORT, Remedy.REBUILD)},
    *{ADVICE[code].what_next for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)},
    "abort the transaction, then go on",
    "Abort, then go on",
)
"""The driver does by itself what can be done of it: it aborts, and runs the batch again."""


def for_a_pipeline(message: str) -> str:
    """The message of an error of the client without the advice at its end, if it has one of these."""
    for advice in _FOR_A_PRODUCER:
        if message.endswith(advice):
            return message.removesuffix(advice).rstrip(" .:,")
    return message
