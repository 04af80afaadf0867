"""Why the nodes may differ after a restart: what is listed for the coordinators, and what a snapshot keeps."""

from __future__ import annotations

from tests.compare.coordinator.explanations import EXPLANATIONS as OF_COORDINATORS
from tests.compare.nodes.twins import Asked, Explanation, Twins


def remembers_five_batches(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """A repeated batch: Apache Kafka's snapshots keep the last one of a producer, ours five, as in memory."""
    if asked.name != "Produce":
        return False
    refused = "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(asked.kafka)
    return refused and asked.ours["responses"][0]["partition_responses"][0]["error_code"] == 0


EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {**OF_COORDINATORS, remembers_five_batches: (0, 1, 2)}
