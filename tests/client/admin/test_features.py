"""A feature is set to a higher or a lower level, and whatever refuses that is told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.admin.nodes import Nodes, play

from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from fencepost.protocol.messages.update_features import UpdatableFeatureResult

UPGRADE, SAFE_DOWNGRADE = 1, 2


def answered(whole: ErrorCode, single: ErrorCode) -> Any:
    result = UpdatableFeatureResult(feature="transaction.version", error_code=single)
    return UpdateFeaturesResponse(error_code=whole, results=[result])


@pytest.mark.parametrize(
    ("whole", "single"),
    [(ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE)],
)
def test_an_error_of_the_whole_and_one_of_the_feature_are_told(whole: ErrorCode, single: ErrorCode) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.ranges["UpdateFeatures"] = (0, 1)  # later ones have errors of the whole only
        nodes.answer = lambda *_: answered(whole, single)
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError) as refused:
                await admin.update_feature("transaction.version", 2)
            assert refused.value.code == (whole or single)

    play(scenario)


@pytest.mark.parametrize(("level", "kind"), [(0, SAFE_DOWNGRADE), (1, UPGRADE), (2, UPGRADE)])
def test_a_lower_level_than_now_is_asked_for_as_a_downgrade(level: int, kind: int) -> None:
    """The nodes have level 1."""

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda *_: answered(ErrorCode.NONE, ErrorCode.NONE)
        async with nodes.admin() as admin:
            await admin.update_feature("transaction.version", level)
        ((_, request),) = nodes.requests(UpdateFeaturesRequest)
        assert [update.upgrade_type for update in request.feature_updates] == [kind]

    play(scenario)


def test_a_level_is_compared_with_the_one_that_was_set_before() -> None:
    """Also by the same admin: a downgrade that is asked for as an upgrade is refused."""

    async def scenario(nodes: Nodes) -> None:
        def answer(_: int, request: UpdateFeaturesRequest) -> Any:
            nodes.level = request.feature_updates[0].max_version_level
            nodes.finalized_features_epoch += 1
            return answered(ErrorCode.NONE, ErrorCode.NONE)

        nodes.answer = answer
        async with nodes.admin() as admin:
            for level in (2, 1, 2, 0):
                await admin.update_feature("transaction.version", level)
        kinds = [request.feature_updates[0].upgrade_type for _, request in nodes.requests(UpdateFeaturesRequest)]
        assert kinds == [UPGRADE, SAFE_DOWNGRADE, UPGRADE, SAFE_DOWNGRADE]

    play(scenario)
