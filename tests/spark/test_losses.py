"""What is said of records that are gone is meant for who has a pipeline, not a consumer."""

from __future__ import annotations

import pickle

import pytest

from fencepost.client.errors import BrokerError, FatalError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition
from fencepost.spark import losses
from fencepost.spark.positions import Positions

AT = TopicPartition("in", 0)
OPTION = 'Set .option("failOnDataLoss", "false") to go on without them'


def test_a_topic_that_the_pattern_does_not_name_any_more_is_not_missed() -> None:
    """Of a query that is started again with a narrower one."""
    known = Positions({TopicPartition(name, 0): 5 for name in ("some-1", "some-1-old", "all-some-1")})
    assert losses.gone(known, Positions({}), "some-.") == ["some-1"]


def test_once_its_loss_is_accepted_the_position_is_one_in_the_topic_that_was_made_anew() -> None:
    """Else it would be lost again, and read again from its beginning, at every trigger."""
    before = Positions({AT: 5, TopicPartition("kept", 0): 7}, topic_ids={"in": "old", "kept": "same"})
    ends = Positions({AT: 3, TopicPartition("kept", 0): 9}, topic_ids={"in": "new", "kept": "same"})
    left = losses.remaining(before, ends)
    assert left.offsets == {TopicPartition("kept", 0): 7}
    assert losses.made_anew(left._replace(offsets={**left.offsets, AT: 3}), ends) == []


@pytest.mark.parametrize(
    ("error", "code", "end"),
    [
        (losses.records_are_gone(AT, 5, 9, 12), ErrorCode.OFFSET_OUT_OF_RANGE, OPTION),
        (losses.refusal(Positions({AT: 9}), Positions({AT: 5})), ErrorCode.OFFSET_OUT_OF_RANGE, OPTION),
        (losses.leader_epoch_went_back(AT, 3), ErrorCode.OFFSET_OUT_OF_RANGE, OPTION),
        (losses.log_was_truncated(AT, 9, 5), ErrorCode.OFFSET_OUT_OF_RANGE, "to go on from 5"),
        (losses.offset_is_not_there("endingOffsets", AT, 9, 5), ErrorCode.OFFSET_OUT_OF_RANGE, "to read what is left"),
        (losses.topic_was_deleted("in"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OPTION),
        (losses.topic_was_made_anew("in"), ErrorCode.UNKNOWN_TOPIC_ID, "is read from its beginning then"),
        (losses.topic_is_not_there("in"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "may be lost"),
    ],
)
def test_an_error_ends_with_what_to_do_with_the_query(error: BrokerError, code: ErrorCode, end: str) -> None:
    assert isinstance(error, FatalError)
    assert error.code == code
    assert str(error).startswith(f"{code.name}: ")
    assert str(error).endswith(end)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
