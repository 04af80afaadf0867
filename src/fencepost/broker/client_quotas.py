"""Client quotas (KIP-546): a node keeps none, so whatever they are asked for by, none is found.

Pure: a filter that makes no sense is refused as Apache Kafka 4.3.1 refuses it, though there is nothing to filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.describe_client_quotas import ComponentData

Refusal = tuple[ErrorCode, str]
"""The error for a filter that makes no sense, and a sentence for a person."""

_IP: Final = "ip"
_ENTITY_TYPES: Final = ("user", "client-id", _IP)
#: Match type -> whether such a match may have this string.
_MATCHES: Final[dict[int, tuple[Callable[[str | None], bool], str]]] = {
    0: (lambda match: match is not None, "an exact match needs a name"),
    1: (lambda match: match is None, "a match of the default takes no name"),
    2: (lambda match: match is None, "a match of any name takes no name"),
}


def refusal(components: Iterable[ComponentData]) -> Refusal | None:
    """The error of a filter and its message; None if it makes sense.

    At most one component more than there are types is looked at.
    """
    seen: set[str] = set()
    for component in components:
        found = _refusal(component, seen)
        if found is not None:
            return found
        seen.add(component.entity_type)
    if _IP in seen and len(seen) > 1:
        return ErrorCode.INVALID_REQUEST, f"{_IP!r} is not to be combined with other entity types"
    return None


def _refusal(component: ComponentData, seen: set[str]) -> Refusal | None:
    entity_type, match_type = component.entity_type, component.match_type
    if not entity_type:
        return ErrorCode.INVALID_REQUEST, "an entity type is empty"
    if entity_type not in _ENTITY_TYPES:
        return ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {entity_type!r:.100}"
    if entity_type in seen:
        return ErrorCode.INVALID_REQUEST, f"entity type {entity_type!r} stands there more than once"
    if match_type not in _MATCHES:
        return ErrorCode.INVALID_REQUEST, f"there is no match type {match_type}"
    may_be, otherwise = _MATCHES[match_type]
    return None if may_be(component.match) else (ErrorCode.INVALID_REQUEST, otherwise)
