"""Options have the names of Spark's own Kafka source; what cannot be used is named."""

from __future__ import annotations

import pytest

from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.options import BadOption, parse

LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "a, b"}


def test_defaults_are_those_of_a_careful_reader() -> None:
    stream, batch = parse(LEAST, streaming=True), parse(LEAST, streaming=False)
    assert stream.isolation is Isolation.READ_COMMITTED
    assert list(stream.topics) == ["a", "b"]
    assert stream.fail_on_data_loss
    assert (stream.start.otherwise, batch.start.otherwise) == (-1, -2)


def test_names_are_case_insensitive() -> None:
    assert parse({"KAFKA.BOOTSTRAP.SERVERS": "h:1", "Subscribe": "a"}, streaming=True).bootstrap_servers == "h:1"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"subscribePattern": "x"}, "exactly one"),
        ({"startingOffset": "earliest"}, "startingoffset"),
        ({"startingOffsets": "soon"}, "startingOffsets=soon"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger=-1"),
        ({"kafka.isolation.level": "serializable"}, "read_committed"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0: it must be 1 or more"),
        ({"minPartitions": "0"}, "minPartitions=0: it must be 1 or more"),
        ({"endingOffsets": "latest"}, "endingOffsets is for a batch"),
        ({"endingTimestamp": "7"}, "endingTimestamp is for a batch"),
        ({"startingOffsets": '{"a": {"zero": 1}}'}, "startingOffsets="),
        ({"startingOffsets": "[]"}, "startingOffsets="),
        ({"startingOffsets": "{}"}, "startingOffsets="),
        ({"startingOffsets": '{"a": [0]}'}, "startingOffsets="),
    ],
)
def test_what_cannot_be_used_is_named(more: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        parse(LEAST | more, streaming=True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a": {"0": 1, "1": -1}}', None),
        ('{"a": {"0": 1}}', "does not name a-1"),
        ('{"a": {"0": 1, "1": 0, "2": 0}}', "names a-2, which is not read"),
        ('{"b": {"0": 1}, "a": {"0": 1, "1": 0}}', "names b-0, which is not read"),
        ('{"a": {"0": 1, "1": -3}}', "a-1 at -3"),
        ('{"a": {"0": 1}, "@cluster": "ours"}', None),
    ],
)
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_name_every_partition_and_no_other(text: str, named: str | None, option: str) -> None:
    """But where a committed batch ended: the others came later."""
    options = parse(LEAST | {option: text}, streaming=False)
    bound = options.start if option == "startingOffsets" else options.end
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1)]
    if named is None:
        bound.check(partitions)
    else:
        with pytest.raises(BadOption, match=named):
            bound.check(partitions)


def test_a_batch_may_end_anywhere() -> None:
    assert parse(LEAST | {"endingTimestamp": "7"}, streaming=False).end.timestamp == 7
