"""What an administrator asks of client quotas where none are set: by every filter, those that make no sense too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Final

from tests.compare.administration.walk import Administered, Case

from fencepost.protocol.messages import DescribeClientQuotasRequest
from fencepost.protocol.messages.describe_client_quotas import ComponentData

_ENTITY_TYPES: Final = ("user", "client-id", "ip", "User", "custom", "")
_MATCH_TYPES: Final = (0, 1, 2, 3, -1)
_NAMES: Final = (None, "", "alice", "127.0.0.1")
_THREE: Final = (("user", "ip", "user"), ("ip", "user", "custom"), ("ip", "user", ""), ("user", "client-id", "ip"))


def component(entity_type: str, match_type: int = 2, name: str | None = None) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=match_type, match=name)


def filters() -> Iterator[list[ComponentData]]:
    yield []
    for one in product(_ENTITY_TYPES, _MATCH_TYPES, _NAMES):
        yield [component(*one)]
    for first, second in product(_ENTITY_TYPES, repeat=2):
        yield [component(first), component(second)]
        for wrong in (0, 9):
            yield [component(first, wrong), component(second)]
            yield [component(first), component(second, wrong)]
    for three in _THREE:
        yield [component(each) for each in three]


def quotas(nodes: Administered) -> Iterator[Case]:
    for version, strict, wanted in product((0, 1), (False, True), filters()):
        request = DescribeClientQuotasRequest(components=wanted, strict=strict)
        named = [(each.entity_type, each.match_type, each.match) for each in wanted]
        yield f"quotas of {named}", partial(nodes.ask, request, version)
