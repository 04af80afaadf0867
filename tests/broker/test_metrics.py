"""What the node counts (KIP-890: VerificationFailureRate, VerificationTimeMs)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from wire import Client, batch, init, new_topic, produce, serving

from fencepost.protocol.errors import ErrorCode


def test_verifications_and_their_failures_are_counted() -> None:
    with serving() as broker:
        client = Client(broker)
        topic, pair = new_topic(client), init(client, "id")
        record = batch("x", pair=pair, sequence=0, transactional=True)
        answered = produce(client, topic, record, "id", version=11)
        assert answered.error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert (broker.metrics.verifications, broker.metrics.verification_failures) == (1, 1)
        assert produce(client, topic, record, "id", version=12).error_code == ErrorCode.NONE
        assert (broker.metrics.verifications, broker.metrics.verification_failures) == (2, 1)
        assert broker.metrics.verification_time_ms > 0
        assert broker.metrics.requests[0] == 2
        client.close()
