"""What the functions that start a query, or write once, hand to Spark and to the sink, without either."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.spark.test_checkpoint import checkpoint

from fencepost.client.cluster import Cluster
from fencepost.spark import streaming
from fencepost.spark.checkpoint import Checkpoint
from fencepost.spark.positions import BEGAN, FIRSTS
from fencepost.spark.progress import Progress
from fencepost.spark.sink import Sink
from fencepost.spark.streaming import foreach_batch, resume_offsets, write, write_stream

SERVERS = "127.0.0.1:9092"
ROWS: Any = SimpleNamespace(isStreaming=False)


@pytest.fixture(name="sinks")
def sinks_that_write(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What was written by sinks, how many were closed; and the answer of the next write, or what it raises."""
    seen = SimpleNamespace(written=[], closed=threading.Semaphore(0), answer=True)

    def keep(_: Sink, rows: object, number: int, query: str, **how: Any) -> bool:
        seen.written.append((rows, number, query, how))
        if isinstance(seen.answer, Exception):
            raise seen.answer
        return cast(bool, seen.answer)

    monkeypatch.setattr(Sink, "write", keep)
    monkeypatch.setattr(Sink, "close", lambda _: seen.closed.release())
    return seen


# One write


@pytest.mark.parametrize("answer", [True, False, OSError("no")])
def test_a_run_is_a_query_of_its_own_whose_sink_is_closed(sinks: SimpleNamespace, answer: Any) -> None:
    sinks.answer = answer
    call: Any = {"application_id": "app", "run_id": "r" * 200, "bootstrap_servers": SERVERS, "topic": "out"}
    if isinstance(answer, Exception):
        with pytest.raises(OSError, match="no"):
            write(ROWS, **call)
    else:
        assert write(ROWS, **call) is answer
    assert sinks.written == [(ROWS, 0, "r" * 200, {"topic": "out", "new_query": True})]
    assert sinks.closed.acquire(blocking=False)


@pytest.mark.parametrize("run_id", ["", "r" * 201])
def test_the_name_of_a_run_has_1_to_200_characters(sinks: SimpleNamespace, run_id: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 characters"):
        write(ROWS, application_id="app", run_id=run_id, bootstrap_servers=SERVERS, topic="out")
    assert sinks.written == []


# A micro-batch


@pytest.mark.parametrize("running", [None, "mine"])
@pytest.mark.parametrize("has_state", [True, False])
@pytest.mark.parametrize("wrote", [True, False])
def test_state_is_made_here_of_a_batch_that_was_committed_before_where_the_sink_knows_of_no_query(
    monkeypatch: pytest.MonkeyPatch, sinks: SimpleNamespace, running: str | None, has_state: bool, wrote: bool
) -> None:
    sinks.answer = wrote
    made: list[object] = []
    checkpoint(monkeypatch, {"metadata": '{"id":"mine"}', "offsets/6": "v1\n{}\n5", "offsets/7": "v1\n{}\n6"})
    monkeypatch.setattr(Checkpoint, "with_files", lambda _self, _spark, ends: [*ends, "files"])
    monkeypatch.setattr(Checkpoint, "has_state", lambda *_: has_state)
    monkeypatch.setattr(streaming, "make_state", made.append)
    context = SimpleNamespace(getLocalProperty=lambda _: running)
    batch: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    transform: Any = lambda rows, number: (rows, number)  # noqa: E731
    foreach_batch(Sink("app", SERVERS, ["out"]), "c", transform=transform)(batch, 7)
    ((rows, number, query, how),) = sinks.written
    assert (rows, number, query) == ((batch, 7), 7, "mine")
    assert how == {"topic": None, "source_offsets": [6, "files"], "source_starts": [5]}
    assert made == ([batch] if has_state and not wrote and running is None else [])


# A query


class Writer:
    """In place of Spark's: notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def tell(*given: Any, **named: Any) -> Writer:
            self.told[name] = given or named
            return self

        return tell

    def start(self) -> Any:
        return SimpleNamespace(_jsq="query")


@pytest.mark.parametrize(("fails", "mode"), [(True, None), (False, None), (False, "update")])
def test_a_query_is_started_as_it_is_told_and_its_sink_closed_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, sinks: SimpleNamespace, fails: bool, mode: str | None
) -> None:
    is_over = threading.Event()

    class Query:
        def __init__(self, java: object) -> None:
            assert java == "query"

        def awaitTermination(self) -> None:
            is_over.wait()
            if fails:
                raise OSError

    monkeypatch.setattr("fencepost.spark.explained.ExplainedQuery", Query)
    cleared: list[object] = []
    monkeypatch.setattr(Checkpoint, "clear_interrupted_start", lambda _, session: cleared.append(session))
    writer = Writer()
    options: Any = {"application_id": "app", "bootstrap_servers": SERVERS, "checkpoint_location": "c", "topic": "out"}
    rows: Any = SimpleNamespace(writeStream=writer, sparkSession="session")
    found = write_stream(rows, trigger={"availableNow": True}, output_mode=mode, query_name="orders", **options)
    assert isinstance(found, Query)
    assert cleared == ["session"], "before the query begins, and once"
    told = {name: given for name, given in writer.told.items() if name != "foreachBatch"}
    assert told == {
        "option": ("checkpointLocation", "c"),
        "queryName": ("orders",),
        "trigger": {"availableNow": True},
        **({"outputMode": (mode,)} if mode else {}),
    }
    assert not sinks.closed.acquire(blocking=False)
    is_over.set()
    assert sinks.closed.acquire(timeout=30)


# Where a query goes on


@pytest.mark.parametrize(
    ("source", "said"),
    [(0, {"a": {"0": 5}}), (1, {"b": {"0": 6, "1": 7}}), (2, None), (3, None)],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_query_goes_on_where_that_source_ended(
    monkeypatch: pytest.MonkeyPatch, source: int, said: Any, is_known: bool
) -> None:
    """The topic of the progress is made where nobody has written yet; no thread and no connection stays."""
    done: list[str] = []
    ended = {"a": {"0": 5}, BEGAN: {"a": {"0": 1}}, FIRSTS: {"a": {"0": 1}}}  # where that query began is of no interest
    known = Progress.of("query", 4, [ended, {"b": {"0": 6, "1": 7}}, 12])

    async def ensured(_: Cluster) -> None:
        done.append("ensured")

    async def read(_: Cluster, application: str) -> Progress | None:
        done.append(application)
        return known if is_known else None

    async def closed(_: Cluster) -> None:
        done.append("closed")

    monkeypatch.setattr(streaming, "ensure_topic", ensured)
    monkeypatch.setattr(streaming, "read_progress", read)
    monkeypatch.setattr(Cluster, "close", closed)
    if is_known and said is None:
        with pytest.raises(
            ValueError, match=f"batch 4 of application 'app' has no positions in topics for .* {source}:"
        ):
            resume_offsets("app", SERVERS, source=source)
    else:
        found = resume_offsets("app", SERVERS, source=source, otherwise="latest")
        assert found == "latest" if not is_known else json.loads(found) == said
    assert done == ["ensured", "app", "closed"]
    assert not [each for each in threading.enumerate() if each.name == "fencepost-spark-resume"]
