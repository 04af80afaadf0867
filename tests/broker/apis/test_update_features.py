"""UpdateFeatures (57), and what the level of transaction.version changes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.wire import Client, add, batch, clients, end, init, init_answer, new_topic, produce

from fencepost.broker.metadata.features import SUPPORTED
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsRequest, UpdateFeaturesRequest
from fencepost.protocol.messages.update_features import FeatureUpdateKey

client = clients()
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    client: Client, level: int, kind: int, feature: str = "transaction.version", *, dry: bool = False, version: int = 2
) -> Any:
    key = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE)
    return client.ask(UpdateFeaturesRequest(feature_updates=[key], validate_only=dry), version)


def finalized(client: Client) -> tuple[int, int]:
    """Level of transaction.version (0: not told), and the epoch of the features."""
    answer = client.ask(ApiVersionsRequest(client_software_name="wire", client_software_version="1"))
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels.get("transaction.version", 0), answer.finalized_features_epoch


@pytest.mark.parametrize("version", [1, 2])
def test_a_level_goes_down_and_up(client: Client, version: int) -> None:
    level, epoch = finalized(client)
    assert level == 2
    for wanted, kind in [(1, SAFE), (0, UNSAFE), (2, UPGRADE)]:
        answer = update(client, wanted, kind, version=version)
        assert answer.error_code == ErrorCode.NONE
        results = [(each.feature, each.error_code) for each in answer.results]
        assert results == ([("transaction.version", 0)] if version < 2 else [])
        epoch += 1
        assert finalized(client) == (wanted, epoch)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level", "kind"),
    [
        ("transaction.version", 3, UPGRADE),
        ("transaction.version", -1, SAFE),
        ("transaction.version", 1, UPGRADE),
        ("unknown", 1, UPGRADE),
    ],
)
def test_what_is_refused(client: Client, feature: str, level: int, kind: int, version: int) -> None:
    before = finalized(client)
    answer = update(client, level, kind, feature, version=version)
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert finalized(client) == before


@pytest.mark.parametrize("place", range(2))
def test_where_one_is_refused_none_changes(client: Client, place: int) -> None:
    """Whichever of them it is."""
    before = finalized(client)
    keys = [FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=SAFE)]
    keys.insert(place, FeatureUpdateKey(feature="unknown", max_version_level=1, upgrade_type=UPGRADE))
    answer = client.ask(UpdateFeaturesRequest(feature_updates=keys))
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert finalized(client) == before


@pytest.mark.parametrize("kind", [UPGRADE, SAFE])
def test_version_0_lowers_no_level_whatever_it_allows(client: Client, kind: int) -> None:
    before = finalized(client)
    assert update(client, 1, kind, version=0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(client) == before
    assert update(client, 2, kind, version=0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", [0, 4])
def test_there_are_three_kinds(client: Client, kind: int) -> None:
    assert update(client, 1, kind).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_what_is_called_a_downgrade_raises_no_level(client: Client, kind: int) -> None:
    assert update(client, 1, SAFE).error_code == ErrorCode.NONE
    before = finalized(client)
    assert update(client, 2, kind).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(client) == before
    assert update(client, 1, kind).error_code == ErrorCode.NONE, "it is there already"
    assert update(client, 2, UPGRADE).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_a_dry_run_changes_nothing(client: Client, version: int) -> None:
    before = finalized(client)
    assert update(client, 1, SAFE, dry=True, version=version).error_code == ErrorCode.NONE
    assert finalized(client) == before


@pytest.mark.promise("890.level-refused")
def test_on_level_0_the_newer_protocol_is_refused_and_the_older_works(client: Client) -> None:
    """Facts §3.6, §14: 35 every time, and nothing is stuck."""
    topic = new_topic(client)
    assert update(client, 0, UNSAFE).error_code == ErrorCode.NONE
    pair = init(client, "t")
    data = batch("v", pair=pair, sequence=0, transactional=True)
    for _ in range(2):
        assert produce(client, topic, data, "t").error_code == ErrorCode.UNSUPPORTED_VERSION
        assert end(client, "t", pair, commit=False).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert add(client, "t", pair, topic) == ErrorCode.NONE
    assert produce(client, topic, data, "t", version=11).error_code == ErrorCode.NONE
    assert end(client, "t", pair, version=4).error_code == ErrorCode.NONE
    answer = init_answer(client, "t")
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, pair.producer_epoch + 1), (
        "an end bumps nothing"
    )


@pytest.mark.parametrize("version", [3, 4])
def test_older_clients_hear_of_no_feature_whose_least_level_is_0_and_nobody_of_one_that_is_off(
    client: Client, version: int
) -> None:
    asked = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    answer = client.ask(asked, version)
    supported = [name for name, (low, _, _) in SUPPORTED.items() if version >= 4 or low > 0]
    assert [each.name for each in answer.supported_features] == supported
    assert [each.name for each in answer.finalized_features] == ["transaction.version"]
