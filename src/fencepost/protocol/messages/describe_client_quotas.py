"""DescribeClientQuotas (48): which quotas are set for users, clients and addresses (KIP-546).

v1    flexible
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import boolean, error_text, float64, int8, int16, int32, string


@struct
class ComponentData:
    """A filter for one type of entity, as "user".

    `match_type`: 0 of the one whose name is `match`, 1 of the default, 2 of any that is named.
    """

    entity_type: string
    match_type: int8
    match: string | None = None


@request(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Kafka's DescribeClientQuotasRequest.  `strict`: without quotas of entities that have other kinds as well."""

    components: list[ComponentData]
    strict: boolean


@struct
class EntityData:
    entity_type: string
    entity_name: string | None


@struct
class ValueData:
    key: string
    value: float64


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@response(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """Kafka's DescribeClientQuotasResponse.  No entries at all, rather than an empty list, where there is an error."""

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: error_text | None = None
    entries: list[EntryData] | None
