"""Verification guards, open transactions and expiry of one partition's producers (facts §6.6, §6.8, §6.11)."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import pytest
from tests.log.log_doubles import START, batch, marker

from fencepost.log.producer_state import Origin, ProducerEntry, VerificationGuard
from fencepost.log.producers import CompletedTransaction, Producers
from fencepost.protocol.batch import read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.runtime import at_once

LATER = Milliseconds(START + 1)


def write(producers: Producers, producer_id: int, epoch: int, sequence: int, offset: int) -> None:
    header = read_header(batch(producer=(producer_id, epoch, sequence), transactional=True))
    producers.data_appended(header, Offset(offset), START)


def finish(producers: Producers, producer_id: int, epoch: int, offset: int) -> CompletedTransaction | None:
    return producers.marker_appended(
        read_header(marker(producer_id, epoch, False)), Offset(offset), LeaderEpoch(0), False, START
    )


def test_the_first_unstable_offset_waits_for_readers_to_see_the_end() -> None:
    producers = Producers()
    assert producers.first_unstable_offset is None
    write(producers, 1, 0, 0, 10)
    write(producers, 2, 0, 0, 20)
    write(producers, 1, 0, 1, 30)
    assert producers.open_transactions() == [(1, 10), (2, 20)]
    first = finish(producers, 1, 0, 40)
    assert first == CompletedTransaction(ProducerId(1), Offset(10), Offset(40), False)
    assert producers.aborted(first).last_stable_offset == 20
    assert producers.first_unstable_offset == 10
    producers.high_watermark_advanced(Offset(40))
    assert producers.first_unstable_offset == 10
    producers.high_watermark_advanced(Offset(41))
    assert producers.first_unstable_offset == 20
    second = finish(producers, 2, 0, 50)
    assert second is not None and producers.aborted(second).last_stable_offset == 51
    assert finish(producers, 2, 0, 60) is None, "nothing is open"


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_whatever_the_order_of_a_snapshot_the_earliest_open_transaction_is_the_first_unstable(
    order: tuple[int, ...],
) -> None:
    """Who came first may have begun its transaction last."""
    producers, entries = Producers(), list[ProducerEntry]()
    for producer_id, first in enumerate(order):
        entries.append(ProducerEntry(ProducerId(producer_id), Epoch(0)))
        entries[-1].open_first_offset = Offset(first)
    producers.load(entries)
    begun = [first for _, first in producers.open_transactions()]
    assert (begun, producers.first_unstable_offset) == ([0, 1, 2], 0)


def test_a_transaction_is_late_when_its_producer_has_been_silent_for_long() -> None:
    producers = Producers()
    assert not producers.is_late(LATER)
    write(producers, 1, 0, 0, 10)
    assert (producers.is_late(START), producers.is_late(LATER)) == (False, True)
    finish(producers, 1, 0, 20)
    assert not producers.is_late(LATER)


@pytest.mark.parametrize("epochs", [(3, 4), (4, 4)])
@pytest.mark.parametrize("bumps", list(product([False, True], repeat=2)))
def test_a_marker_ends_what_is_verified_for_requests_of_before_transaction_version_2_too(
    bumps: tuple[bool, bool], epochs: tuple[int, int]
) -> None:
    """A request of one kind failed, and then transaction.version was changed, and one of the other kind was late."""
    producers = Producers()
    for bump, epoch in zip(bumps, epochs, strict=True):
        guard = producers.start_verification(ProducerId(7), Epoch(epoch), 0, bump, START)
    finish(producers, 7, 4, 0)
    again = producers.start_verification(ProducerId(7), Epoch(4), 0, True, START)
    stays = bumps[1] and (bumps[0] or epochs[0] < epochs[1])
    assert (again is guard) == stays


@pytest.mark.parametrize("bump", [False, True])
@pytest.mark.parametrize("marker_epoch", [3, 4])
def test_a_marker_ends_the_verification_of_its_own_transaction(bump: bool, marker_epoch: int) -> None:
    """One under the bumped epoch of the marker belongs to the next transaction and stays."""
    producers = Producers()
    guard = producers.start_verification(ProducerId(7), Epoch(4), 0, bump, START)
    assert isinstance(guard, VerificationGuard)
    finish(producers, 7, marker_epoch, 10)
    stays = bump and marker_epoch == 4
    assert (producers.start_verification(ProducerId(7), Epoch(4), 0, bump, START) is guard) == stays


def test_verifications_are_shared_and_fenced() -> None:
    producers = Producers()
    guard = producers.start_verification(ProducerId(7), Epoch(3), 5, False, START)
    assert producers.start_verification(ProducerId(7), Epoch(3), 2, False, START) is guard
    write(producers, 7, 3, 2, 10)
    assert producers.start_verification(ProducerId(7), Epoch(3), 3, False, START) is None
    assert producers.start_verification(ProducerId(7), Epoch(2), 0, False, START) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert isinstance(producers.start_verification(ProducerId(7), Epoch(4), 0, False, START), VerificationGuard)


def test_what_was_verified_for_one_transaction_does_not_join_the_next_of_its_epoch() -> None:
    producers = Producers()

    def check(guard: VerificationGuard | ErrorCode | None, sequence: int) -> ErrorCode | None:
        assert not isinstance(guard, ErrorCode)
        header = read_header(batch(producer=(7, 3, sequence), transactional=True))
        return producers.check_data(header, guard, Origin.COORDINATOR, True)

    early = producers.start_verification(ProducerId(7), Epoch(3), -1, False, START)
    write(producers, 7, 3, 0, 10)
    assert check(early, 1) is None, "two writes of one transaction may wait at once"
    finish(producers, 7, 3, 11)
    assert check(early, 1) == ErrorCode.INVALID_TXN_STATE
    late = producers.start_verification(ProducerId(7), Epoch(3), -1, False, START)
    write(producers, 7, 3, 1, 12)
    assert check(early, 2) == ErrorCode.INVALID_TXN_STATE
    assert check(late, 2) is None
    assert check(None, 2) is None, "it came when the transaction was open already"


def test_an_epoch_clears_the_window() -> None:
    producers = Producers()
    write(producers, 7, 3, 0, 10)
    finish(producers, 7, 3, 11)
    assert producers.entries[ProducerId(7)].last_sequence == 0, "the same epoch goes on"
    finish(producers, 7, 4, 12)
    assert (producers.entries[ProducerId(7)].last_sequence, producers.epoch_of(ProducerId(7))) == (-1, 4)


def test_silent_producers_expire_unless_their_transaction_is_open() -> None:
    producers = Producers()
    write(producers, 1, 0, 0, 10)
    write(producers, 2, 0, 0, 11)
    finish(producers, 2, 0, 12)
    producers.start_verification(ProducerId(3), Epoch(0), 0, False, START)
    at_once(producers.expire(Milliseconds(START + 99), Milliseconds(100)))
    assert sorted(producers.entries) == [1, 2]
    at_once(producers.expire(Milliseconds(START + 100), Milliseconds(100)))
    assert sorted(producers.entries) == [1]
    assert [active.producer_id for active in producers.active()] == [1]


def test_a_producer_that_was_heard_of_lately_stays_whatever_times_its_records_have() -> None:
    producers = Producers()
    for producer_id, timestamp in ((1, START - 10**9), (2, -1), (3, START + 50)):
        header = read_header(batch(producer=(producer_id, 0, 0), timestamp=timestamp))
        producers.data_appended(header, Offset(10 + producer_id), START)
    for waited, left in ((99, [1, 2, 3]), (100, [3]), (149, [3]), (150, [])):
        at_once(producers.expire(Milliseconds(START + waited), Milliseconds(100)))
        assert sorted(producers.entries) == left


def test_very_many_expire_in_steps_and_whoever_is_heard_of_meanwhile_stays() -> None:
    producers = Producers()
    count = 3500
    for producer_id in range(count):
        write(producers, producer_id, 0, 0, producer_id)
        finish(producers, producer_id, 0, count + producer_id)
        producers.start_verification(ProducerId(count + producer_id), Epoch(0), 0, False, START)
    left, verified = [count], [count]
    last, gone = ProducerId(count - 1), ProducerId(count - 2)
    for _ in producers.expire(Milliseconds(START + 100), Milliseconds(100)):
        if len(left) == 1:
            write(producers, last, 0, 1, 2 * count)
            del producers.entries[gone]
        left.append(len(producers.entries))
        verified.append(len(producers._verifications))
    assert [before - after for before, after in pairwise(left)] == [1001, 1000, 1000, 498, 0, 0]
    assert verified[-1] == 500
    assert list(producers.entries) == [last]
    assert producers._verifications == {}


def test_who_is_verified_anew_while_very_many_expire_stays_so() -> None:
    """Its first transaction has ended meanwhile: who writes the next one has a guard of now."""
    producers, count = Producers(), 3000
    for producer_id in range(count):
        producers.start_verification(ProducerId(producer_id), Epoch(0), 0, False, START)
    expiring, last = producers.expire(Milliseconds(START + 100), Milliseconds(100)), ProducerId(count - 1)
    next(expiring)
    write(producers, last, 0, 0, 10)
    finish(producers, last, 0, 11)
    guard = producers.start_verification(last, Epoch(0), 1, False, Milliseconds(START + 100))
    at_once(expiring)
    assert producers.start_verification(last, Epoch(0), 1, False, Milliseconds(START + 100)) is guard
    assert len(producers._verifications) == 1


def test_a_verification_that_nothing_came_of_is_forgotten() -> None:
    producers = Producers()
    guard = producers.start_verification(ProducerId(3), Epoch(0), 0, False, START)
    at_once(producers.expire(Milliseconds(START + 99), Milliseconds(100)))
    assert producers.start_verification(ProducerId(3), Epoch(0), 0, False, START) is guard
    at_once(producers.expire(Milliseconds(START + 100), Milliseconds(100)))
    assert producers.start_verification(ProducerId(3), Epoch(0), 0, False, START) is not guard


def test_a_guard_is_good_for_the_transaction_that_was_begun_with_it_and_for_no_other() -> None:
    """Also where an administrator has ended that, by a marker of its own epoch."""
    producers = Producers()
    guard = producers.start_verification(ProducerId(1), Epoch(0), 0, True, START)
    assert isinstance(guard, VerificationGuard)
    write(producers, 1, 0, 0, 10)
    assert finish(producers, 1, 0, 11) is not None
    late = read_header(batch(producer=(1, 0, 1), transactional=True))
    assert producers.check_data(late, guard, Origin.CLIENT, True) is ErrorCode.INVALID_TXN_STATE
