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
