"""Whether the query is to end whose micro-batch a thread runs, as Spark's driver knows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from fencepost.spark.running_query import stop_of


def session_of(query_id: str | None, queries: dict[str, Any]) -> Any:
    """Spark's session of a thread that runs a micro-batch of this query, and what Java's side of it knows."""
    properties = {"sql.streaming.queryId": query_id}
    jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(fromString=str))))
    state = SimpleNamespace(activeStreamingQueries=lambda: queries)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(getLocalProperty=properties.get, _jvm=jvm),
        _jsparkSession=SimpleNamespace(sharedState=lambda: state),
    )


def test_a_thread_that_runs_no_micro_batch_has_nothing_to_stop_for() -> None:
    assert stop_of(session_of(None, {})) is None


@pytest.mark.parametrize("gone", [False, True])
def test_it_is_to_end_when_its_query_is_stopped_or_gone(*, gone: bool) -> None:
    """Spark forgets a query that has ended, and the thread of its last micro-batch may yet run."""
    is_active, query_id = True, str(uuid4())
    queries = {query_id: SimpleNamespace(isActive=lambda: is_active)}
    is_stopped = stop_of(session_of(query_id, queries))
    assert is_stopped is not None and not is_stopped()
    if gone:
        del queries[query_id]
    is_active = False
    assert is_stopped()
