"""The results of the group coordinator, which the handlers put into responses."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from fencepost.protocol.types import Lsn

R = TypeVar("R")


class Answered(NamedTuple, Generic[R]):
    """An answer, and what it depends on: it may leave the process when everything up to `lsn` is durable."""

    answer: R
    lsn: Lsn
