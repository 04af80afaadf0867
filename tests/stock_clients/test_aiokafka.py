"""aiokafka works on Fencepost unchanged."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced


async def read_all(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        values: list[bytes] = []
        while len(values) < count:
            found = await consumer.getmany(timeout_ms=5000)
            assert found, f"only {len(values)} of {count} records came"
            values += [record.value for records in found.values() for record in records]
        more = await consumer.getmany(timeout_ms=300)
        return values + [record.value for records in more.values() for record in records]


def test_commits_are_shown_and_aborts_are_not(servers: str, name: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
            for number in range(20):
                await producer.begin_transaction()
                await producer.send_and_wait(name, b"%d" % number)
                if number % 3:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        expected = sorted(b"%d" % number for number in range(20) if number % 3)
        assert sorted(await read_all(servers, name, len(expected))) == expected

    asyncio.run(main())


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(servers: str, name: str) -> None:
    async def main() -> None:
        first = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
        await first.start()
        await first.begin_transaction()
        await first.send_and_wait(name, b"zombie", partition=0)
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as second:
            async with second.transaction():
                await second.send(name, b"successor", partition=0)
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
        assert await read_all(servers, name, 1) == [b"successor"]
        try:
            await first.stop()
        except ProducerFenced:
            pass

    asyncio.run(main())


@pytest.mark.promise("2014.offsets")
def test_offsets_move_with_their_transaction(servers: str, name: str) -> None:
    async def main() -> None:
        at = TopicPartition(name, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=name, enable_auto_commit=False)
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer, consumer:
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"in", partition=0)
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({at: 5}, name)
            await producer.abort_transaction()
            assert await consumer.committed(at) is None
            async with producer.transaction():
                await producer.send_offsets_to_transaction({at: 7}, name)
            assert await consumer.committed(at) == 7

    asyncio.run(main())


def test_two_members_share_the_partitions(servers: str, name: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(name, b"x")
        members = [
            AIOKafkaConsumer(name, bootstrap_servers=servers, group_id=name, auto_offset_reset="earliest")
            for _ in range(2)
        ]
        async with members[0], members[1]:
            async with asyncio.timeout(30):
                while sorted(len(member.assignment()) for member in members) != [1, 1]:
                    await asyncio.gather(*(member.getmany(timeout_ms=100) for member in members))

    asyncio.run(main())


def test_after_a_time_out_it_is_told_that_it_is_fenced(servers: str, name: str) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=1000)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"late", partition=0)
        reader = AIOKafkaConsumer(bootstrap_servers=servers)
        async with reader, asyncio.timeout(30):
            ends: dict[TopicPartition, int] = {}
            while ends.get(TopicPartition(name, 0), 0) < 2:  # until the marker of the time-out is there
                ends = await reader.end_offsets([TopicPartition(name, 0)])
                await asyncio.sleep(0.1)
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        successor = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
        async with successor, successor.transaction():
            await successor.send(name, b"again", partition=0)
        assert await read_all(servers, name, 1) == [b"again"]
        try:
            await producer.stop()
        except ProducerFenced:
            pass

    asyncio.run(main())
