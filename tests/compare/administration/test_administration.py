"""Topics and settings: what an administrator asks of both nodes is answered alike, in every version."""

from __future__ import annotations

import pytest
from tests.compare.administration.tables import COLLIDING, Tables
from tests.compare.administration.walk import Administered
from tests.compare.nodes.connection import MUTE
from tests.compare.nodes.twins import Asked, Explanation, Twins
from tests.compare.nodes.two_nodes import two_nodes

pytestmark = pytest.mark.compare


def keeps_internal_topics(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """Neither deleted nor grown."""
    return asked.name in ("DeleteTopics", "CreatePartitions") and "__consumer_offsets" in str(asked.ours)


def keeps_internal_topics_compacted(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """Whatever would give them another cleanup.policy, or none, Apache Kafka lets through."""
    if asked.name not in ("AlterConfigs", "IncrementalAlterConfigs") or MUTE in (asked.kafka, asked.ours):
        return False
    internal = any(name in str(asked.request) for name in ("__consumer_offsets", "__transaction_state"))
    codes = [[response["error_code"] for response in answer["responses"]] for answer in (asked.kafka, asked.ours)]
    return internal and codes == [[0], ["POLICY_VIOLATION"]]


def answers_what_is_said_twice(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """A resource, or a setting: the connection of Apache Kafka is mute after it."""
    return asked.name in ("AlterConfigs", "IncrementalAlterConfigs") and asked.kafka == MUTE


def says_that_a_name_collides(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """When it is asked for, and might be made."""
    return asked.name == "Metadata" and asked.request.allow_auto_topic_creation and COLLIDING in str(asked.ours)


_EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {
    keeps_internal_topics: (2,),
    keeps_internal_topics_compacted: (2,),
    answers_what_is_said_twice: (2,),
    says_that_a_name_collides: (2,),
}


def test_topics_and_settings_are_administered_alike() -> None:
    with two_nodes() as nodes:
        twins = Administered(nodes, _EXPLANATIONS)
        for title, case in Tables(twins).all():
            twins.play(title, case)
    twins.findings.check()
