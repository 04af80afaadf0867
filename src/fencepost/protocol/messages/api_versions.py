"""ApiVersions (18): which APIs and versions this node serves, and the features of the cluster.

v3    flexible, but for the response header; software name; features
v4    features whose least version is 0
v5    the client says which cluster and node it means
"""

from fencepost.protocol.message import request, response, since, struct, tagged
from fencepost.protocol.types import boolean, int16, int32, int64, string


@request(api=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    """Kafka's ApiVersionsRequest."""

    client_software_name: string = since(3, default="")
    client_software_version: string = since(3, default="")
    cluster_id: string | None = since(5, default=None)
    node_id: int32 = since(5, default=-1)


@struct
class ApiVersion:
    api_key: int16
    min_version: int16
    max_version: int16


@struct
class SupportedFeatureKey:
    name: string = since(3, default="")
    min_version: int16 = since(3, default=0)
    max_version: int16 = since(3, default=0)


@struct
class FinalizedFeatureKey:
    name: string = since(3, default="")
    max_version_level: int16 = since(3, default=0)
    min_version_level: int16 = since(3, default=0)


@response(api=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """Kafka's ApiVersionsResponse."""

    error_code: int16
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = since(1, default=0)
    supported_features: list[SupportedFeatureKey] = tagged(0, since=3, default=[])
    finalized_features_epoch: int64 = tagged(1, since=3, default=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, since=3, default=[])
    zk_migration_ready: boolean = tagged(3, since=3, default=False)
