"""Write docs/reference/transactions from the coordinator's own tables: states, every cell, differences.

    python scripts/transaction_reference.py

A test keeps the pages current.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.decision import Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.differences import DIFFERENCES
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.initialize import Initialize, initialize
from fencepost.coordinator.transaction.state import STORED, TRANSITIONS, State
from fencepost.coordinator.transaction.transaction import NO_PAIR, Pair, TransactionMetadata
from fencepost.coordinator.transaction.verify import verify
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, TopicPartition

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference" / "transactions"

NOW = Milliseconds(1_700_000_000_000)
PRODUCER, EPOCH, INSTANCE, FRESH, FOREIGN = ProducerId(10), Epoch(7), Epoch(4), ProducerId(99), ProducerId(11)
KNOWN, OTHER = TopicPartition("in", 0), TopicPartition("new", 0)

#: what a caller may come with -> its pair
PAIRS = {
    "no pair": NO_PAIR,
    "current": Pair(PRODUCER, EPOCH),
    "one back": Pair(PRODUCER, Epoch(EPOCH - 1)),
    "earlier, this instance": Pair(PRODUCER, INSTANCE),
    "older instance": Pair(PRODUCER, Epoch(INSTANCE - 1)),
    "ahead": Pair(PRODUCER, Epoch(EPOCH + 1)),
    "another producer id": Pair(FOREIGN, EPOCH),
}

Cell = Callable[[TransactionMetadata, Pair], str]


def transaction(state: State, pending: State | None, timed_out: bool) -> TransactionMetadata:
    """A transactional id in a state, held by producer id 10 at epoch 7, its instance since epoch 4."""
    opened = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return TransactionMetadata(
        "id",
        PRODUCER,
        EPOCH,
        PRODUCER,
        timeout_ms=Milliseconds(60_000),
        state=state,
        pending=pending,
        partitions={KNOWN: None} if opened else {},
        start_timestamp=Milliseconds(-1) if state is State.EMPTY else NOW,
        last_update_timestamp=NOW,
        client_transaction_version=2,
        instance_epoch=INSTANCE,
        timed_out=Pair(PRODUCER, Epoch(EPOCH - 1)) if timed_out else NO_PAIR,
    )


def pair_text(producer_id: int, epoch: int) -> str:
    if producer_id < 0:
        return ""
    who = {PRODUCER: "P", FRESH: "P'", FOREIGN: "Q"}[ProducerId(producer_id)]
    if who != "P":
        return f" ({who}, {epoch})"
    step = epoch - EPOCH
    return f" (P, E{f'{step:+d}' if step else ''})"


def outcome(decision: object) -> str:
    """A decision in a few words."""
    match decision:
        case Refusal(error=error):
            return error.name
        case Unchanged(producer_id=producer_id, producer_epoch=epoch):
            return "ok" + pair_text(producer_id, epoch)
        case Transition(to=to, error=error, producer_id=producer_id, producer_epoch=epoch):
            answer = "ok" + pair_text(producer_id, epoch) if error is ErrorCode.NONE else error.name
            return f"{answer}, then {(to.pending or to.state).wire_name}"
    raise AssertionError(f"no decision: {decision}")


def init_cell(level: int) -> Cell:
    def cell(of: TransactionMetadata, pair: Pair) -> str:
        return outcome(initialize(of, Initialize(pair, Milliseconds(60_000)), NOW, level, FRESH))

    return cell


def end_cell(commit: bool, version: int, level: int) -> Cell:
    def cell(of: TransactionMetadata, pair: Pair) -> str:
        return outcome(end(of, End(*pair, commit, version), NOW, level, FRESH))

    return cell


def add_cell(version: int, at: TopicPartition, level: int) -> Cell:
    def cell(of: TransactionMetadata, pair: Pair) -> str:
        return outcome(add_partitions(of, AddPartitions(*pair, [at], version), NOW, level))

    return cell


def verify_cell(at: TopicPartition) -> Cell:
    def cell(of: TransactionMetadata, pair: Pair) -> str:
        found = verify(of, *pair, [at])
        error = next(iter(found.values())) if not isinstance(found, ErrorCode) else found
        return "ok" if error is ErrorCode.NONE else error.name

    return cell


def sections() -> Iterator[tuple[str, Cell, bool]]:
    """Title, cell, and whether the caller may come without a pair."""
    for level in (2, 1, 0):
        yield f"InitProducerId, transaction.version {level}", init_cell(level), True
    for level in (2, 0):
        for commit in (True, False):
            what = "commit" if commit else "abort"
            yield f"EndTxn({what}) v0-v4, transaction.version {level}", end_cell(commit, 4, level), False
            yield f"EndTxn({what}) v5, transaction.version {level}", end_cell(commit, 5, level), False
    for version, name in (
        (0, "AddPartitionsToTxn v0-v3, AddOffsetsToTxn"),
        (2, "implicit add (Produce v12, TxnOffsetCommit v5)"),
    ):
        yield f"{name}: a partition that is in", add_cell(version, KNOWN, 2), False
        yield f"{name}: a new partition", add_cell(version, OTHER, 2), False
    yield "verification (AddPartitionsToTxn v4, v5, verify only): a partition that is in", verify_cell(KNOWN), False
    yield "verification: a partition that is not in", verify_cell(OTHER), False


def situations() -> Iterator[tuple[str, TransactionMetadata]]:
    """The rows of every table."""
    for state in STORED:
        yield state.wire_name, transaction(state, None, False)
    yield "CompleteAbort, by a time-out", transaction(State.COMPLETE_ABORT, None, True)
    yield "Ongoing, an end being written", transaction(State.ONGOING, State.PREPARE_COMMIT, False)
    yield "PrepareAbort, markers missing", transaction(State.PREPARE_ABORT, State.COMPLETE_ABORT, False)
    yield "PrepareAbort of a time-out, markers missing", transaction(State.PREPARE_ABORT, State.COMPLETE_ABORT, True)


def requests_page() -> str:
    lines = [
        "# Every cell",
        "",
        "What each request is answered, by the state of the transactional id (rows) and the pair that the caller comes",
        "with (columns). The id is held by (P, E), by an instance that began three epochs before E. An answer may",
        "carry a pair, and a state follows where it changes.",
        "Generated from the coordinator's decisions; do not edit.",
    ]
    for title, cell, without_pair in sections():
        pairs = {name: pair for name, pair in PAIRS.items() if without_pair or pair != NO_PAIR}
        lines += ["", f"## {title}", "", "| state | " + " | ".join(pairs) + " |", "|---" * (len(pairs) + 1) + "|"]
        for name, of in situations():
            lines.append(f"| {name} | " + " | ".join(cell(of, pair) for pair in pairs.values()) + " |")
    return "\n".join(lines) + "\n"


def states_page() -> str:
    lines = [
        "# States",
        "",
        "Who may bring a transactional id from one state to another. Generated from the coordinator's table; do not",
        "edit.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {State.EMPTY.wire_name}",
    ]
    for (before, after), causes in TRANSITIONS.items():
        reason = ", ".join(cause.name.lower().replace("_", " ") for cause in causes)
        lines.append(f"    {before.wire_name} --> {after.wire_name}: {reason}")
    lines += ["```", "", "| from | to | by |", "|---|---|---|"]
    for (before, after), causes in TRANSITIONS.items():
        lines.append(f"| {before.wire_name} | {after.wire_name} | {'; '.join(cause.value for cause in causes)} |")
    return "\n".join(lines) + "\n"


def differences_page() -> str:
    lines = [
        "# Differences from Apache Kafka",
        "",
        "Everything else is answered alike, code by code. Generated from the coordinator's list; do not edit.",
        "",
        "| request | situation | Apache Kafka 4.3 | Fencepost | why | source |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(entry)} |" for entry in DIFFERENCES),
    ]
    return "\n".join(lines) + "\n"


PAGES = {"states.md": states_page, "requests.md": requests_page, "differences.md": differences_page}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
        print(f"wrote {FOLDER / name}")


if __name__ == "__main__":
    main()
