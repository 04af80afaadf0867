"""What a function for foreachBatch refuses, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.test_checkpoint import checkpoint

from fencepost.spark import streaming
from fencepost.spark.checkpoint import Checkpoint
from fencepost.spark.sink import Sink
from fencepost.spark.streaming import foreach_batch, write


@pytest.mark.parametrize(
    ("running", "said"),
    [("another", "is that of query 'mine', and this is query 'another'"), (None, None), ("mine", None)],
)
def test_the_checkpoint_of_another_query_is_refused(
    running: str | None, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its positions would be recorded as those of this query.  Who runs no query knows what he does."""
    checkpoint(monkeypatch, {"metadata": '{"id":"mine"}', "offsets/0": "v1\n{}\n-"})
    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": running}.get)
    batch: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    written: list[Any] = []

    def keep(_: Sink, *what: Any, **__: Any) -> bool:
        written.append(what)
        return True

    monkeypatch.setattr(Sink, "write", keep)
    write = foreach_batch(Sink("app", "127.0.0.1:9092", ["out"]), "somewhere", topic="out")
    if said is None:
        write(batch, 0)
        assert written == [(batch, 0, "mine")]
    else:
        with pytest.raises(ValueError, match=said):
            write(batch, 0)
        assert written == []


@pytest.mark.parametrize("session", [None, SimpleNamespace()])
def test_what_an_interrupted_start_left_is_cleared_before_the_query_starts(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a session to do it in."""
    cleared: list[Any] = []
    monkeypatch.setattr(streaming, "_session_of_this_thread", lambda: session)
    monkeypatch.setattr(Checkpoint, "clear_interrupted_start", lambda *what: cleared.append(what[1]))
    foreach_batch(Sink("app", "127.0.0.1:9092", ["out"]), "somewhere", topic="out")
    assert cleared == ([] if session is None else [session])


def test_a_batch_whose_end_is_not_written_down_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number alone it would be taken for whatever was committed under that."""
    checkpoint(monkeypatch, {"metadata": '{"id":"mine"}', "offsets/0": "v1\n{}\n-"})
    monkeypatch.setattr(Sink, "write", lambda *_, **__: pytest.fail("it was written"))
    context = SimpleNamespace(getLocalProperty=lambda _: "mine")
    batch: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    write = foreach_batch(Sink("app", "127.0.0.1:9092", ["out"]), "somewhere", topic="out")
    with pytest.raises(ValueError, match="somewhere/offsets/1 is not there"):
        write(batch, 1)


def test_rows_of_a_stream_are_refused_by_write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would refuse them in the midst of a batch, which is tried again for it."""
    monkeypatch.setattr(Sink, "write", lambda *_, **__: pytest.fail("it was written"))
    rows: Any = SimpleNamespace(isStreaming=True)
    with pytest.raises(ValueError, match=r"rows of a stream: write_stream\(\) writes those"):
        write(rows, application_id="app", run_id="1", bootstrap_servers="127.0.0.1:9092", topic="out")
