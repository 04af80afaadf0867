"""Who may not see a topic is not told whether it is there."""

from __future__ import annotations

import pytest
from tests.broker.test_authorizer import TOPIC, Scene, scene

from fencepost.broker.authorizer import Operation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTopicPartitionsRequest
from fencepost.protocol.messages.describe_topic_partitions import TopicRequest

__all__ = ["scene"]


@pytest.mark.parametrize("may", [False, True])
def test_partitions_of_a_topic_that_is_not_there_are_refused_as_if_it_were(scene: Scene, *, may: bool) -> None:
    if not may:
        scene.deny(TOPIC, Operation.DESCRIBE)
    answer = scene.client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="nowhere")]))
    due = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [each.error_code for each in answer.topics] == [due]
