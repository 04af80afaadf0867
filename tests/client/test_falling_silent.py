"""Every call of every client ends in its time whichever of its requests has no answer, and says what it waited for."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.client.test_producer import simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import Admin, ConfigChange, Consumer, NewTopic, OffsetSpec, Producer, TopicPartition
from fencepost.client.errors import ClientError
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
PATIENCE_MS = 1000
SAYS = re.compile(r"\w{4}.* did not succeed within 1000 ms; last: \w+|delivery_timeout_ms")


class Case(NamedTuple):
    """A call; `before`: what is done first, while everything is answered."""

    call: Callable[[Any], Awaitable[Any]]
    before: Callable[[Any], Awaitable[Any]] | None = None
    may_succeed: bool = False
    """Whether it ends well where nobody answers, too."""
    patience_ms: int = PATIENCE_MS


async def _sent(writer: Producer) -> None:
    await writer.init_transactions()
    await writer.begin_transaction()
    await writer.send("t", b"", partition=0)


async def _open(writer: Producer) -> None:
    await _sent(writer)
    await writer.flush()


async def _assigned(reader: Consumer) -> None:
    reader.assign([AT])
    await reader.poll(100)


PRODUCER: dict[str, Case] = {
    "init_transactions": Case(lambda writer: writer.init_transactions()),
    "send": Case(lambda writer: writer.send("t", b"", partition=0)),
    "send_many": Case(lambda writer: writer.send_many("t", [b""])),
    "send_arrow": Case(lambda writer: writer.send_arrow("t", pa.table({"value": [b""], "partition": [0]}))),
    # First it may block, then the record has its own time.
    "send_and_wait": Case(lambda writer: writer.send_and_wait("t", b"", partition=0), patience_ms=2 * PATIENCE_MS),
    "send_offsets_to_transaction": Case(lambda writer: writer.send_offsets_to_transaction({AT: 1}, "g"), _open),
    "prepare_transaction": Case(lambda writer: writer.prepare_transaction(), _sent),
    "complete_transaction": Case(lambda writer: writer.complete_transaction("0:0")),
    "commit_transaction": Case(lambda writer: writer.commit_transaction(), _open),
    "abort_transaction": Case(lambda writer: writer.abort_transaction(), _open),
    "partitions_for": Case(lambda writer: writer.partitions_for("t"), lambda writer: writer.start()),
    "flush": Case(lambda writer: writer.flush(PATIENCE_MS), _open, may_succeed=True),
    "close": Case(lambda writer: writer.close(PATIENCE_MS), _open, may_succeed=True),
}
CONSUMER: dict[str, Case] = {
    "beginning_offsets": Case(lambda reader: reader.beginning_offsets([AT])),
    "end_offsets": Case(lambda reader: reader.end_offsets([AT])),
    "offsets_for_times": Case(lambda reader: reader.offsets_for_times({AT: 0})),
    "commit": Case(lambda reader: reader.commit({AT: 1})),
    "committed": Case(lambda reader: reader.committed([AT])),
    "lag": Case(lambda reader: reader.lag(), _assigned),
    "seek_to_beginning": Case(lambda reader: reader.seek_to_beginning([AT]), _assigned),
    "seek_to_end": Case(lambda reader: reader.seek_to_end([AT]), _assigned),
    "topics": Case(lambda reader: reader.topics()),
    "partitions_for_topic": Case(lambda reader: reader.partitions_for_topic("t")),
    "poll": Case(lambda reader: reader.poll(PATIENCE_MS), may_succeed=True),
    "poll_batch": Case(lambda reader: reader.poll_batch(PATIENCE_MS), may_succeed=True),
    "unsubscribe": Case(lambda reader: reader.unsubscribe(), lambda reader: reader.poll(100), may_succeed=True),
    "close": Case(lambda reader: reader.close(PATIENCE_MS), lambda reader: reader.poll(100), may_succeed=True),
}
ADMIN: dict[str, Case] = {
    "abort_transaction": Case(lambda admin: admin.abort_transaction(AT, 0)),
    "alter_broker_config": Case(lambda admin: admin.alter_broker_config(0, ConfigChange({"log.retention.ms": "1000"}))),
    "alter_group_offsets": Case(lambda admin: admin.alter_group_offsets("g", {AT: 1})),
    "alter_topic_config": Case(lambda admin: admin.alter_topic_config("t", ConfigChange({"retention.ms": "1000"}))),
    "create_partitions": Case(lambda admin: admin.create_partitions("t", 3)),
    "create_topic": Case(lambda admin: admin.create_topic("new")),
    "create_topics": Case(lambda admin: admin.create_topics([NewTopic("new")])),
    "delete_group_offsets": Case(lambda admin: admin.delete_group_offsets("g", [AT])),
    "delete_groups": Case(lambda admin: admin.delete_groups(["g"])),
    "delete_records": Case(lambda admin: admin.delete_records({AT: -1})),
    "delete_topic": Case(lambda admin: admin.delete_topic("t")),
    "delete_topics": Case(lambda admin: admin.delete_topics(["t"])),
    "describe_broker_configs": Case(lambda admin: admin.describe_broker_configs([0])),
    "describe_cluster": Case(lambda admin: admin.describe_cluster()),
    "describe_features": Case(lambda admin: admin.describe_features()),
    "describe_groups": Case(lambda admin: admin.describe_groups(["g"])),
    "describe_log_dirs": Case(lambda admin: admin.describe_log_dirs()),
    "describe_producers": Case(lambda admin: admin.describe_producers([AT])),
    "describe_topic_configs": Case(lambda admin: admin.describe_topic_configs(["t"])),
    "describe_topics": Case(lambda admin: admin.describe_topics()),
    "describe_transaction": Case(lambda admin: admin.describe_transaction("id")),
    "describe_transactions": Case(lambda admin: admin.describe_transactions(["id"])),
    "find_hanging_transactions": Case(lambda admin: admin.find_hanging_transactions()),
    "list_group_offsets": Case(lambda admin: admin.list_group_offsets("g")),
    "list_groups": Case(lambda admin: admin.list_groups()),
    "list_offsets": Case(lambda admin: admin.list_offsets({AT: OffsetSpec.LATEST})),
    "list_transactions": Case(lambda admin: admin.list_transactions()),
    "partitions": Case(lambda admin: admin.partitions("t")),
    "topics": Case(lambda admin: admin.topics()),
    "update_feature": Case(lambda admin: admin.update_feature("transaction.version", 1)),
    "close": Case(lambda admin: admin.close(PATIENCE_MS), lambda admin: admin.topics(), may_succeed=True),
}
CASES = {Producer: PRODUCER, Consumer: CONSUMER, Admin: ADMIN}
ASK_NOBODY = {
    Producer: {"abandon", "begin_transaction", "start"},
    Consumer: {"batches"},  # for ever, like iterating
    Admin: set[str](),
}


def made(kind: type[Any], call: str, world: World) -> Any:
    runtime = world.runtime("client")
    if kind is Producer:
        name = None if call.startswith("send") and call != "send_offsets_to_transaction" else "id"
        short = {"max_block_ms": PATIENCE_MS, "delivery_timeout_ms": PATIENCE_MS, "request_timeout_ms": PATIENCE_MS}
        return Producer(ADDRESS, runtime=runtime, transactional_id=name, **short)  # type: ignore[arg-type]
    if kind is Consumer:
        topics = ("t",) if call in ("poll", "poll_batch", "unsubscribe", "close") else ()
        return Consumer(*topics, bootstrap_servers=ADDRESS, runtime=runtime, group_id="g", max_block_ms=PATIENCE_MS)
    return Admin(ADDRESS, runtime=runtime, max_block_ms=PATIENCE_MS)


class Broker:
    """Answers so many requests, and no more."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        """None: all."""
        self.heard: list[str] = []
        for key, served in list(SERVED.items()):
            patch.setitem(SERVED, key, replace(served, handler=self._instead_of(served.handler)))

    def _instead_of(self, handler: Any) -> Any:
        def handle(request: Any, context: Any, node: Any) -> Any:
            if self.left is None:
                return handler(request, context, node)
            self.heard.append(type(request).__name__)
            if len(self.heard) > self.left:
                return asyncio.Event().wait()
            return handler(request, context, node)

        return handle


def test_no_call_is_left_out() -> None:
    for kind, cases in CASES.items():
        calls = {
            name
            for name, found in inspect.getmembers(kind)
            if not name.startswith("_") and (inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found))
        }
        assert calls == cases.keys() | ASK_NOBODY[kind]


@pytest.mark.parametrize(("kind", "call"), [(kind, call) for kind, cases in CASES.items() for call in cases])
def test_a_call_ends_in_its_time_whichever_request_is_not_answered(kind: type[Any], call: str) -> None:
    case = CASES[kind][call]
    answered = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            broker = Broker(patch)

            async def scenario(world: World, broker: Broker = broker, answered: int = answered) -> None:
                client = made(kind, call, world)
                if case.before is not None:
                    await case.before(client)
                broker.left = answered
                begun, error = world.loop.time(), None
                try:
                    await case.call(client)
                except ClientError as raised:
                    error = raised
                took = world.loop.time() - begun
                waited_for = broker.heard[answered:]
                assert took <= case.patience_ms / 1000 + 0.001, f"{answered} requests were answered, not {waited_for}"
                if waited_for and not case.may_succeed:
                    assert error is not None, f"nobody has answered {waited_for}"
                    assert SAYS.search(str(error)), error
                broker.left = None
                close = getattr(client, "abandon", None) or client.close
                await close()

            simulate(scenario)
        if len(broker.heard) <= answered:
            return
        answered += 1
