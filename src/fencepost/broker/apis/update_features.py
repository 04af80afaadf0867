"""UpdateFeatures (57): change the finalized level of features.

v0    upgrades only: Apache Kafka ignores its allow_downgrade
v1    kind of upgrade, validate only
v2    no results of single features
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.metadata.features import SUPPORTED, Features
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.disk import NothingLeft
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from fencepost.protocol.messages.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdatableFeatureResult,
)
from fencepost.protocol.steps import ITEM, Pace, Steps


@serves(UpdateFeaturesRequest, in_turn=True)
@in_steps
def update_features(request: UpdateFeaturesRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    if not context.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return independent(UpdateFeaturesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]))
    pace = Pace()
    for update in request.feature_updates:
        yield from pace.spend(ITEM)
        refused = _refusal(update, context, node.features)
        if refused is not None:
            error, message = refused
            return _answer(request, context, error, f"{update.feature}: {message}")
    if not request.validate_only:
        levels = {update.feature: update.max_version_level for update in request.feature_updates}
        try:
            changed = node.features.change(levels)
        except NothingLeft as error:
            return _answer(request, context, ErrorCode.FEATURE_UPDATE_FAILED, f"nothing can be written now: {error}")
        if not changed:
            return _answer(request, context, ErrorCode.FEATURE_UPDATE_FAILED, "the features were changed meanwhile")
    return _answer(request, context, ErrorCode.NONE, None)


def _refusal(update: FeatureUpdateKey, context: RequestContext, features: Features) -> tuple[ErrorCode, str] | None:
    known = SUPPORTED.get(update.feature)
    if known is None:
        return ErrorCode.INVALID_UPDATE_VERSION, f"there is no such feature; there are {', '.join(SUPPORTED)}"
    low, high, _ = known
    level, now = update.max_version_level, features.level(update.feature)
    if not low <= level <= high:
        return ErrorCode.INVALID_UPDATE_VERSION, f"level {level} is not between {low} and {high}"
    kind = update.upgrade_type if context.version >= 1 else UPGRADE
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return ErrorCode.INVALID_UPDATE_VERSION, f"{kind} is no kind of upgrade"
    if level < now and kind == UPGRADE:
        return ErrorCode.INVALID_UPDATE_VERSION, f"level {level} is below {now}: this needs a downgrade type"
    if level > now and kind != UPGRADE:
        return ErrorCode.INVALID_UPDATE_VERSION, f"level {level} is above {now}: this is no downgrade"
    return None


def _answer(request: UpdateFeaturesRequest, context: RequestContext, error: ErrorCode, message: str | None) -> Reply:
    """The response.  An error is one of the whole request: all features change, or none."""
    results = []
    if context.version <= 1 and not error:
        results = [
            UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE")
            for update in request.feature_updates
        ]
    return independent(UpdateFeaturesResponse(error_code=error, error_message=message, results=results))
