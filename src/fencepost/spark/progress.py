"""The progress record: which micro-batch of an application was committed last, and where the sources were then.

It is written in the transaction of the micro-batch itself, to a compacted topic of one partition, so it is there if and
only if the batch is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.admin import Admin
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ConnectionLostError, UnreachableError
from fencepost.client.fetcher import EARLIEST, LATEST, fetch_partition, list_offsets
from fencepost.protocol.batch import headers
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Isolation, TopicPartition

TOPIC: Final = "fencepost.progress"
PARTITION: Final = TopicPartition(TOPIC, 0)
_FETCH_BYTES: Final = 4 * 1024 * 1024


class Progress(NamedTuple):
    """The last committed micro-batch of an application."""

    query_id: str
    batch_id: int
    source_offsets: list[Any]

    @classmethod
    def of(cls, query_id: str, batch_id: int, source_offsets: Sequence[Any]) -> Progress:
        """As it will be read from the topic."""
        return cls.decode(cls(query_id, batch_id, list(source_offsets)).encode())

    def encode(self) -> bytes:
        fields = {"query_id": self.query_id, "batch_id": self.batch_id, "source_offsets": self.source_offsets}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        fields = json.loads(data)
        return cls(fields["query_id"], fields["batch_id"], fields["source_offsets"])


async def ensure_topic(cluster: Cluster) -> None:
    """Make the topic if it is not there."""
    servers = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
    timeout, patience = cluster.request_timeout_ms, cluster.patience_ms
    async with Admin(servers, runtime=cluster.runtime, request_timeout_ms=timeout, max_block_ms=patience) as admin:
        # Only what is not in the newest segment is compacted, and every reader reads the whole log: the least there is.
        config = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024)}
        await admin.create_topic(TOPIC, partitions=1, config=config, exist_ok=True)


class Ledger:
    """Folds the topic into the last committed progress of one application, without stopping at open transactions.

    Whose transaction is still open is of no interest: others' hold nothing for this application, and its own is not
    committed.
    """

    def __init__(self, application_id: str) -> None:
        self._key = application_id.encode()
        self._pending: dict[int, bytes | None] = {}
        self.last: bytes | None = None

    def add(self, data: memoryview) -> int:
        """Take whole batches; the offset after them, -1 if there were none."""
        following = -1
        for at, header in headers(data):
            following = header.last_offset + 1
            if header.is_control:
                marker = read_control_record(data, at, header)
                if marker is not None and header.producer_id in self._pending:
                    value = self._pending.pop(header.producer_id)
                    self.last = value if marker.type == COMMIT else self.last
                continue
            for record in decode_batch(data, at, header):
                if record.key == self._key:
                    if header.is_transactional:
                        self._pending[header.producer_id] = record.value
                    else:
                        self.last = record.value
        return following


async def read_progress(cluster: Cluster, application_id: str) -> Progress | None:
    """The application's last committed micro-batch; None if there is none.

    Nothing is missing after InitProducerId on the application's id, which ends what an older driver left open; before
    it, an older driver's last commit may be.
    """
    deadline = cluster.deadline("reading the progress record")
    start = (await list_offsets(cluster, [PARTITION], EARLIEST, Isolation.READ_UNCOMMITTED))[PARTITION][0]
    end = (await list_offsets(cluster, [PARTITION], LATEST, Isolation.READ_UNCOMMITTED))[PARTITION][0]
    ledger, position = Ledger(application_id), start
    while position < end:
        try:
            leader = await cluster.leader(PARTITION, deadline)
            found = await fetch_partition(
                cluster, leader, PARTITION, position, Isolation.READ_UNCOMMITTED, max_bytes=_FETCH_BYTES
            )
        except (ConnectionLostError, UnreachableError) as lost:
            cluster.forget_topic(TOPIC)
            await deadline.pause(lost)
            continue
        error = ErrorCode(found.error_code)
        if error and not error.retriable:
            raise BrokerError(error, f"the progress record in {TOPIC} cannot be read")
        following = ledger.add(memoryview(found.records)) if found.records else -1
        if following < 0:
            cluster.forget_topic(TOPIC)
            await deadline.pause(error.name)
            continue
        position = following
    return None if ledger.last is None else Progress.decode(ledger.last)
