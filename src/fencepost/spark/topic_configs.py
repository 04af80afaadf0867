"""Asks for the value of one setting of several topics: of those that exist and that the user may describe."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.client.cluster import Cluster, Deadline
from fencepost.protocol.messages import DescribeConfigsRequest
from fencepost.protocol.messages.describe_configs import TOPIC_RESOURCE, DescribeConfigsResource


async def topic_configs(cluster: Cluster, topics: Sequence[str], name: str, deadline: Deadline) -> dict[str, str]:
    """Topic -> its value of the setting `name`; topics that do not exist or may not be described are left out."""
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name])
        for topic in topics
    ]
    answer = await cluster.call_controller(DescribeConfigsRequest(resources=resources), deadline=deadline)
    return {
        found.resource_name: entry.value
        for found in answer.results
        for entry in found.configs
        if entry.name == name and entry.value is not None
    }
