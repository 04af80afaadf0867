"""The progress record is the last committed one, whatever else is open or aborted in the topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.batch import stamp
from fencepost.protocol.control import control_batch
from fencepost.protocol.records import encode_batch
from fencepost.spark.progress import Ledger, Progress

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 2)),
    ),
    max_size=20,
)


@given(STEPS, st.integers(1, 5))
def test_it_is_the_last_value_whose_transaction_was_committed(steps: list[tuple[str, int]], portion: int) -> None:
    """Producer 0 and 1 write for our application, one after the other; 2 writes for another one."""
    batches: list[bytes] = []
    pending: dict[int, bytes] = {}
    expected: bytes | None = None
    for number, (kind, producer) in enumerate(steps):
        value = b"%d" % number
        if kind == "write":
            key = b"other" if producer == 2 else b"ours"
            batch = bytearray(
                encode_batch(
                    [(0, key, value, ())], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
                )
            )
            if producer != 2:
                pending[producer] = value
        else:
            batch = bytearray(control_batch(producer, 0, 0, kind == "commit", 0))
            ended = pending.pop(producer, None)
            if ended is not None and kind == "commit":
                expected = ended
        stamp(batch, 0, number, 0)
        batches.append(bytes(batch))
    ledger, following = Ledger("ours"), 0
    for start in range(0, len(batches), portion):
        following = ledger.add(memoryview(b"".join(batches[start : start + portion])))
    assert following == len(batches)
    assert ledger.last == expected


def test_a_record_is_read_as_it_was_written() -> None:
    record = Progress("query", 7, [{"topic": {"0": 5}}, None])
    assert Progress.decode(record.encode()) == record
