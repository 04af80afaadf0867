"""UpdateFeatures (57): change the finalized level of features.

v1    kind of upgrade, validate only
v2    no results of single features
"""

from typing import Final

from fencepost.protocol.message import request, response, since, struct, until
from fencepost.protocol.types import boolean, error_text, int8, int16, int32, string

# Types of an upgrade; only the last one may lose what the lower level has no room for.
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


@struct
class FeatureUpdateKey:
    feature: string
    max_version_level: int16
    allow_downgrade: boolean = until(0, default=False)
    upgrade_type: int8 = since(1, default=UPGRADE)


@request(api=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Kafka's UpdateFeaturesRequest."""

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = since(1, default=False)


@struct
class UpdatableFeatureResult:
    feature: string
    error_code: int16
    error_message: error_text | None = None


@response(api=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """Kafka's UpdateFeaturesResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: error_text | None = None
    results: list[UpdatableFeatureResult] = until(1, default=[])
