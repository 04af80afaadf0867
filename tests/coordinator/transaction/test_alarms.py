"""Whatever deadlines are set, each transaction is looked at when its time is up, and not before any time is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.transaction.shards import Alarms
from fencepost.protocol.types import Milliseconds


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 20)))), st.integers(0, 21))
def test_who_has_a_deadline_before_now_rings_once_and_nobody_else(
    deadlines: list[tuple[int, int | None]], now: int
) -> None:
    entries = [SimpleNamespace(alarm=None, name=name) for name in range(3)]
    alarms = Alarms()
    for number, deadline in deadlines:
        alarms.set(cast(Any, entries[number]), None if deadline is None else Milliseconds(deadline))
    rung = sorted(cast(Any, entry).name for entry in alarms.ring(Milliseconds(now)))
    assert rung == sorted({number for number, deadline in deadlines if deadline is not None and deadline < now})
    assert list(alarms.ring(Milliseconds(now))) == []
