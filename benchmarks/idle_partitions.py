"""What a Fetch of many partitions costs that have nothing new: bytes on the wire, processor time of client and node.

python -m benchmarks.idle_partitions --partitions 1000
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.fencepost_node import fencepost_node
from benchmarks.measure import fresh_topic, report
from fencepost.client import Consumer, TopicPartition, connection
from fencepost.protocol.messages import FetchRequest

_WAIT_MS = 20


def _processor_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Noted:
    """Fetches that were sent, and the bytes of them and of all that came."""

    def __init__(self) -> None:
        self.requests = self.sent = self.received = 0
        module: Any = connection
        encode, decode = module.encode_request, module.decode_response

        def encoded(message: Any, *rest: Any) -> bytes:
            frame: bytes = encode(message, *rest)
            if isinstance(message, FetchRequest):
                self.requests, self.sent = self.requests + 1, self.sent + len(frame)
            return frame

        def decoded(kind: Any, frame: bytes, version: int) -> Any:
            self.received += len(frame) + 4
            return decode(kind, frame, version)

        module.encode_request, module.decode_response = encoded, decoded


async def idle(bootstrap: str, node: int, partitions: int, seconds: float) -> None:
    """Poll for so long, and report each figure per Fetch."""
    topic, noted = fresh_topic(bootstrap, partitions), _Noted()
    async with Consumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=_WAIT_MS) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        await consumer.poll(2000)
        before = noted.requests, noted.sent, noted.received
        client, server = time.process_time(), _processor_seconds(node)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await consumer.poll(1000)
        count = noted.requests - before[0]
        report(
            partitions=partitions,
            fetches=count,
            request_bytes=(noted.sent - before[1]) / count,
            answer_bytes=(noted.received - before[2]) / count,
            client_ms=1000 * (time.process_time() - client) / count,
            node_ms=1000 * (_processor_seconds(node) - server) / count,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=8)
    given = parser.parse_args()
    with fencepost_node("os") as (address, process_id, _):
        asyncio.run(idle(address, process_id, given.partitions, given.seconds))
