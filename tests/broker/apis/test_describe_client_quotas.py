"""DescribeClientQuotas, over the wire: there are none, and a filter that makes no sense is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.broker.wire import Client, clients

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeClientQuotasRequest
from fencepost.protocol.messages.describe_client_quotas import ComponentData

client = clients()

EXACT, DEFAULT, ANY_NAME = 0, 1, 2

Asked = list[tuple[str, int, str | None]]
SENSIBLE: Final[dict[str, Asked]] = {
    "everything": [],
    "a user": [("user", EXACT, "alice")],
    "a user without a name": [("user", EXACT, "")],
    "the default client": [("client-id", DEFAULT, None)],
    "every address": [("ip", ANY_NAME, None)],
    "users at clients": [("client-id", ANY_NAME, None), ("user", ANY_NAME, None)],
}
NONSENSE: Final[dict[str, tuple[Asked, ErrorCode, str]]] = {
    "no entity type": ([("", ANY_NAME, None)], ErrorCode.INVALID_REQUEST, "is empty"),
    "an entity type of the future": ([("User", ANY_NAME, None)], ErrorCode.UNSUPPORTED_VERSION, "'User'"),
    "a match type of the future": ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "match type 3"),
    "exactly nobody": ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST, "needs a name"),
    "a default of a name": ([("user", DEFAULT, "")], ErrorCode.INVALID_REQUEST, "default takes no name"),
    "any one name": ([("ip", ANY_NAME, "x")], ErrorCode.INVALID_REQUEST, "any name takes no name"),
    "a type twice": ([("user", ANY_NAME, None), ("user", 9, None)], ErrorCode.INVALID_REQUEST, "more than once"),
    "a user at an address": ([("ip", EXACT, "::1"), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST, "combined"),
    "a client at any address": (
        [("client-id", DEFAULT, None), ("ip", ANY_NAME, None)],
        ErrorCode.INVALID_REQUEST,
        "combined",
    ),
    "an address and a type of the future": (
        [("ip", EXACT, "::1"), ("user", EXACT, "a"), ("x" * 30_000, EXACT, "a")],
        ErrorCode.UNSUPPORTED_VERSION,
        "'xxx",
    ),
}


def describe(client: Client, asked: Asked, version: int, strict: bool = False) -> Any:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in asked]
    return client.ask(DescribeClientQuotasRequest(components=components, strict=strict), version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("what", SENSIBLE)
def test_nobody_has_a_quota(client: Client, what: str, version: int) -> None:
    for strict in (False, True):
        told = describe(client, SENSIBLE[what], version, strict)
        assert (told.error_code, told.error_message, told.entries) == (ErrorCode.NONE, "", [])


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("what", NONSENSE)
def test_a_filter_that_makes_no_sense_is_refused(client: Client, what: str, version: int) -> None:
    asked, error, why = NONSENSE[what]
    told = describe(client, asked, version)
    assert (told.error_code, told.entries) == (error, None)
    assert why in told.error_message
    assert len(told.error_message) < 200
