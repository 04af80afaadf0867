"""What Fencepost's own clients write, read and administer is the same on an Apache Kafka as on Fencepost."""

from __future__ import annotations

import pytest
from tests.compare.client.playing import Node, play, reading, take, until

from fencepost.client.errors import BrokerError
from fencepost.client.records import ConsumerRecord
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode

pytestmark = pytest.mark.compare

#: key, value, headers
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", []),
    (None, b"v" * 100_000, [("name", b"value"), ("name", None), ("", b"")]),
    (b"", b"", []),
    (b"gone", None, []),
    *((b"%d" % number, b"some value " * 20, []) for number in range(200)),
]


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
def test_every_codec_is_written_and_read(node: Node, codec: Compression) -> None:
    async def scenario(node: Node) -> None:
        async with node.writer(compression=codec.name.lower(), linger_ms=20) as writer:
            for number, (key, value, headers) in enumerate(RECORDS):
                given = {"key": key, "headers": headers, "timestamp": 1_700_000_000_000 + number}
                last = await writer.send(node.topic, value, partition=0, **given)  # type: ignore[arg-type]
            assert (await last).offset == len(RECORDS) - 1
        async with node.reader() as reader:
            found: list[ConsumerRecord] = []
            while len(found) < len(RECORDS):
                found += await reader.poll(500)
        assert [(one.key, one.value, list(one.headers)) for one in found] == RECORDS
        assert [one.timestamp - 1_700_000_000_000 for one in found] == list(range(len(RECORDS)))

    play(scenario, node)


def test_a_producer_goes_on_in_a_topic_made_anew(node: Node) -> None:
    """Its sequence goes on where nobody knows how it began."""

    async def scenario(node: Node) -> None:
        async with node.writer() as writer, node.admin() as admin:
            for _ in range(2):
                sent = [await writer.send(node.topic, b"%d" % n, partition=0) for n in range(3)]
                assert [(await one).offset for one in sent] == [0, 1, 2]
                await admin.delete_topic(node.topic)
                await admin.create_topic(node.topic, partitions=2)

    play(scenario, node)


@pytest.mark.usefixtures("level")
def test_a_transactional_producer_goes_on_in_a_topic_made_anew(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with node.writer(transactional_id=f"{node.topic}-id") as writer, node.admin() as admin:
            await writer.init_transactions()
            for number in range(2):
                async with writer.transaction():
                    await writer.send(node.topic, b"in %d" % number, partition=0)
                async with node.reader(group_id=None) as reader:
                    assert await take(reader, 1) == [b"in %d" % number]
                await admin.delete_topic(node.topic)
                await admin.create_topic(node.topic, partitions=2)

    play(scenario, node)


def test_transactions_are_listed_and_described(node: Node, level: int) -> None:
    async def scenario(node: Node) -> None:
        name = f"{node.topic}-id"
        async with node.writer(transactional_id=name, transaction_timeout_ms=50_000) as writer, node.admin() as admin:
            assert await admin.describe_transaction(name) is None
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send(node.topic, b"v", partition=1))
            found = await admin.describe_transaction(name)
            assert found is not None
            assert (found.state, found.timeout_ms, found.partitions) == ("Ongoing", 50_000, [node.at(1)])
            epoch = found.producer_epoch
            assert (await admin.list_transactions(["Ongoing"]))[name] == "Ongoing"
            await writer.commit_transaction()
            states: dict[str, str] = {}
            while states.get(name) != "CompleteCommit":
                states = await admin.list_transactions()
            found = await admin.describe_transaction(name)
            assert found is not None
            assert found.producer_epoch == epoch + (1 if level == 2 else 0)

    play(scenario, node)


def test_topics_are_made_grown_and_deleted(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with node.admin() as admin:
            assert node.topic in await admin.topics()
            with pytest.raises(BrokerError) as refused:
                await admin.create_topic(node.topic)
            assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            await admin.create_topic(node.topic, exist_ok=True)
            await admin.create_partitions(node.topic, 4)
            async with node.reader() as reader, reading(reader):
                await until(lambda: len(reader.assignment()) == 4)
            with pytest.raises(BrokerError) as refused:
                await admin.create_partitions(node.topic, 3)
            assert refused.value.code == ErrorCode.INVALID_PARTITIONS
            await admin.delete_topic(node.topic)
            with pytest.raises(BrokerError) as refused:
                await admin.delete_topic(node.topic)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario, node)
