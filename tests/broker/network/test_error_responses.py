"""A request whose handler fails is answered in its API's shape, whatever the API and version."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.protocol.random_messages import random_message

from fencepost.broker.network.error_responses import error_response
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.codec import decode_response, encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.message import Message
from fencepost.protocol.messages import FetchRequest, MetadataRequest, ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData

EVERY = [(key, version) for key, of in sorted(SERVED.items()) for version in range(of.first, of.last + 1)]
ERROR = ErrorCode.UNKNOWN_SERVER_ERROR


def told(message: Any, version: int) -> list[int]:
    """Every error in a response, at any depth."""
    found = []
    for name in message.__slots__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code") and message.__schema__.fields[name].in_version(version):
            found.append(value)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Message):
                found += told(item, version)
    return found


def is_full(asked: Any) -> bool:
    """Whether every list of a request has items, at any depth."""
    values = [getattr(asked, name) for name in asked.__slots__]
    items = [item for value in values if isinstance(value, list) for item in value if isinstance(item, Message)]
    return [] not in values and None not in values and all(map(is_full, items))


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_whatever_fails_can_be_answered(key: int, version: int) -> None:
    chance = Random(f"{key} {version}")
    answered = 0
    for _ in range(50):
        request = random_message(SERVED[key].request, version, chance)
        if hasattr(request, "acks"):
            request.acks = -1
        response = error_response(request, version, ERROR)
        if response is None:
            assert not is_full(request)
            continue
        _, again = decode_response(SERVED[key].response, encode_response(response, version, 1)[4:], version)
        errors = told(again, version)
        assert errors and all(error == ERROR for error in errors)
        answered += 1
    assert answered


def test_what_was_asked_for_is_named_again() -> None:
    chance = Random(7)
    for version in range(3, 14):
        request = random_message(ProduceRequest, version, chance)
        request.acks = -1
        response = error_response(request, version, ERROR)
        if response is None:
            continue
        for asked, answered in zip(request.topic_data, response.responses, strict=True):
            assert (asked.name, asked.topic_id) == (answered.name, answered.topic_id)
            indexes = [each.index for each in asked.partition_data]
            assert [each.index for each in answered.partition_responses] == indexes
            assert all(each.base_offset == -1 for each in answered.partition_responses)


def test_where_one_error_says_it_all_nothing_else_is_said() -> None:
    request = random_message(FetchRequest, 12, Random(3))
    response = error_response(request, 12, ERROR)
    assert response is not None
    assert (response.error_code, response.responses) == (ERROR, [])


def test_an_answer_that_could_not_tell_is_none() -> None:
    """An empty list of topics would be a lie."""
    assert error_response(MetadataRequest(topics=None), 12, ERROR) is None
    assert error_response(MetadataRequest(topics=None), 13, ERROR) is not None
    assert error_response(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9, ERROR) is None


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_produce_that_wants_no_answer_gets_none_where_it_fails_either(acks: int) -> None:
    """Its client would take that for the answer to its next request."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"")])],
    )
    assert (error_response(request, 9, ERROR) is None) is (acks == 0)
