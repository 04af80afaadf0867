"""What a sink is given twice is told from what it repeats, and the state of what it repeats is made."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.spark.test_sink import GOOD, Rows

from fencepost.client.portal import Portal
from fencepost.spark.repetitions import Repetitions
from fencepost.spark.sink import Sink, WriteFailed, _Open


async def answer(value: str) -> str:
    return value


@pytest.mark.parametrize(
    ("cluster_id", "other"), [("", "127.0.0.1:9092"), ("c", "127.0.0.1:9092"), ("c", "localhost:9092")]
)
@pytest.mark.parametrize("wrote", [True, False])
def test_a_second_write_of_a_batch_in_one_run_of_a_query_is_no_repetition(
    monkeypatch: pytest.MonkeyPatch, wrote: bool, cluster_id: str, other: str
) -> None:
    """It would be skipped, as what was committed before is, and its rows left out in silence; of any sink.

    The cluster is the same, however its servers are written; an old one has no id.
    """
    asked: list[tuple[int, str]] = []
    run_id = ""
    monkeypatch.setattr("fencepost.spark.sink._REPETITIONS", Repetitions())

    async def written(batch: Any, *_: Any) -> bool:
        asked.append((batch.batch_id, run_id))
        if batch.batch_id == 7:
            raise WriteFailed("no")
        return wrote

    for name in ("sink.stop_of", "routing.check_columns"):
        monkeypatch.setattr(f"fencepost.spark.{name}", lambda *_: None)
    query = SimpleNamespace(runId=lambda: SimpleNamespace(toString=lambda: run_id), resolvedCheckpointRoot=lambda: "c")
    monkeypatch.setattr("fencepost.spark.sink.query_of", lambda _spark: query)
    monkeypatch.setattr("fencepost.spark.sink.Checkpoint", lambda _: SimpleNamespace(has_state=lambda _: False))
    rows, others, portal = cast(Any, Rows()), cast(Any, Rows()), Portal()
    one, two = Sink(**GOOD, tasks=1), Sink(**GOOD | {"bootstrap_servers": other}, tasks=1)

    driver = cast(Any, SimpleNamespace(write=written, report=None, cluster_id=partial(answer, cluster_id)))
    for sink in (one, two):
        sink._opened = _Open(portal, cast(Any, None), driver)
    for each in ("first", "second"):  # a query that is started again repeats its last batch
        run_id = each
        assert one.write(rows, 0, "query", topic="t") is wrote
        for sink in (one, two):
            with pytest.raises(WriteFailed, match=r"batch 0 .* by another write.* one write"):
                sink.write(others, 0, "query", topic="t")
    assert two.write(rows, 1, "query", topic="t") is wrote
    assert two.write(rows, 1, "another", topic="t") is wrote, "as who writes each micro-batch as a run of its own"
    for _ in range(2):  # what failed is tried again by whoever likes
        with pytest.raises(WriteFailed, match="no"):
            one.write(rows, 7, "query", topic="t")
    assert asked == [(0, "first"), (0, "second"), (1, "second"), (1, "second"), (7, "second"), (7, "second")]
    portal.close()


@pytest.mark.parametrize(("wrote", "has_state"), [(False, True), (False, False), (True, True)])
def test_the_state_of_a_skipped_batch_is_made(monkeypatch: pytest.MonkeyPatch, wrote: bool, has_state: bool) -> None:
    """Spark goes on from it, whoever wrote the function for foreachBatch."""

    async def written(*_: Any) -> bool:
        return wrote

    monkeypatch.setattr("fencepost.spark.sink._REPETITIONS", Repetitions())
    made: list[Any] = []
    looked: list[str] = []
    for name in ("sink.stop_of", "routing.check_columns"):
        monkeypatch.setattr(f"fencepost.spark.{name}", lambda *_: None)
    query = SimpleNamespace(runId=lambda: SimpleNamespace(toString=lambda: "run"), resolvedCheckpointRoot=lambda: "c")
    monkeypatch.setattr("fencepost.spark.sink.query_of", lambda _spark: query)

    def look(place: str) -> Any:
        looked.append(place)
        return SimpleNamespace(has_state=lambda _spark: has_state)

    monkeypatch.setattr("fencepost.spark.sink.Checkpoint", look)
    monkeypatch.setattr("fencepost.spark.sink.make_state", made.append)
    sink, rows, portal = Sink(**GOOD, tasks=1), cast(Any, Rows()), Portal()
    driver = cast(Any, SimpleNamespace(write=written, report=None, cluster_id=partial(answer, "c")))
    sink._opened = _Open(portal, cast(Any, None), driver)
    assert sink.write(rows, 0, "query", topic="t") is wrote
    assert (looked, made) == ([] if wrote else ["c"], [rows] if has_state and not wrote else [])
    portal.close()
