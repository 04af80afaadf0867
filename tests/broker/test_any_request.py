"""Whatever a well-formed request says, it is answered: no handler fails, the node goes on, and a restart knows it all.

Values come from a small pool in which names, ids and numbers of things that exist meet those of things that do not.
"""

from __future__ import annotations

import logging
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.broker.group_talk import alone, commit, find_group
from tests.broker.wire import SETTINGS, Client, batch, fetch, init, new_topic, on_the_loop, produce, values

from fencepost.broker import Broker, running_broker
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.layout import Field, fields_of
from fencepost.protocol.message import Message
from fencepost.protocol.messages import ApiVersionsRequest
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import LeaderEpoch, Milliseconds

ROUNDS = 12
PRODUCE, JOIN_GROUP, SYNC_GROUP = 0, 11, 14
#: Asked for by name they are answered, or wait, by what others do.
WAITING = (JOIN_GROUP, SYNC_GROUP)
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Pool:
    """Draws values."""

    def __init__(self, client: Client, generator: random.Random) -> None:
        self.random = generator
        topic = new_topic(client, 2)
        known = client.broker.node.topics.by_name[topic]
        find_group(client)
        member = alone(client)
        pair = init(client, "t")
        commit(client, topic, 1, who=member)
        produce(client, topic, batch("kept"))
        internal = ["__consumer_offsets", "__transaction_state"]
        settings = ["cleanup.policy", "compact", "retention.ms", "segment.bytes", "transaction.version"]
        self.strings = ["", topic, topic, "t", "g", "g", member.member_id, "nowhere", "ü" * 40, "x" * 300]
        self.strings += ["range", "*", "(", *internal, *settings]
        self.numbers = [0, 0, 0, 1, 1, 2, 3, -1, -1, -2, -3, -4, 5, 7, 50]
        self.numbers += [pair.producer_id, pair.producer_epoch, member.generation]
        self.uuids = [uuid.UUID(int=0), uuid.UUID(int=9), known.topic_id, known.topic_id]
        data = batch("x", "y", pair=pair, sequence=0, transactional=True)
        plain = batch("z")
        marker = control_batch(*pair, LeaderEpoch(0), True, Milliseconds(0))
        self.batches = [b"", plain, plain, data, data, data[:70], plain + data, bytes(61), marker]

    def value(self, field: Field, version: int, depth: int) -> Any:
        choose = self.random
        if field.nullable and choose.random() < 0.2:
            return None
        if field.kind == "struct":
            return self.message(field.of, version, depth)
        if field.kind == "array":
            return [self.value(field.of, version, depth + 1) for _ in range(choose.choice((0, 1, 1, 2)))]
        if field.kind == "string":
            return choose.choice(self.strings)
        if field.kind == "boolean":
            return choose.random() < 0.5
        if field.kind == "uuid":
            return choose.choice(self.uuids)
        if field.kind in ("binary", "batches"):
            return choose.choice(self.batches)
        if field.kind == "float64":
            return choose.random()
        if field.name in ("max_wait_ms", "timeout_ms"):
            return choose.choice((-1, 0, 5))
        bits = BITS[field.kind]
        if choose.random() < 0.1:
            return choose.choice((2**bits - 1, -(2**bits), 2**bits - 2))
        return max(min(choose.choice(self.numbers), 2**bits - 1), -(2**bits))

    def message(self, of: type[Message], version: int, depth: int = 0) -> Any:
        fields = [field for field in fields_of(of) if field.wire.in_version(version) and field.wire.tag is None]
        return of(**{field.name: self.value(field, version, depth) for field in fields})


def known(broker: Broker) -> dict[str, Any]:
    """What a restart must not forget."""
    groups, transactions = broker.node.groups, broker.node.transactions
    return {
        "topics": {name: (topic.topic_id, len(topic.partitions)) for name, topic in broker.node.topics.by_name.items()},
        "offsets": {
            group.group_id: offsets
            for group in finish(groups.groups_in_steps(Pace()))
            if (offsets := groups.fetch_offsets(group.group_id, None, True)) or group.protocol_type
        },
        "transactions": {each.transactional_id: each for each in transactions.list().transactions},
        "ends": {(each.topic, each.index): each.log_end_offset for each in broker.node.storage.partitions()},
    }


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_asked_is_answered(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    generator = random.Random(seed)
    asked = ROUNDS * [
        (key, version) for key, served in sorted(SERVED.items()) for version in range(served.first, served.last + 1)
    ]
    generator.shuffle(asked)
    settings = {**SETTINGS, "transaction.two.phase.commit.enable": "true"}
    with running_broker(data=tmp_path, settings=settings) as broker, caplog.at_level(logging.ERROR):
        client = Client(broker)
        pool = Pool(client, generator)
        for key, version in asked:
            request = pool.message(SERVED[key].request, version)
            if key in WAITING or (key == PRODUCE and request.acks == 0):
                other = Client(broker)
                other.send(request, version=version)
                other.close()
            else:
                try:
                    client.ask(request, version)
                except EOFError:
                    raise AssertionError(f"no answer to v{version} of {request}") from None
        hello = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        assert client.ask(hello).error_code == ErrorCode.NONE
        topic = new_topic(client)
        produce(client, topic, batch("fine"))
        assert values(fetch(client, topic)) == ["fine"]
        client.close()
        before = on_the_loop(broker, lambda: known(broker))
    with running_broker(data=tmp_path, settings=settings) as broker, caplog.at_level(logging.ERROR):
        assert on_the_loop(broker, lambda: known(broker)) == before
    failed = [record for record in caplog.records if record.exc_info]
    assert not failed, [(record.getMessage(), record.exc_info) for record in failed]
