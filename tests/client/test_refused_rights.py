"""What a user may not do ends what it was part of, and no more."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker import running_broker
from fencepost.broker.authorizer import Operation, Resource
from fencepost.client import Admin, Consumer, Producer, TopicPartition, TransactionAbortableError

AT = TopicPartition("t", 0)


class RefusesAGroup:
    """Whatever is asked of the group "secret" is refused."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return (resource, name) != (Resource.GROUP, "secret")


@pytest.mark.parametrize("level", [1, 2])
def test_positions_of_a_group_that_is_refused_end_the_transaction_and_not_the_producer(level: int) -> None:
    """The group is refused where its coordinator is looked up, before the transaction comes into it."""

    async def scenario(address: str) -> list[bytes | None]:
        async with Admin(address) as admin:
            await admin.create_topic("t", partitions=1)
            await admin.update_feature("transaction.version", level)
        async with Producer(address, transactional_id="id") as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"aborted")
            with pytest.raises(TransactionAbortableError, match=r"GROUP_AUTHORIZATION_FAILED.*then go on"):
                await writer.send_offsets_to_transaction({AT: 1}, "secret")
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"committed")
                await writer.send_offsets_to_transaction({AT: 1}, "open")
        async with Consumer("t", bootstrap_servers=address) as reader:
            return [record.value for record in await reader.poll(5000)]

    with running_broker(authorizer=RefusesAGroup()) as broker:
        assert asyncio.run(scenario(broker.bootstrap_servers)) == [b"committed"]
