"""Those who must not get through: a zombie with an old producer epoch, and a producer that forgets its transaction."""

from __future__ import annotations

from fencepost.client import ClientError, Producer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import ProducerIdAndEpoch

FORGOTTEN_TIMEOUT_MS = 10_000


async def zombie(bootstrap: str, prefix: str, producer_id_and_epoch: ProducerIdAndEpoch) -> list[str]:
    """Write and commit as a driver that was replaced long ago; what it was told each time."""
    told = []
    cluster = Cluster(bootstrap, client_id="zombie")
    name = f"{prefix}flights"
    try:
        await cluster.refresh([])
        tv2 = cluster.transaction_version >= 2
        writer = SharedTransaction(cluster, Ticket(name, producer_id_and_epoch, tv2), delivery_timeout_ms=10_000)
        record = BatchBuilder()
        record.append(cluster.runtime.clock.now(), b"ZZ", b'{"id":-1,"carrier":"ZZ","batch":0}')
        try:
            await writer.write(TopicPartition(f"{prefix}departures", 0), record)
            await writer.finish()
            told.append("its write was TAKEN")
        except ClientError as error:
            told.append(f"write refused ({_code(error)})")
        finally:
            await writer.close()
        try:
            await TransactionalId(cluster, name).end(producer_id_and_epoch, True, tv2)
            told.append("its commit was TAKEN")
        except ClientError as error:
            told.append(f"commit refused ({_code(error)})")
    finally:
        await cluster.close()
    return told


def _code(error: Exception) -> str:
    words = [word.strip("(),.:") for word in str(error).split()]
    return next((word for word in words if word.isupper() and "_" in word), type(error).__name__)


async def forgetful(bootstrap: str, prefix: str) -> None:
    """Open a transaction in the middle of the output, and never end it."""
    producer = Producer(bootstrap, transactional_id=f"{prefix}forgetful", transaction_timeout_ms=FORGOTTEN_TIMEOUT_MS)
    await producer.init_transactions()
    await producer.begin_transaction()
    for partition in range(2):
        value = b'{"id":-2,"carrier":"ZZ","batch":0}'
        await (await producer.send(f"{prefix}departures", value, key=b"ZZ", partition=partition))
    await producer.abandon()
