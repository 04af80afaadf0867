"""The checker of last stable offsets says nothing where all is well, and names what is wrong."""

from __future__ import annotations

from uuid import UUID

from fencepost.protocol.batch import BatchHeader, read_header
from fencepost.protocol.control import control_batch
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.simulation.checkers.stable_offsets import StableOffsets, Told

AT = ("t", 0)
ID = UUID(int=1)


def data(offset: int, producer_id: int = 1, *, transactional: bool = True) -> BatchHeader:
    batch = encode_batch(
        [(0, None, b"x", ())],
        producer_id=ProducerId(producer_id),
        producer_epoch=Epoch(0),
        base_sequence=0,
        transactional=transactional,
    )
    return read_header(batch)._replace(base_offset=Offset(offset))


def marker(offset: int, producer_id: int = 1) -> BatchHeader:
    batch = control_batch(ProducerId(producer_id), Epoch(1), LeaderEpoch(0), True, Milliseconds(0))
    return read_header(batch)._replace(base_offset=Offset(offset))


def after(*batches: BatchHeader) -> StableOffsets:
    checker = StableOffsets({})
    checker.begin(AT, ID)
    for batch in batches:
        checker.add(AT, batch)
    return checker


def test_before_the_first_open_transaction_all_is_well() -> None:
    checker = after(data(0), data(1, 2), data(2, 3, transactional=False))
    assert checker.tell(AT, 0, 0) is None
    checker.add(AT, marker(3))
    assert checker.tell(AT, 1, 0) is None
    checker.add(AT, marker(4, 2))
    assert checker.tell(AT, 5, 0) is None


def test_past_an_open_transaction_is_wrong() -> None:
    checker = after(data(0), data(1, 2), marker(2))
    assert "open from 1" in (checker.tell(AT, 2, 0) or "")


def test_back_is_wrong() -> None:
    checker = after(data(0), marker(1))
    assert checker.tell(AT, 2, 0) is None
    assert "goes back from 2 to 1" in (checker.tell(AT, 1, 0) or "")


def test_what_was_deleted_is_passed() -> None:
    assert after(data(0)).tell(AT, 1, 1) is None


def test_an_answer_without_one_and_another_topic_of_the_name_say_nothing() -> None:
    checker = after(data(0), marker(1))
    assert checker.tell(AT, 2, 0) is None
    assert checker.tell(AT, -1, -1) is None
    checker.begin(AT, UUID(int=2))
    assert checker.tell(AT, 0, 0) is None


def test_back_is_wrong_after_a_start_too_but_not_for_another_topic_of_the_name() -> None:
    told: Told = {}
    before = StableOffsets(told)
    before.begin(AT, ID)
    assert before.tell(AT, 2, 0) is None
    for topic_id, complaint in ((UUID(int=2), None), (ID, "the last stable offset of t-0 goes back from 2 to 1")):
        after = StableOffsets(told)
        after.begin(AT, topic_id)
        assert after.tell(AT, 1, 0) == complaint
