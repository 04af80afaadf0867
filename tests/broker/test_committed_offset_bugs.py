"""Bugs of transactional offsets (facts §13.4) that show only over the wire."""

from __future__ import annotations

import pytest
from tests.broker.group_talk import alone, commit, committed_offset, find_group, txn_commit
from tests.broker.wire import Client, clients, end, init, new_topic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnRequest

client = clients()


@pytest.mark.parametrize("version", [1, 4, 5])
def test_kafka_17507_offsets_are_there_when_the_commit_is_answered(client: Client, version: int) -> None:
    """Also for those who do not ask for stable ones: aiokafka does not."""
    find_group(client)
    topic = new_topic(client)
    for number in range(20):
        pair = init(client, "t")
        asked = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id="g"
        )
        assert client.ask(asked, 3).error_code == ErrorCode.NONE
        assert txn_commit(client, "t", pair, topic, number, version=3) == [ErrorCode.NONE]
        assert end(client, "t", pair, version=version).error_code == ErrorCode.NONE
        assert (
            committed_offset(client, topic) == committed_offset(client, topic, stable=True) == (number, ErrorCode.NONE)
        )


@pytest.mark.parametrize("version", range(3, 7))
def test_kafka_18060_a_commit_without_a_member_id_is_taken_for_a_group_with_members(
    client: Client, version: int
) -> None:
    who = alone(client)
    topic, pair = new_topic(client), init(client, "t")
    if version < 5:
        asked = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id="g"
        )
        assert client.ask(asked, 3).error_code == ErrorCode.NONE
    assert txn_commit(client, "t", pair, topic, 7, version=version) == [ErrorCode.NONE]
    assert end(client, "t", pair).error_code == ErrorCode.NONE
    assert committed_offset(client, topic) == (7, ErrorCode.NONE)
    assert commit(client, topic, 8) == [ErrorCode.UNKNOWN_MEMBER_ID], "a plain commit needs one"
    assert commit(client, topic, 9, who=who) == [ErrorCode.NONE]
