"""Places in the code that runs must come by: what no run enters, no run has tried.

The code knows nothing of it.  Each mark names a function, and what is looked at when it returns.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

Seen = Callable[[Any, tuple[Any, ...]], bool]
"""Given what a function returned, and its arguments: whether the mark was reached."""


def _always(result: Any, arguments: tuple[Any, ...]) -> bool:  # noqa: ARG001
    return True


def _found(result: Any, arguments: tuple[Any, ...]) -> bool:  # noqa: ARG001
    return bool(result)


class Mark(NamedTuple):
    """A function in the code that runs are to reach, and what must be seen when it returns."""

    what: str
    place: str
    """module:function, or module:Class.function"""
    seen: Seen = _always


def _rolled(result: Any, arguments: tuple[Any, ...]) -> bool:  # noqa: ARG001
    return len(arguments[0].segments) > 1


def _moved(result: Any, arguments: tuple[Any, ...]) -> bool:
    return bool(result > arguments[1])


def _refused(result: Any, arguments: tuple[Any, ...]) -> bool:  # noqa: ARG001
    return not result


def _of_producers(result: Any, arguments: tuple[Any, ...]) -> bool:  # noqa: ARG001
    return not arguments[0].directory.name.startswith("__")


def _begun_before(result: Any, arguments: tuple[Any, ...]) -> bool:
    return result is not None and arguments[0] is result


def _wrapped(result: Any, arguments: tuple[Any, ...]) -> bool:
    return bool(result < arguments[0])


_LOG, _TRANSACTIONS = "fencepost.log", "fencepost.coordinator.transaction"
MARKS: Final[Sequence[Mark]] = (
    Mark("a segment is begun", f"{_LOG}.partition:Partition.roll", _rolled),
    Mark("a checkpoint under way", f"{_LOG}.checkpointing:Checkpoints._begin"),
    Mark("data that stays out of the commit log", f"{_LOG}.commit_log:CommitLog.add_extent"),
    Mark("a segment is removed", f"{_LOG}.storage:Storage.segment_removed"),
    Mark("the start of a log moves", f"{_LOG}.storage:Storage.start_moved"),
    Mark("retention moves the start of a log", f"{_LOG}.partition:new_start", _moved),
    Mark("a full disk takes nothing", f"{_LOG}.space:Space.refused"),
    Mark("a file cannot be written", f"{_LOG}.partition:not_written"),
    Mark("the storage fails", f"{_LOG}.storage:Storage.fail"),
    Mark("a partition is deleted", f"{_LOG}.storage:Storage.delete_partition"),
    Mark("a batch again", f"{_LOG}.producers:Producers.duplicate_of", lambda result, _: result is not None),
    Mark("a producer is refused", f"{_LOG}.producers:Producers.check_data", lambda result, _: result is not None),
    Mark("a marker is refused", f"{_LOG}.producers:Producers.check_marker", lambda result, _: result is not None),
    Mark("a sequence begins at 0 again", f"{_LOG}.producer_state:next_sequence", _wrapped),
    Mark("an aborted transaction is looked up", f"{_LOG}.segments:Segments.aborted_transactions", _found),
    Mark("a log is compacted", f"{_LOG}.cleaner.cleaning:_put_in_place"),
    Mark("a topic that producers write to is compacted", f"{_LOG}.cleaner.cleaning:_put_in_place", _of_producers),
    Mark("a record nearly as large as it may be", "fencepost.simulation.record_shapes:Shape.headers_of", _found),
    Mark("a journal is rolled", f"{_LOG}.cleaner.surveying:should_roll", _found),
    Mark("what a crash left in the commit log is written", f"{_LOG}.replay:Replay._apply_to"),
    Mark("a transaction is timed out", f"{_TRANSACTIONS}.coordinator:time_out"),
    Mark("a producer id is exhausted", f"{_TRANSACTIONS}.prepare:is_exhausted", _found),
    Mark(
        "a producer id is handed out",
        "fencepost.simulation.checkers.producer_ids:ProducerIds.add",
        lambda told, _: not told,
    ),
    Mark("a transactional id is forgotten", f"{_TRANSACTIONS}.shards:TransactionCoordinatorShards.forget"),
    Mark("a coordinator moves", f"{_TRANSACTIONS}.coordinator:TransactionCoordinator.resign"),
    Mark("a marker is tried again", f"{_TRANSACTIONS}.shards:Completion.postpone"),
    Mark("a group rebalances", "fencepost.coordinator.group.classic.join:prepare_rebalance"),
    Mark("a member's session is over", "fencepost.coordinator.group.membership:session_timer_rang"),
    Mark("offsets of a transaction are decided", "fencepost.coordinator.group.offsets:Offsets.complete"),
    Mark(
        "a transaction's positions come from an outdated member",
        "fencepost.coordinator.group.coordinator:validate_transactional_offset_commit",
        _found,
    ),
    Mark("a member's positions are refused", "fencepost.coordinator.group.coordinator:validate_offset_commit", _found),
    Mark("an attempt is refused its slot", "fencepost.spark.attempt:follows", _refused),
    Mark("a driver finds slots that others claimed", "fencepost.spark.driver:refusal", _found),
    Mark("a driver judges what was committed before", "fencepost.spark.driver:judge"),
    Mark(
        "a batch comes after the end of its transaction", "fencepost.simulation.windowed_load:_Windowed._check_fenced"
    ),
    Mark("a client's batch is sent again", "fencepost.client.batch_ends:BatchEnds.again"),
    Mark("what another process prepared is completed", "fencepost.client.transactional_id:TransactionalId.complete"),
    Mark("a call to complete it is made again", "fencepost.client.transactions:completion", _begun_before),
    Mark(
        "a client takes the next epoch by itself",
        "fencepost.client.transactions:Transactions._next_producer_id_and_epoch",
    ),
    Mark(
        "a reader gives partitions of its fetch session up",
        "fencepost.client.fetch_session:FetchSession.ask",
        lambda asked, _: bool(asked.forgotten),
    ),
    Mark(
        "a reader's fetch session begins anew",
        "fencepost.client.fetch_session:FetchSession.ask",
        lambda asked, _: asked.session_id != 0 and asked.epoch == 0,
    ),
    Mark(
        "a node has forgotten a reader's fetch session",
        "fencepost.client.fetch_session:FetchSession.answered",
        lambda answer, _: answer is None,
    ),
)


@contextmanager
def counted(marks: Sequence[Mark] = MARKS) -> Iterator[Counter[str]]:
    """A count of how often each mark is reached while this lasts; 0 for those that are not."""
    reached: Counter[str] = Counter({mark.what: 0 for mark in marks})
    former: list[tuple[Any, str, Any]] = []
    try:
        for mark in marks:
            owner, name = _owner(mark.place)
            function = inspect.getattr_static(owner, name)
            former.append((owner, name, function))
            setattr(owner, name, _counting(function, mark, reached))
        yield reached
    finally:
        for owner, name, function in reversed(former):
            setattr(owner, name, function)


def _owner(place: str) -> tuple[Any, str]:
    path, _, name = place.partition(":")
    owner: Any = importlib.import_module(path)
    *outer, last = name.split(".")
    for each in outer:
        owner = getattr(owner, each)
    return owner, last


def _counting(function: Callable[..., Any], mark: Mark, reached: Counter[str]) -> Callable[..., Any]:
    what, seen = mark.what, mark.seen

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if seen is _found:
            if result:
                reached[what] += 1
        elif seen is _always or seen(result, arguments):
            reached[what] += 1
        return result

    return call
