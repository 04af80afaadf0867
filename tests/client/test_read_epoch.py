"""Which leader epoch a consumer believes: the true one or none, though single batches may be damaged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.read_epoch import UNKNOWN, ReadEpoch

EPOCHS = st.lists(st.integers(0, 4), min_size=1, max_size=12).map(sorted)


@given(EPOCHS, st.data())
def test_what_counts_is_true_though_single_batches_are_damaged(epochs: list[int], data: st.DataObject) -> None:
    """Whatever a damaged one says but what was said before: the first batch of a new leader is seldom that one."""
    read, was_damaged, counts, before = ReadEpoch(), False, UNKNOWN, UNKNOWN
    for at, epoch in enumerate(epochs):
        wrong = [each for each in range(-5, 9) if each not in (epoch, counts, before)]
        is_damaged = not was_damaged and data.draw(st.booleans())
        said = data.draw(st.sampled_from(wrong)) if is_damaged else epoch
        for _ in range(data.draw(st.integers(1, 3))):  # it may be fetched again
            read.read(said, at)
        known = read.known
        assert known in (UNKNOWN, epoch)
        if not is_damaged and (epoch == counts or (at and not was_damaged and epochs[at - 1] == epoch)):
            assert known == epoch
        counts, was_damaged, before = known if known != UNKNOWN else counts, is_damaged, said


def test_where_reading_goes_on_elsewhere_only_what_is_said_of_that_counts() -> None:
    read = ReadEpoch(3)
    assert read.known == 3
    read.read(4, 10)
    assert read.known == UNKNOWN
    read.read(4, 11)
    assert read.known == 4
    read.begin(2)
    assert read.known == 2
    read.read(4, 12)
    read.begin()
    read.read(4, 13)
    assert read.known == UNKNOWN
