"""No two producers are ever given the same producer id and epoch, and no producer id belongs to two (facts §3).

Looked at in every answer that leaves the node, over its starts and crashes.  An instance is whoever took an id over, or
asked for one without a name; what it is given later, for the pair that it has, is its own too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from fencepost.protocol.types import ProducerIdAndEpoch

_INIT_PRODUCER_ID: Final = 22
_END_TXN: Final = 26


class Handed(NamedTuple):
    """A producer id and epoch that an answer hands out."""

    name: str | None
    """The transactional id; None: there is none."""
    known: ProducerIdAndEpoch | None
    """The pair that the producer has; None: it is a new instance."""
    producer_id_and_epoch: ProducerIdAndEpoch


def handed(api: int, request: Any, response: Any) -> Handed | None:
    """The pair that the answer to this request hands out; None if it hands out none."""
    if api not in (_INIT_PRODUCER_ID, _END_TXN) or response.error_code or response.producer_id < 0:
        return None
    is_known = request.producer_id >= 0 and request.transactional_id is not None
    known = ProducerIdAndEpoch.of(request.producer_id, request.producer_epoch) if is_known else None
    return Handed(request.transactional_id, known, ProducerIdAndEpoch.of(response.producer_id, response.producer_epoch))


class ProducerIds:
    """All pairs that were ever handed out in a world."""

    def __init__(self) -> None:
        self._owners: dict[ProducerIdAndEpoch, int] = {}
        """The number of the instance that has each pair."""
        self._names: dict[int, str | int] = {}
        """Whose each producer id is: a transactional id or, where there is none, an instance."""
        self._instances = 0

    def add(self, handed: Handed) -> str | None:
        """Note a pair that leaves in an answer; what is wrong with that, None if nothing is."""
        producer_id_and_epoch, owner = handed.producer_id_and_epoch, None
        if handed.known is not None:
            owner = self._owners.get(handed.known)
            if owner is None:
                return None  # somebody who asks for anything
        else:
            self._instances += 1
            owner = self._instances
        who = f"producer id {producer_id_and_epoch.producer_id}, epoch {producer_id_and_epoch.producer_epoch}"
        if self._owners.setdefault(producer_id_and_epoch, owner) != owner:
            return f"{who}, is given to {handed.name or 'a producer without transactions'}, and another producer has it"
        name: str | int = owner if handed.name is None else handed.name
        if self._names.setdefault(producer_id_and_epoch.producer_id, name) != name:
            return f"{who}, is given to {handed.name or 'a producer without transactions'}, and the id is another one's"
        return None
