"""Tasks that write one topic-partition by turns: whoever writes is counted, and nobody who is late writes."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition
from fencepost.spark.attempt import SECOND_ATTEMPT, PoisonedError
from fencepost.spark.claims import Written
from fencepost.spark.ledger import Ledger, Turns, close_places
from fencepost.spark.ledger_file import LedgerFile, new_ledger, open_ledger, packed, shared_ledger, unpacked
from fencepost.spark.place_states import MOVES, NOTHING_THERE, REFUSED, Kind, Move, PlaceState, moved, refused_closing

PLACES = [TopicPartition("out", number) for number in range(3)]


@pytest.fixture
def path() -> Iterator[str]:
    with new_ledger(len(PLACES)) as path:
        yield path


def wrote(path: str, place: int, records: int) -> None:
    with open_ledger(path) as ledger, ledger.turn(place) as mine:
        assert mine is not None
        mine.begin()
        mine.settle(records)


def close(path: str, written: list[Written]) -> None:
    with open_ledger(path) as ledger:
        close_places(ledger, PLACES, written)


class Acknowledged:
    """An attempt of which everything is acknowledged.  `after`: of each place, behind how many records it went on."""

    def __init__(self) -> None:
        self.after: dict[TopicPartition, int] = {}

    def go_on(self, at: TopicPartition, records: int) -> None:
        assert at not in self.after
        self.after[at] = records

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:
        pass

    async def finish(self, rows: int) -> list[Written]:
        return reported(rows, 0, 0)


class Noted:
    """The states of places in memory, whose locks everybody has (spark.ledger.LedgerStore)."""

    def __init__(self) -> None:
        self.states: dict[int, PlaceState] = {}
        self.is_closed = False

    def lock(self, place: int) -> bool:  # noqa: ARG002
        return True

    def unlock(self, place: int) -> None:
        """There is nobody else."""

    def read(self, place: int) -> PlaceState:
        return self.states.get(place, NOTHING_THERE)

    def note(self, place: int, state: PlaceState) -> None:
        self.states[place] = state

    def close(self) -> None:
        self.is_closed = True


def turns(path: str, attempt: Any) -> Turns:
    return Turns(open_ledger(path), attempt, PLACES)


def records(count: int) -> Any:
    return SimpleNamespace(count=count)


def reported(*records: int) -> list[Written]:
    """By one task, so many for each place; none of those with 0."""
    rows = sum(records)
    found = [
        Written(0, ProducerId(1), Epoch(0), rows, *at, count, 0, count - 1)
        for at, count in zip(PLACES, records, strict=True)
        if count
    ]
    return found or [Written(0, ProducerId(1), Epoch(0), 0)]


def test_who_has_a_turn_goes_on_where_others_stopped(path: str) -> None:
    wrote(path, 1, 3)
    wrote(path, 1, 4)
    with open_ledger(path) as ledger:
        for place, records in enumerate((0, 7, 0)):
            with ledger.turn(place) as mine:
                assert mine is not None and mine.records == records


def test_a_task_after_the_shuffle_has_one_turn_at_a_place_from_its_first_batch_on(path: str) -> None:
    wrote(path, 1, 3)
    attempt = Acknowledged()

    async def write() -> None:
        for place, count in ((1, 4), (2, 5), (1, 6)):
            await its.write(place, records(count))
        assert await its.finish(15) == reported(15, 0, 0)

    with turns(path, attempt) as its:
        asyncio.run(write())
    assert attempt.after == {PLACES[1]: 3, PLACES[2]: 0}
    with open_ledger(path) as ledger, ledger.turn(1) as one, ledger.turn(2) as other:
        assert one is not None and other is not None
        assert (one.records, other.records) == (13, 5)


@pytest.mark.parametrize("by_turns", [True, False])
def test_nobody_writes_where_one_stopped_in_the_middle(path: str, by_turns: bool) -> None:
    with ExitStack() as its:
        if by_turns:
            asyncio.run(its.enter_context(turns(path, Acknowledged())).write(0, records(5)))
        else:
            mine = its.enter_context(its.enter_context(open_ledger(path)).turn(0))
            assert mine is not None
            mine.begin()
    with open_ledger(path) as ledger, pytest.raises(PoisonedError, match=SECOND_ATTEMPT), ledger.turn(0):
        pass
    with pytest.raises(PoisonedError, match=SECOND_ATTEMPT):
        close(path, reported(5, 0, 0))


@pytest.mark.parametrize("amiss", [(0, 0, 0), (0, 2, 0), (0, 4, 0), (3, 0, 0), (0, 3, 1)])
def test_nothing_is_committed_unless_what_is_written_is_what_is_reported(path: str, amiss: tuple[int, ...]) -> None:
    wrote(path, 1, 3)
    with pytest.raises(PoisonedError, match="another attempt wrote there too"):
        close(path, reported(*amiss))


def test_where_what_was_sent_is_not_acknowledged_nothing_is_settled(path: str) -> None:
    class Unanswered(Acknowledged):
        async def finish(self, rows: int) -> list[Written]:
            raise TimeoutError(f"{rows} rows are not acknowledged")

    async def write() -> None:
        await its.write(1, records(3))
        with pytest.raises(TimeoutError):
            await its.finish(3)

    with turns(path, Unanswered()) as its:
        asyncio.run(write())
    with open_ledger(path) as ledger, pytest.raises(PoisonedError, match="stopped in the middle"), ledger.turn(1):
        pass


def test_once_the_driver_has_looked_nobody_writes_anywhere(path: str) -> None:
    wrote(path, 1, 3)
    close(path, reported(0, 3, 0))
    for place in range(3):
        with pytest.raises(PoisonedError, match="late"):
            wrote(path, place, 1)


def _hold(path: str, has_it: Any, let_go: Any) -> None:
    with open_ledger(path) as ledger, ledger.turn(1) as mine:
        assert mine is not None
        has_it.set()
        let_go.wait()


def test_only_one_process_has_a_turn_at_a_place(path: str) -> None:
    processes = multiprocessing.get_context("spawn")
    has_it, let_go = processes.Event(), processes.Event()
    holder = processes.Process(target=_hold, args=(path, has_it, let_go))
    holder.start()
    try:
        assert has_it.wait(60)
        with open_ledger(path) as ledger, ledger.turn(1) as held, ledger.turn(0) as free:
            assert held is None and free is not None
        with pytest.raises(PoisonedError, match="still writ"), turns(path, Acknowledged()) as its:
            asyncio.run(its.write(1, records(5)))
        with pytest.raises(PoisonedError, match="still writ"):
            close(path, reported(0, 0, 0))
    finally:
        let_go.set()
        holder.join()
    wrote(path, 1, 1)


def test_who_comes_when_the_run_is_over_finds_no_ledger() -> None:
    with new_ledger(1) as path:
        pass
    with pytest.raises(FileNotFoundError):
        open_ledger(path)


@pytest.mark.parametrize(
    ("master", "is_shared"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://127.0.0.1:7077", False),
        ("yarn", False),
        (None, False),
    ],
)
def test_only_tasks_of_one_machine_share_a_ledger(master: str | None, is_shared: bool) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    with shared_ledger(spark, 1) as path:
        assert (path is not None) is is_shared


LOCAL: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))


def test_where_no_temporary_file_can_be_made_nothing_is_sent_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with shared_ledger(LOCAL, 1) as path:
        assert path is None
    assert "written after the shuffle only" in caplog.text


@pytest.mark.parametrize("room", [0, 8, 23])
def test_where_the_disk_is_full_nothing_is_sent_ahead(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Noticed before anything is sent, and not by a task in the middle of its turn; nothing is left there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with shared_ledger(LOCAL, 3) as path:
            assert path is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert "written after the shuffle only" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_write_is_not_taken_for_one_of_the_ledger() -> None:
    with pytest.raises(OSError, match="of the write"), shared_ledger(LOCAL, 1):
        raise OSError("of the write")


def test_who_has_a_turn_may_do_what_the_table_says_and_nothing_else() -> None:
    """Nobody takes a turn but where all is acknowledged, and what is closed stays so."""
    assert [kind for kind in Kind if REFUSED[kind] is None] == [Kind.SETTLED]
    assert [kind for kind in Kind if Move.CLOSE in MOVES[kind]] == [Kind.SETTLED] and not MOVES[Kind.CLOSED]
    assert moved(PlaceState(Kind.SETTLED, 3), Move.BEGIN) == PlaceState(Kind.UNSETTLED, 3)
    assert moved(PlaceState(Kind.UNSETTLED, 3), Move.SETTLE, 4) == PlaceState(Kind.SETTLED, 7)
    for kind in Kind:
        for move in set(Move) - set(MOVES[kind]):
            with pytest.raises(AssertionError, match=move.name):
                moved(PlaceState(kind), move)


class LateLock(LedgerFile):
    """Another one's turn ends just before this one gets the lock."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path

    def lock(self, place: int) -> bool:
        with open(self._path, "r+b", buffering=0) as file:
            file.seek(8 * place)
            file.write(packed(PlaceState(Kind.SETTLED, 5)))
        return super().lock(place)


def test_how_far_a_place_is_written_is_looked_at_when_nobody_else_writes_any_more(path: str) -> None:
    with Ledger(LateLock(path)) as ledger, ledger.turn(1) as mine:
        assert mine is not None and mine.records == 5


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (PlaceState(Kind.SETTLED, 3), True),
        (PlaceState(Kind.SETTLED, 2), False),
        (PlaceState(Kind.SETTLED, 4), False),
        (PlaceState(Kind.UNSETTLED, 3), False),
        (PlaceState(Kind.CLOSED, 3), False),
        (None, False),
    ],
)
def test_the_driver_closes_a_place_only_where_all_that_is_there_is_reported(
    state: PlaceState | None, may: bool
) -> None:
    assert (refused_closing(PLACES[0], state, 3) is None) is may


@pytest.mark.parametrize("kind", Kind)
def test_a_state_is_in_the_file_as_it_was_noted(kind: Kind) -> None:
    records = 2**40 if kind is Kind.SETTLED else 0
    assert unpacked(packed(PlaceState(kind, records))) == PlaceState(kind, records)


@pytest.mark.parametrize("data", [b"", b"\0" * 7, (-3).to_bytes(8, "big", signed=True)])
def test_what_is_no_state_is_taken_for_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="ledger"):
        unpacked(data)


@pytest.mark.parametrize("fails", [True, False])
def test_a_turn_is_over_for_others_however_it_ended(fails: bool) -> None:
    """A process may have the ledger open for longer than its turn lasts."""
    held: set[int] = set()

    class Locks(Noted):
        def lock(self, place: int) -> bool:
            held.add(place)
            return True

        def unlock(self, place: int) -> None:
            held.remove(place)

    ledger = Ledger(Locks())
    with suppress(ValueError), ledger.turn(0):
        assert held == {0}
        if fails:
            raise ValueError("what was sent failed")
    assert not held
    ledger._store.note(0, moved(moved(NOTHING_THERE, Move.BEGIN), Move.SETTLE, 1))
    ledger._store.note(0, moved(ledger._store.read(0), Move.CLOSE))
    with pytest.raises(PoisonedError), ledger.turn(0):
        pass
    assert not held


def test_who_has_had_its_turns_has_the_ledger_open_no_more() -> None:
    store = Noted()
    with Turns(Ledger(store), cast(Any, Acknowledged()), PLACES) as its:
        asyncio.run(its.write(1, records(3)))
        assert not store.is_closed
    assert store.is_closed


def test_what_the_file_does_not_take_whole_is_not_taken_for_noted(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_ledger(path) as ledger:
        monkeypatch.setattr("fencepost.spark.ledger_file.os.pwrite", lambda *_: 3)
        with ledger.turn(0) as mine:
            assert mine is not None
            with pytest.raises(OSError, match="the ledger takes no more of place 0"):
                mine.begin()


@pytest.mark.parametrize("error", [BlockingIOError, PermissionError])
def test_a_place_that_another_process_has_is_not_locked_whichever_error_says_so(
    path: str, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def refuse(*_: object) -> None:
        raise error("another process has it")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with open_ledger(path) as ledger, ledger.turn(0) as mine:
        assert mine is None
