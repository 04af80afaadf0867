"""What the settings of a topic are after operations on some of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fencepost.broker.apis.incremental_alter_configs import changed
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

SET, DELETE, APPEND, SUBTRACT = range(4)
KNOWN = {"cleanup.policy": "compact", "retention.ms": "5"}


def after(*operations: tuple[str, int, str | None], known: Mapping[str, str] = KNOWN) -> dict[str, str]:
    configs = [AlterableConfig(name=name, config_operation=kind, value=value) for name, kind, value in operations]
    return changed(AlterConfigsResource(resource_type=2, resource_name="t", configs=configs), known)


@pytest.mark.parametrize(
    ("operation", "settings"),
    [
        (("retention.ms", SET, "7"), KNOWN | {"retention.ms": "7"}),
        (("segment.ms", SET, "7"), KNOWN | {"segment.ms": "7"}),
        (("retention.ms", DELETE, None), {"cleanup.policy": "compact"}),
        (("segment.ms", DELETE, None), KNOWN),
        (("cleanup.policy", APPEND, "delete"), KNOWN | {"cleanup.policy": "compact,delete"}),
        (("cleanup.policy", APPEND, "compact"), KNOWN),
        (("cleanup.policy", APPEND, ""), KNOWN),
        (("cleanup.policy", SUBTRACT, "delete"), KNOWN),
        (("cleanup.policy", SUBTRACT, "compact"), KNOWN | {"cleanup.policy": ""}),
    ],
)
def test_one_setting_is_changed_and_the_others_stay(
    operation: tuple[str, int, str | None], settings: dict[str, str]
) -> None:
    assert after(operation) == settings


def test_a_list_that_is_not_set_begins_with_what_it_is_by_default() -> None:
    assert after(("cleanup.policy", APPEND, "compact"), known={}) == {"cleanup.policy": "delete,compact"}
    assert after(("cleanup.policy", SUBTRACT, "delete"), known={}) == {"cleanup.policy": ""}


def test_nothing_is_left_of_an_item_that_a_list_had_more_than_once() -> None:
    twice = {"cleanup.policy": "compact,delete,compact"}
    assert after(("cleanup.policy", SUBTRACT, "compact"), known=twice) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    "operations",
    [
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, None)],
        [("retention.ms", APPEND, "1")],
        [("retention.ms", 4, "1")],
    ],
)
def test_what_makes_no_sense_changes_nothing(operations: list[tuple[str, int, str | None]]) -> None:
    with pytest.raises(TopicRefused):
        after(*operations)
