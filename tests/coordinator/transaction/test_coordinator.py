"""The coordinator as a whole: requests in, records and markers out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.coordinator.transaction.transaction_doubles import A, B, C, World, pair_of, transaction

from fencepost.coordinator.loading import JournalUnreadable, in_turn
from fencepost.coordinator.transaction import Filters, Marker, Results
from fencepost.coordinator.transaction.state import State
from fencepost.log.producer_state import Origin
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, ProducerIdAndEpoch, TopicPartition
from fencepost.runtime import Slices


@pytest.fixture
def world() -> World:
    return World()


def test_a_transaction_from_beginning_to_end(world: World) -> None:
    pair = pair_of(world.init())
    assert pair == (1000, 0)
    assert world.state() == "Empty"
    assert world.add(pair, A) == ErrorCode.NONE
    assert world.add(pair, B, C) == ErrorCode.NONE
    assert world.state() == "Ongoing"
    world.storage.events.clear()
    ended = world.end(pair)
    assert pair_of(ended) == (1000, 1)
    assert world.state() == "CompleteCommit"
    assert world.storage.events == [
        "journal PREPARE_COMMIT",
        "marker a-0",
        "marker a-1",
        "marker b-0",
        "journal COMPLETE_COMMIT",
    ]
    assert ended.lsn == world.storage.lsn
    marker, _ = world.markers.written[0]
    assert marker == (1000, 1, 3, True, 2)


def test_below_version_5_the_epoch_stays() -> None:
    world = World(level=1)
    pair = pair_of(world.init())
    for commit in (True, False):
        assert world.add(pair, version=0) == ErrorCode.NONE
        assert pair_of(world.end(pair, commit, version=3)) == pair
    marker, _ = world.markers.written[-1]
    assert marker == (1000, 0, 3, False, 0)


def test_successor_aborts_its_predecessors_open_transaction(world: World) -> None:
    old = pair_of(world.init())
    world.add(old)
    assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == "CompleteAbort"
    assert world.coordinator.metrics.fenced == 1
    assert pair_of(world.init()) == (1000, 2)
    assert world.coordinator.metrics.fenced == 1
    assert world.add(old) == ErrorCode.PRODUCER_FENCED
    assert world.end(old).error == ErrorCode.PRODUCER_FENCED
    assert world.init(pair=old).error == ErrorCode.PRODUCER_FENCED


def test_without_a_transactional_id_anybody_gets_a_producer_id(world: World) -> None:
    assert pair_of(world.init(None)) == (1000, 0)
    assert pair_of(world.init(None, pair=(7, 7), timeout_ms=Milliseconds(-1))) == (1001, 0)
    world.producer_ids.exhausted = True
    assert world.init(None).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_init_producer_id_checks_the_request_first(world: World) -> None:
    init = world.coordinator.init_producer_id
    assert world.init(pair=(1, -1)).error == ErrorCode.INVALID_REQUEST
    assert world.init(None, pair=(-1, 1)).error == ErrorCode.INVALID_REQUEST
    assert world.init("").error == ErrorCode.INVALID_REQUEST
    assert init("t", Milliseconds(1000), enable_2pc=True).error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init("t", Milliseconds(1000), keep_prepared=True).error == ErrorCode.UNSUPPORTED_VERSION
    for timeout_ms in (0, -1, 900_001):
        assert world.init(timeout_ms=Milliseconds(timeout_ms)).error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.init(timeout_ms=Milliseconds(900_000)).error == ErrorCode.NONE
    world.producer_ids.exhausted = True
    assert world.init("u") == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1, 0, -1, -1)
    assert world.state("u") == ""


def test_ids_that_are_not_here(world: World) -> None:
    unloaded = World(loaded=False)
    for asked, expected in ((world, ErrorCode.INVALID_PRODUCER_ID_MAPPING), (unloaded, ErrorCode.NOT_COORDINATOR)):
        assert asked.add((1, 1)) == expected
        assert asked.end((1, 1)).error == expected
        assert asked.coordinator.verify_partitions("t", ProducerId(1), Epoch(1), [A]) == {A: expected}
        assert asked.add((1, 1), transactional_id="") == ErrorCode.INVALID_REQUEST
        assert asked.end((1, 1), transactional_id="").error == ErrorCode.INVALID_REQUEST
        assert asked.coordinator.verify_partitions("", ProducerId(1), Epoch(1), [A]) == {A: ErrorCode.INVALID_REQUEST}
    assert unloaded.init().error == ErrorCode.NOT_COORDINATOR
    assert unloaded.coordinator.describe("t").error == ErrorCode.NOT_COORDINATOR
    assert unloaded.coordinator.describe("").error == ErrorCode.INVALID_REQUEST
    assert world.coordinator.describe("t") == ("t", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "", 0, 0, 0, 0, (), 100)


def test_every_answer_waits_for_what_it_was_decided_upon(world: World) -> None:
    pair = pair_of(world.init())
    assert world.init(pair=(9, 9)).lsn == world.storage.lsn
    assert world.coordinator.add_partitions("t", *ProducerIdAndEpoch.of(*pair), [A], 2).lsn == world.storage.lsn
    assert world.coordinator.add_partitions("t", *ProducerIdAndEpoch.of(*pair), [A], 2).lsn == world.storage.lsn
    assert world.coordinator.add_partitions("t", ProducerId(9), Epoch(9), [A], 2).lsn == world.storage.lsn
    assert world.end((9, 9)).lsn == world.storage.lsn
    assert world.coordinator.describe("t").lsn == world.storage.lsn
    assert world.coordinator.list().lsn == world.storage.lsn
    ended = world.end(pair)
    again = world.end(pair)
    assert again == ended
    assert again.lsn == world.storage.lsn


def test_a_refused_append_changes_nothing(world: World) -> None:
    mapped = {
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    }
    journal = world.journal("t")
    for refused, told in mapped.items():
        journal.refuse = refused
        assert world.init().error == told
        assert world.coordinator.describe("t").error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    journal.refuse = None
    pair = pair_of(world.init())
    for refused, told in mapped.items():
        journal.refuse = refused
        assert world.add(pair) == told
        assert world.state() == "Empty"
    journal.refuse = None
    world.add(pair)
    for refused, told in mapped.items():
        journal.refuse = refused
        assert world.end(pair).error == told
        assert world.init().error == told
        assert world.state() == "Ongoing"
    journal.refuse = None
    assert pair_of(world.end(pair)) == (pair[0], pair[1] + 1)


def test_the_log_has_one_short_line_for_a_state_that_could_not_be_written(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """What a client calls itself may be anything, and on a full disk it is said again and again."""
    transactional_id = "t\n2026-01-01 CRITICAL the node stops: " + "x" * 30_000
    world.journal(transactional_id).refuse = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.init(transactional_id).error == ErrorCode.NOT_COORDINATOR
    (said,) = [record.getMessage() for record in caplog.records]
    assert "could not be written transactional_id='t\\n2026" in said and len(said.splitlines()) == 1 and len(said) < 300


def test_markers_that_cannot_be_written_yet_are_tried_again(world: World) -> None:
    pair = pair_of(world.init())
    world.add(pair, A, B, C)
    world.markers.answers = {B: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.markers.silent = [C]
    ended = world.end(pair)
    following = pair_of(ended)
    assert following == (1000, 1)
    assert world.state() == "PrepareCommit"
    assert world.coordinator.describe("t").partitions == (B, C)
    for concurrent in (world.add(following), world.end(following).error, world.end(pair).error, world.init().error):
        assert concurrent == ErrorCode.CONCURRENT_TRANSACTIONS
    world.tick(world.clock.advance(19))
    assert world.markers.attempts == 1
    world.tick(world.clock.advance(1))
    assert world.markers.attempts == 2
    world.markers.answers.clear()
    world.tick(world.clock.advance(39))
    assert world.markers.attempts == 2
    world.tick(world.clock.advance(1))
    assert world.coordinator.describe("t").partitions == (C,)
    world.markers.silent = []
    world.tick(world.clock.advance(80))
    assert world.state() == "CompleteCommit"
    assert [partition for _, partition in world.markers.written] == [A, B, C]
    assert world.add(following) == ErrorCode.NONE


def test_a_clock_that_jumps_back_does_not_delay_markers(world: World) -> None:
    pair = pair_of(world.init())
    world.add(pair)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.end(pair)
    world.markers.answers.clear()
    world.tick(world.clock.advance(-3_600_000))
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_a_partition_that_can_have_no_marker_is_not_waited_for(world: World, error: ErrorCode) -> None:
    pair = pair_of(world.init())
    world.add(pair, A, B)
    world.markers.answers = {B: error}
    world.end(pair)
    assert world.state() == "CompleteCommit"


def test_complete_is_appended_again_after_a_refusal(world: World) -> None:
    pair = pair_of(world.init())
    world.add(pair)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.end(pair)
    world.markers.answers.clear()
    world.journal("t").refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.retry_markers()
    assert world.state() == "PrepareCommit"
    world.journal("t").refuse = None
    world.tick(world.clock.advance(1000))
    assert world.state() == "CompleteCommit"
    assert len(world.markers.written) == 1


def test_complete_is_appended_later_where_the_journal_is_full_behind_the_markers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(world.init())
    world.add(pair)
    journal, take = world.journal("t"), world.markers.take

    def last_to_be_taken(marker: Marker, partitions: Sequence[TopicPartition]) -> Results:
        journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        return take(marker, partitions)

    monkeypatch.setattr(world.markers, "take", last_to_be_taken)
    following = pair_of(world.end(pair))
    assert world.state() == "PrepareCommit"
    assert world.add(following) == ErrorCode.CONCURRENT_TRANSACTIONS
    journal.refuse = None
    world.tick(world.clock.advance(1000))
    assert world.state() == "CompleteCommit"
    assert world.add(following) == ErrorCode.NONE
    assert len(world.markers.written) == 1


async def _let_it_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_markers_on_another_node() -> None:
    async def scenario() -> None:
        world = World()
        pair = pair_of(world.init())
        world.add(pair, A, B)
        world.markers.remote = True
        assert pair_of(world.end(pair)) == (1000, 1)
        world.tick(world.clock.advance(5000))
        assert world.markers.attempts == 1, "what is on its way is not sent twice"
        assert world.state() == "PrepareCommit"
        world.markers.answers = {B: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        world.markers.answer()
        await _let_it_run()
        assert world.coordinator.describe("t").partitions == (B,)
        assert world.markers.attempts == 2, "it is tried again without a tick"
        world.markers.waiting.pop().set_exception(OSError("gone"))
        world.markers._held.clear()
        world.clock.advance(5000)
        await _let_it_run()
        assert world.state() == "PrepareCommit"
        assert world.markers.attempts == 3
        world.markers.answers.clear()
        world.markers.answer()
        await _let_it_run()
        assert world.state() == "CompleteCommit"

    asyncio.run(scenario())


def test_requests_wait_while_a_partition_is_loaded() -> None:
    async def scenario() -> None:
        world = World(partitions=2)
        for n in range(400):
            pair_of(world.init(f"t{n}"))
        world.coordinator = world.new_coordinator(loaded=False)
        step = world.coordinator.start_loading(world.coordinator.partition_for("t0"))
        assert step is not None
        loading = asyncio.ensure_future(Slices().run(in_turn([step])))
        assert world.init("t0").error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.add((1000, 0), transactional_id="t0") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.end((1000, 0), transactional_id="t0").error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.coordinator.describe("t0").error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.coordinator.list().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.coordinator.verify_partitions("t0", ProducerId(1000), Epoch(0), [A]) == {
            A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        }
        await loading
        assert world.add((1000, 0), transactional_id="t0") == ErrorCode.NONE
        assert world.coordinator.list().error == ErrorCode.NONE

    asyncio.run(scenario())


def test_a_journal_that_cannot_be_read_is_not_half_published(world: World) -> None:
    pair_of(world.init())
    journal = world.journal("t")
    journal.append(journal.batches[-1], Origin.COORDINATOR, world.clock.now())
    damaged = bytearray(journal.batches[-1])
    damaged[-20] ^= 255
    journal.batches.append(bytes(damaged))
    world.coordinator = world.new_coordinator(loaded=False)
    index = world.coordinator.partition_for("t")
    with pytest.raises(JournalUnreadable, match="cannot be read at offset"):
        world.coordinator.load(index)
    assert world.init().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.coordinator.load(index)
    assert world.init().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.promise("2014.coordinator-failure")
def test_prepared_transactions_go_on_after_a_fail_over() -> None:
    for commit in (True, False):
        world = World()
        pair = pair_of(world.init())
        world.add(pair, A, B)
        world.markers.answers = {B: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        world.end(pair, commit)
        world.markers.answers.clear()
        world.markers.written.clear()
        world.fail_over()
        assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert [(marker.commit, marker.coordinator_epoch, where) for marker, where in world.markers.written] == [
            (commit, 4, A),
            (commit, 4, B),
        ]
        assert pair_of(world.end(pair, commit)) == (1000, 1)


def test_open_transactions_that_nobody_knows_of_are_aborted(world: World) -> None:
    pair = ProducerIdAndEpoch.of(*pair_of(world.init()))
    world.add(pair, A)
    unknown = ProducerIdAndEpoch.of(5, 6)
    reconciled = world.coordinator.reconcile({A: [pair, unknown], B: [pair], C: [unknown]})
    assert reconciled == {unknown: [A, C], pair: [B]}
    assert [(marker[:2], marker.commit, where) for marker, where in world.markers.written] == [
        (unknown, False, A),
        (unknown, False, C),
        (pair, False, B),
    ]
    assert world.state() == "Ongoing"


def test_nothing_is_reconciled_before_everything_is_known() -> None:
    world = World(loaded=False)
    world.coordinator.load(0)
    assert world.coordinator.reconcile({A: [ProducerIdAndEpoch.of(5, 6)]}) == {}
    assert world.markers.written == []


def test_listing(world: World) -> None:
    for name in ("one", "two", "three"):
        pair_of(world.init(name))
    world.add((1001, 0), transactional_id="two")

    def ids(filters: Filters) -> list[str]:
        listing = world.coordinator.list(filters)
        assert listing.error == ErrorCode.NONE
        return [each.transactional_id for each in listing.transactions]

    assert ids(Filters(duration_ms=Milliseconds(0))) == ["one", "three"], "it has only just begun"
    world.clock.advance(5000)
    assert ids(Filters()) == ["one", "two", "three"]
    assert ids(Filters(states=["Ongoing"])) == ["two"]
    assert ids(Filters(states=["Empty", "Nonsense"])) == ["one", "three"]
    assert ids(Filters(states=["Nonsense"])) == []
    assert world.coordinator.list(Filters(states=["Nonsense"])).unknown_states == ("Nonsense",)
    assert ids(Filters(producer_ids=[1002])) == ["three"]
    assert ids(Filters(duration_ms=Milliseconds(4999))) == ["one", "two", "three"], "an id without a start passes"
    assert ids(Filters(duration_ms=Milliseconds(5000))) == ["one", "three"]
    assert ids(Filters(pattern="t.*")) == ["two", "three"]
    assert ids(Filters(pattern="w")) == []
    assert world.coordinator.list(Filters(pattern="(")).error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.coordinator.list(Filters(pattern="a" * 2000)).error == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_never_ending_duplicate_does_not_grow_memory(world: World) -> None:
    pair = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    for _ in range(2000):
        world.add(pair)
        pair = pair_of(world.end(pair))
    assert len(world.coordinator._alarms._heap) == 1
    assert len(world.coordinator._delivery) == 0


def test_settings_are_plain(world: World) -> None:
    changed = world.with_settings(lambda settings: replace(settings, max_timeout_ms=Milliseconds(10)))
    assert changed.init(timeout_ms=Milliseconds(11)).error == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("fail_over", [False, True])
def test_an_instance_that_was_given_another_producer_id_at_an_end_keeps_its_identity(fail_over: bool) -> None:
    world = World()
    world.put(transaction(State.ONGOING, producer_id=500, producer_epoch=32766))
    world.markers.answers.clear()
    assert pair_of(world.end((500, 32766))) == (1000, 0)
    for _ in range(2):
        if fail_over:
            world.fail_over()
        assert pair_of(world.init(pair=(1000, 0))) == (1000, 1), "a lost answer is given again"
