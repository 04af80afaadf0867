"""Every cell of the sequence and epoch checks of facts §5.3, §6.3 and §6.4, written out here a second time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from tests.log.log_doubles import batch

from fencepost.log.producer_state import (
    BatchMetadata,
    Origin,
    ProducerEntry,
    Verification,
    VerificationGuard,
    check_data,
    check_marker,
    check_sequence,
)
from fencepost.protocol.batch import MAX_INT32, BatchHeader, read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
NOT_IN_TRANSACTION = ErrorCode.INVALID_TXN_STATE


def header(epoch: int, sequence: int, count: int = 1, transactional: bool = False) -> BatchHeader:
    return read_header(batch(count, producer=(7, epoch, sequence), transactional=transactional))


def entry(epoch: int, last_sequence: int | None = None, open_at: Offset | None = None) -> ProducerEntry:
    made = ProducerEntry(ProducerId(7), Epoch(epoch), open_first_offset=open_at)
    if last_sequence is not None:
        made.batches.append(BatchMetadata(last_sequence, Offset(100), 0, Milliseconds(0)))
    return made


#: stored (epoch, last sequence), then which sequence of the same and of a newer epoch is taken
SEQUENCES = [
    (None, lambda _: True, lambda _: True),  # nothing known: idempotent and TV1 producers begin anywhere
    ((-1, None), lambda _: True, lambda _: True),
    ((3, None), lambda s: s == 0, lambda s: s == 0),  # a marker has cleared the window
    ((3, 0), lambda s: s == 1, lambda s: s == 0),
    ((3, 41), lambda s: s == 42, lambda s: s == 0),
    ((3, MAX_INT32), lambda s: s == 0, lambda s: s == 0),
    ((3, MAX_INT32 - 1), lambda s: s == MAX_INT32, lambda s: s == 0),
]


@pytest.mark.parametrize("row", SEQUENCES)
@pytest.mark.parametrize("sequence", [0, 1, 41, 42, 43, MAX_INT32])
@pytest.mark.parametrize("newer", [False, True])
def test_every_cell_of_the_sequences(row: tuple, sequence: int, newer: bool) -> None:  # type: ignore[type-arg]
    stored, same_epoch, newer_epoch = row
    known = None if stored is None else entry(*stored)
    taken = (newer_epoch if newer else same_epoch)(sequence)
    assert check_sequence(known, None, header(4 if newer else 3, sequence)) == (None if taken else OUT_OF_ORDER)


def cells_of_verification() -> Iterator[tuple[bool, bool, int, int, bool]]:
    for known, bump, lowest, sequence in product([False, True], [False, True], [0, 5], [0, 5, 6]):
        # facts §6.4: TV2 begins at 0; nobody begins beyond the lowest sequence that waits.
        refused = (not known and bump and sequence != 0) or sequence > lowest
        # The producer is known at epoch 3 with its window cleared: a new epoch begins at 0.
        refused |= known and sequence != 0
        yield known, bump, lowest, sequence, not refused


@pytest.mark.parametrize(("known", "bump", "lowest", "sequence", "taken"), list(cells_of_verification()))
def test_every_cell_of_verified_sequences(known: bool, bump: bool, lowest: int, sequence: int, taken: bool) -> None:
    verification = Verification(VerificationGuard(), Epoch(4), lowest, bump, Milliseconds(0))
    outcome = check_sequence(entry(3) if known else None, verification, header(4, sequence, transactional=True))
    assert outcome == (None if taken else OUT_OF_ORDER)


def test_a_lowest_sequence_of_another_epoch_does_not_count() -> None:
    verification = Verification(VerificationGuard(), Epoch(4), 0, True, Milliseconds(0))
    assert check_sequence(entry(3, 8), verification, header(3, 9, transactional=True)) is None


@pytest.mark.parametrize("sequence", [0, 1])
@pytest.mark.parametrize("epoch", [2, 3, 4])
@pytest.mark.parametrize("open_here", [False, True])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("guarded", ["right", "wrong", "none"])
@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
@pytest.mark.parametrize("enabled", [False, True])
def test_every_cell_of_the_data_checks(
    sequence: int, epoch: int, open_here: bool, transactional: bool, guarded: str, origin: Origin, enabled: bool
) -> None:
    known = entry(3, 0, open_at=Offset(50) if open_here else None)
    guard = known.opened_by = VerificationGuard()
    verification = Verification(guard, Epoch(epoch), 10, False, Milliseconds(0)) if guarded != "none" else None
    handed_in = guard if guarded == "right" else VerificationGuard() if guarded == "wrong" else None
    expected = None
    if epoch < 3:
        expected = FENCED
    elif transactional and enabled and guarded in (("wrong",) if open_here and epoch == 3 else ("wrong", "none")):
        expected = NOT_IN_TRANSACTION
    elif origin is Origin.CLIENT:
        if sequence != (1 if epoch == 3 else 0):
            expected = OUT_OF_ORDER
        elif not transactional and open_here:
            expected = NOT_IN_TRANSACTION
    batch_header = header(epoch, sequence, transactional=transactional)
    assert check_data(known, verification, handed_in, batch_header, origin, enabled) == expected


#: relation of the marker's epoch to the stored one, then the answers at transaction version 0, 1, 2 while a
#: transaction is open and at 2 while none is
MARKERS = """
older   47 47 47 47
equal   0  0  47 0
newer   0  0  0  0
"""


@pytest.mark.parametrize("line", MARKERS.strip().splitlines())
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("open_here", [False, True])
@pytest.mark.parametrize("coordinator", [-1, 4, 5, 6])
def test_every_cell_of_the_markers(line: str, version: int, open_here: bool, coordinator: LeaderEpoch) -> None:
    relation, *answers = line.split()
    epoch = 3 + ["older", "equal", "newer"].index(relation) - 1
    known = entry(3, open_at=Offset(50) if open_here else None)
    known.coordinator_epoch = LeaderEpoch(5)
    expected = int(answers[3] if version == 2 and not open_here else answers[version])
    if expected == 0 and coordinator < 5:
        expected = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert (check_marker(known, Epoch(epoch), coordinator, version) or 0) == expected


def test_markers_of_an_unknown_producer_and_of_the_last_epoch_are_taken() -> None:
    assert check_marker(None, Epoch(0), LeaderEpoch(0), 2) is None
    assert check_marker(entry(32767, open_at=Offset(1)), Epoch(32767), LeaderEpoch(0), 2) is None
    assert check_marker(entry(32766, open_at=Offset(1)), Epoch(32766), LeaderEpoch(0), 2) is FENCED


@pytest.mark.parametrize("known", [None, entry(3), entry(3, open_at=Offset(50))])
@pytest.mark.parametrize("epoch", [-2, 3, 4])
def test_a_marker_says_by_which_rule_it_goes(known: ProducerEntry | None, epoch: int) -> None:
    assert check_marker(known, Epoch(epoch), LeaderEpoch(0), -1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert check_marker(known, Epoch(epoch), LeaderEpoch(0), -2) == check_marker(known, Epoch(epoch), LeaderEpoch(0), 0)
    assert check_marker(None, Epoch(-2), LeaderEpoch(0), 2) is FENCED


@pytest.mark.parametrize("epoch", [-2, -1, 0])
@pytest.mark.parametrize("stored", [None, -1, 0])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("sequence", [0, 5])
def test_every_cell_of_epochs_below_0_where_nothing_is_verified(
    epoch: int, stored: int | None, transactional: bool, sequence: int
) -> None:
    known = None if stored is None else entry(stored, 3)
    expected = None
    if epoch < (-1 if stored is None else stored):
        expected = FENCED
    elif stored == 0 and sequence != 4:
        expected = OUT_OF_ORDER
    elif transactional and epoch == -1:
        expected = ErrorCode.INVALID_RECORD
    batch_header = header(epoch, sequence, transactional=transactional)
    assert check_data(known, None, None, batch_header, Origin.CLIENT, False) == expected


@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (4, 3), (MAX_INT32, 1), (MAX_INT32 - 1, 4)])
def test_a_duplicate_is_one_of_the_last_five(sequence: int, count: int) -> None:
    known = ProducerEntry(ProducerId(7), Epoch(3))
    original = header(3, sequence, count)
    known.batches.append(BatchMetadata(original.last_sequence, Offset(99 + count), count - 1, Milliseconds(0)))
    assert known.batches[0].first_sequence == sequence
    assert known.batches[0].first_offset == 100
    assert known.duplicate_of(original) == known.batches[0]
    assert known.duplicate_of(header(4, sequence, count)) is None
    assert known.duplicate_of(header(3, sequence, count + 1)) is None
    for number in range(4):
        known.batches.append(BatchMetadata(1000 + number, Offset(200 + number), 0, Milliseconds(0)))
    assert known.duplicate_of(original) is not None
    known.batches.append(BatchMetadata(2000, Offset(300), 0, Milliseconds(0)))
    assert known.duplicate_of(original) is None
