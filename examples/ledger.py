"""Payments into a ledger: each payment becomes one entry, exactly once, however often this is killed and started again.

    python examples/ledger.py 127.0.0.1:9092 ledger-1

Start as many as you like, each with a name of its own that it keeps: they share the partitions of `payments` among
them.  What cannot be read goes to `payments-refused`, in the same transaction.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

from fencepost.client import Consumer, ExactlyOnce, Producer
from fencepost.client.records import ConsumerRecord


def entry(payment: ConsumerRecord) -> bytes:
    """What the ledger says of a payment: who, how much, and where that came from.  Raises ValueError if it is none."""
    amount = int(payment.value or b"")
    origin = f"{payment.topic}-{payment.partition}@{payment.offset}"
    return json.dumps({"account": (payment.key or b"").decode(), "amount": amount, "from": origin}).encode()


async def keep_ledger(servers: str, name: str, prefix: str = "", **consumer_options: Any) -> None:
    """Until SIGTERM, after the transaction that is open.  `prefix` comes before the names of all topics."""
    async with (
        Consumer(
            f"{prefix}payments",
            bootstrap_servers=servers,
            group_id=f"{prefix}ledger",
            auto_commit=False,
            **consumer_options,
        ) as consumer,
        Producer(servers, transactional_id=f"{prefix}{name}", transaction_timeout_ms=10_000) as producer,
    ):
        loop = ExactlyOnce(consumer, producer)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, loop.stop)
        async for transaction in loop:
            async with transaction:
                for payment in transaction.records:
                    try:
                        await transaction.send(f"{prefix}ledger", entry(payment), key=payment.key)
                    except ValueError:
                        await transaction.send(f"{prefix}payments-refused", payment.value, key=payment.key)


if __name__ == "__main__":
    asyncio.run(keep_ledger(sys.argv[1], sys.argv[2]))
