"""Options have the names of Spark's own Kafka source; what cannot be used is named."""

from __future__ import annotations

import pytest

from fencepost.protocol.types import Isolation
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
    ],
)
def test_what_cannot_be_used_is_named(more: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        parse(LEAST | more, streaming=True)
