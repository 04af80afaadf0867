"""Features of the cluster, as `transaction.version`: described, and finalized at other levels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from fencepost.client.admin.asking import ItemResult, Question, ask, known_nodes
from fencepost.client.admin.routes import AnyBroker, Controller
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.connection import SOFTWARE
from fencepost.protocol.messages import ApiVersionsRequest, UpdateFeaturesRequest
from fencepost.protocol.messages.update_features import SAFE_DOWNGRADE, UPGRADE, FeatureUpdateKey

#: ApiVersions: features with a least level of 0 are told since the second one; the newer ones say whom they mean.
_FEATURES_SINCE: Final = 3
_MOST: Final = 4


class FeatureDescription(NamedTuple):
    """A feature: the levels that the broker supports, and the one that is finalized (0: none)."""

    least_level: int
    most_level: int
    finalized_level: int


async def describe_features(cluster: Cluster, deadline: Deadline) -> dict[str, FeatureDescription]:
    """The features by name, as any of the brokers knows them."""

    def read(answer: Any, asked: Any) -> Iterator[ItemResult[str, dict[str, FeatureDescription]]]:
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        found = {
            feature.name: FeatureDescription(feature.min_version, feature.max_version, levels.get(feature.name, 0))
            for feature in answer.supported_features
        }
        yield ItemResult(asked[0], answer.error_code, None, dict(sorted(found.items())))

    question = Question(
        request=lambda _: ApiVersionsRequest(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1]),
        read=read,
        refused=lambda _: "the features of the cluster are not told",
        least=_FEATURES_SINCE,
        most=_MOST,
    )
    return (await ask(cluster, [""], AnyBroker(cluster), question, deadline))[""]


async def update_feature(cluster: Cluster, feature: str, level: int, deadline: Deadline) -> None:
    """Finalize a level of a feature; one below the present level is asked for as a safe downgrade."""
    await known_nodes(cluster, deadline)
    now = cluster.features.levels.get(feature, 0)
    update = FeatureUpdateKey(
        feature=feature,
        max_version_level=level,
        allow_downgrade=level < now,
        upgrade_type=SAFE_DOWNGRADE if level < now else UPGRADE,
    )

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, None]]:
        refused = [result for result in answer.results if result.error_code]
        found = refused[0] if refused and not answer.error_code else answer
        yield ItemResult(feature, found.error_code, found.error_message, None)

    question = Question(
        request=lambda _: UpdateFeaturesRequest(feature_updates=[update]),
        read=read,
        refused=lambda name: f"feature {name!r} was not changed",
    )
    await ask(cluster, [feature], Controller(cluster), question, deadline)
    cluster.ask_features_again()
