"""AlterConfigs (33): what the settings of a resource are afterwards."""

from __future__ import annotations

import pytest

from fencepost.broker.apis.alter_configs import replaced
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource


def after(*given: tuple[str, str | None]) -> dict[str, str]:
    configs = [AlterableConfig(name=name, value=value) for name, value in given]
    return replaced(AlterConfigsResource(resource_type=2, resource_name="t", configs=configs), {"retention.ms": "5"})


def test_nothing_stays_that_is_not_named() -> None:
    assert after() == {}
    assert after(("segment.ms", "7"), ("cleanup.policy", "")) == {"segment.ms": "7", "cleanup.policy": ""}


@pytest.mark.parametrize("given", [[("segment.ms", None)], [("segment.ms", "7"), ("segment.ms", "7")]])
def test_each_is_named_once_with_a_value(given: list[tuple[str, str | None]]) -> None:
    with pytest.raises(TopicRefused):
        after(("cleanup.policy", "compact"), *given)
