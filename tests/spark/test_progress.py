"""The progress record is the last committed one, whatever else is open or aborted in the topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.batch import stamp
from fencepost.protocol.control import control_batch
from fencepost.protocol.records import encode_batch
from fencepost.spark.progress import Ledger, Progress, unfit

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 2)),
    ),
    max_size=20,
)


@given(STEPS, st.integers(1, 5), st.integers(1, 3))
def test_it_is_the_last_value_whose_transaction_was_committed(
    steps: list[tuple[str, int]], window: int, portion: int
) -> None:
    """Producer 0 and 1 write for our application, one after the other; 2 writes for another one."""
    batches: list[bytearray] = []
    pending: dict[int, bytes] = {}
    expected: bytes | None = None

    def end(producer: int, commit: bool) -> None:
        nonlocal expected
        batches.append(bytearray(control_batch(producer, 0, 0, commit, 0)))
        ended = pending.pop(producer, None)
        if ended is not None and commit:
            expected = ended

    for number, (kind, producer) in enumerate(steps):
        value = b"%d" % number
        if kind == "write":
            for other in [each for each in pending if producer != 2 and each != producer]:
                end(other, commit=False)  # it is fenced
            key = b"other" if producer == 2 else b"ours"
            record = [(0, key, value, ())]
            written = encode_batch(record, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
            batches.append(bytearray(written))
            if producer != 2:
                pending[producer] = value
        else:
            end(producer, kind == "commit")
    for number, batch in enumerate(batches):
        stamp(batch, 0, number, 0)
    ledger, low, is_found = Ledger("ours"), len(batches), False
    while low > 0 and not is_found:
        low, high = max(low - window, 0), low
        position = low
        while position < high:  # what is fetched may go beyond the window
            position = ledger.add(memoryview(b"".join(batches[position : position + portion])), high)
        is_found = ledger.look()
    assert is_found == (expected is not None)
    assert ledger.last == expected


@pytest.mark.parametrize(
    ("partitions", "policy", "named"),
    [
        (1, "compact", None),
        (1, None, None),
        (1, "delete", "cleanup.policy=delete"),
        (1, "compact,delete", "cleanup.policy=compact,delete"),
        (3, "compact", "has 3 partitions"),
    ],
)
def test_a_topic_that_would_lose_records_is_named(partitions: int, policy: str | None, named: str | None) -> None:
    reason = unfit(partitions, policy)
    assert (reason is None) == (named is None)
    assert named is None or named in (reason or "")


def test_a_record_is_read_as_it_was_written() -> None:
    record = Progress("query", 7, [{"topic": {"0": 5}}, None])
    assert Progress.decode(record.encode()) == record
