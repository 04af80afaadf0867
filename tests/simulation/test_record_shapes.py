"""Keys and sizes of records in a run: what they are, and what breaks where compaction takes too much."""

from __future__ import annotations

import pytest

from fencepost.log.cleaner import cleaning, retention
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan, is_sound
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("largest", [1000, 100_000])
def test_a_batch_of_large_records_has_room_and_some_fill_it(largest: int, together: int) -> None:
    shape, sizes = Shape(10, largest), []
    for n in range(300):
        value = f"windowed-1-1000-{n}"
        record = 1, shape.key_of(value), value.encode(), shape.headers_of(value, together)
        sizes.append(
            len(encode_batch([record] * together, producer_id=ProducerId(1), producer_epoch=Epoch(1), base_sequence=0))
        )
    assert largest * 0.6 < max(sizes) <= largest


def test_a_record_has_no_key_and_no_header_unless_it_is_to_have_one() -> None:
    assert {Shape().key_of(f"a-{n}-0") for n in range(50)} == {None}
    assert [Shape().headers_of(f"a-{n}-0") for n in range(50)] == [[]] * 50


def test_every_producer_has_keys_of_its_own() -> None:
    keys = [{Shape(3).key_of(f"{name}-{n}-{m}") for n in range(50) for m in range(3)} for name in ("a-0", "a-1")]
    assert [len(each) for each in keys] == [3, 3]
    assert keys[0].isdisjoint(keys[1])


#: What is written is compacted soon.
COMPACTED = Plan(
    2,
    2,
    Circumstances(
        settings={"log.cleaner.backoff.ms": 20},
        log={"segment_bytes": 2000},
        topic_settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "50"},
        load=Load(shape=Shape(keys=2), transaction_timeout_ms=1500),
        troubles=(Trouble.KILLED,),
        between=0.5,
    ),
    {"producer-0": Window(), "producer-1": Window(), "single-0": Window(), "reader-0": Window()},
)


def test_a_plan_whose_records_have_no_keys_has_no_compacted_topics() -> None:
    circumstances = COMPACTED.circumstances
    assert is_sound(COMPACTED)
    assert not is_sound(COMPACTED._replace(circumstances=circumstances._replace(load=Load())))


def test_compaction_takes_older_records_only() -> None:
    report = carry_out(COMPACTED)
    assert report.faults == []
    assert report.reached["a topic that producers write to is compacted"] > 5
    sent = {record.value for records in report.outcomes.committed.values() for record in records}
    begun = next(n for n, line in enumerate(report.history) if "no more faults" in line)
    read = {line.split()[-1] for line in report.history[begun:] if line.split()[1] == "read"}
    assert len(sent - read) > 100


def test_a_key_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "stays", lambda *_: False)
    monkeypatch.setattr(cleaning, "stays", lambda *_: False, raising=False)
    assert "is lost" in " ".join(carry_out(COMPACTED).faults)


def test_an_aborted_record_that_takes_the_place_of_a_committed_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention.Transactions, "is_aborted", lambda *_: False)
    assert carry_out(COMPACTED).faults != []
