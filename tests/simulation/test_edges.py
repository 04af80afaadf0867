"""What is durable before what: for each edge a broker in which it does not hold is seen to break a promise.

All appends of a node go through one commit log in order, so an edge holds because its first end stands before its
second one.  The mutants lose the first end and keep the second, as separate logs without the edge could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.simulation.mutants import OF_THE_TEST

from fencepost.broker import broker
from fencepost.coordinator.transaction.state import State
from fencepost.log.commit_log import CommitLog
from fencepost.log.disk import Disk
from fencepost.log.replay import Replay
from fencepost.protocol.batch import read_header
from fencepost.protocol.codec import decode_stored
from fencepost.protocol.records import decode_batch
from fencepost.protocol.stored import TransactionLogValue
from fencepost.simulation.crashes import crash_again_and_again

SEEDS = 12
LATEST_ENTRIES = 12

Loses = Callable[[str, bytes], bool]


def is_journal(path: str) -> bool:
    return path.startswith("__transaction_state")


def is_data(path: str, batch: bytes) -> bool:
    return not path.startswith("__") and not read_header(batch).is_control


def is_marker(path: str, batch: bytes) -> bool:
    return not path.startswith("__") and read_header(batch).is_control


def state(path: str, batch: bytes) -> State | None:
    if not is_journal(path):
        return None
    value = decode_batch(batch)[-1].value
    return None if value is None else State(decode_stored(TransactionLogValue, value).transaction_status)


def is_registration(path: str, batch: bytes) -> bool:
    return state(path, batch) is State.ONGOING


def is_decision(path: str, batch: bytes) -> bool:
    return state(path, batch) in (
        State.PREPARE_COMMIT,
        State.PREPARE_ABORT,
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    )


def lose(monkeypatch: pytest.MonkeyPatch, loses: Loses) -> None:
    """Have every start lose what is last in its file, if it is of this kind and among the latest entries."""
    read = Replay.read

    def read_and_lose(self: Replay, disk: Disk, log: CommitLog, from_segments: bool = False) -> None:
        read(self, disk, log, from_segments)
        ended: dict[str, None] = {}
        for entry in reversed(self._bytes[-LATEST_ENTRIES:]):
            known, position, data = entry
            if known.path in ended or position + len(data) != known.size:
                continue
            if loses(known.path, bytes(data)):
                known.size = position
                self._bytes.remove(entry)
            else:
                ended[known.path] = None

    monkeypatch.setattr(Replay, "read", read_and_lose)


def broken_promises(seeds: int = SEEDS) -> list[str]:
    """Of the first seed that shows some; a run that cannot be finished is one, too."""
    for seed in range(seeds):
        try:
            report = crash_again_and_again(seed, 15, power_losses=0)
        except OF_THE_TEST:
            raise
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        if report.faults:
            return report.faults
    return []


def test_data_is_durable_before_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, is_data)
    assert broken_promises()


@pytest.mark.promise("2014.journal")
def test_prepare_is_durable_before_any_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the markers that were on their way some are durable; without PREPARE nobody writes the others again.
    lose(monkeypatch, lambda path, batch: is_decision(path, batch) or (path < "right" and is_marker(path, batch)))
    assert broken_promises()


@pytest.mark.promise("2014.journal")
def test_markers_are_durable_before_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, is_marker)
    assert broken_promises()


def no_work() -> Iterator[None]:
    yield from ()


def test_registration_is_durable_before_the_first_data(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, lambda path, batch: is_registration(path, batch) or is_decision(path, batch))
    monkeypatch.setattr(broker, "_reconcile", lambda _: no_work())
    assert broken_promises()


@pytest.mark.parametrize("seeds", [3, pytest.param(SEEDS, marks=pytest.mark.soak)])
def test_with_every_edge_the_same_runs_break_nothing(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, lambda _path, _batch: False)
    assert broken_promises(seeds) == []
