"""Which writes of a request are refused, before anything is appended (facts §6.3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker.leader.produce_plan import Write, check_topic, failure, refuse_repeated, tell_timed_out
from fencepost.log.partition import Refused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import TopicPartition


def write_to(partition: int, pair: tuple[int, int] | None = None) -> Write:
    """Of a batch of this producer in a transaction, if one is given."""
    write = Write(TopicPartition("t", partition), PartitionProduceData(index=partition, records=b""))
    if pair is not None:
        write.header = cast(
            Any,
            SimpleNamespace(
                is_transactional=True, has_producer_id=pair[0] >= 0, producer_id=pair[0], producer_epoch=pair[1]
            ),
        )
    return write


def request(acks: int = -1, transactional_id: str | None = "id") -> ProduceRequest:
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=[])


def error_of(write: Write) -> ErrorCode | None:
    return write.outcome.error if isinstance(write.outcome, Refused) else None


@pytest.mark.parametrize("acks", [-(2**15), -2, -1, 0, 1, 2, 2**15 - 1])
def test_a_writer_waits_for_nobody_one_or_all(acks: int) -> None:
    write = write_to(0)
    check_topic(write, request(acks))
    assert error_of(write) == (None if acks in (-1, 0, 1) else ErrorCode.INVALID_REQUIRED_ACKS)


@pytest.mark.parametrize(
    ("pairs", "refused"),
    [
        ([(7, 0), (7, 0)], False),
        ([(7, 0), (7, 1)], True),
        ([(7, 0), (8, 0)], True),
        ([(7, 0), (-1, -1)], False),
    ],
)
def test_the_transactional_batches_of_a_request_have_one_producer_id_and_epoch(
    pairs: list[tuple[int, int]], refused: bool
) -> None:
    context: Any = SimpleNamespace(may=lambda *_: True)
    writes = [write_to(n, pair) for n, pair in enumerate(pairs)]
    found = failure(request(), writes, writes, context)
    assert (found is not None and found.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING) is refused


@pytest.mark.parametrize("places", [[0], [0, 1], [0, 0], [0, 1, 0], [1, 0, 0, 0]])
def test_a_partition_that_is_named_more_than_once_is_refused_each_time(places: list[int]) -> None:
    writes = [write_to(partition) for partition in places]
    finish(refuse_repeated(writes, Pace()))
    assert [error_of(write) for write in writes] == [
        ErrorCode.INVALID_REQUEST if places.count(partition) > 1 else None for partition in places
    ]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE])
@pytest.mark.parametrize("timed_out", [True, False])
@pytest.mark.parametrize("transactional_id", ["id", None])
def test_only_a_stale_epoch_of_a_transaction_that_was_open_for_too_long_is_told_as_such(
    error: ErrorCode, timed_out: bool, transactional_id: str | None
) -> None:
    write = write_to(0, (7, 3))
    write.refuse(error)
    coordinator: Any = SimpleNamespace(timed_out=lambda *of: timed_out and of == ("id", 7, 3))
    tell_timed_out(request(transactional_id=transactional_id), [write], coordinator)
    told = error is ErrorCode.INVALID_PRODUCER_EPOCH and timed_out and transactional_id is not None
    assert error_of(write) == (ErrorCode.UNKNOWN_PRODUCER_ID if told else error)
