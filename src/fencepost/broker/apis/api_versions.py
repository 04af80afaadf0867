"""ApiVersions (18): which APIs and versions this node serves, and the features of the cluster.

v3    flexible, but for the response header; software name; features
v4    features whose least level is 0 are told
v5    the client says which cluster and node it means
"""

from __future__ import annotations

import re

from fencepost.broker.metadata.features import SUPPORTED
from fencepost.broker.network.older_clients import software_name
from fencepost.broker.network.registry import SERVED, Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.api_versions import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


@serves(ApiVersionsRequest)
def api_versions(request: ApiVersionsRequest, context: RequestContext, node: Node) -> Reply:
    if context.version >= 3 and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return independent(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]))
    context.peer.software = software_name(request.client_software_name, request.client_software_version)
    wrong_cluster = request.cluster_id not in (None, node.cluster_id)
    if wrong_cluster or request.node_id not in (-1, node.node_id):
        return independent(ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[]))
    keys = [
        ApiVersion(api_key=key, min_version=served.advertised_first, max_version=served.newest(node.settings))
        for key, served in sorted(SERVED.items())
    ]
    supported = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high, _) in SUPPORTED.items()
        if context.version >= 4 or low > 0  # older clients refuse a least level of 0
    ]
    features = node.features
    finalized = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.levels.items()
        if level > 0
    ]
    return independent(
        ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=keys,
            supported_features=supported,
            finalized_features_epoch=features.epoch,
            finalized_features=finalized,
        )
    )
