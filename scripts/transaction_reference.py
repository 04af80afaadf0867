"""Write docs/reference/transactions from the coordinator's own tables: states, every cell, differences.

    python scripts/transaction_reference.py

A test keeps the pages current.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import DOCS, write
from scripts.transaction_situations import (
    FRESH,
    KNOWN,
    LAST,
    MIDDLE,
    NEW,
    NOW,
    TIMEOUT,
    Situation,
    callers,
    reach,
)

from fencepost.broker import differences as leader
from fencepost.broker.leader.verification import Mode, Verified, of_leader
from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.decision import Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.differences import DIFFERENCES, Ground
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.initialize import Initialize, initialize
from fencepost.coordinator.transaction.state import TRANSITIONS, State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.coordinator.transaction.verify import verify
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_PRODUCER, Epoch, ProducerId, ProducerIdAndEpoch, TopicPartition

FOLDER = DOCS / "reference" / "transactions"

ABSENT = ErrorCode.INVALID_PRODUCER_ID_MAPPING.name
NOTHING = "-"

#: What a request is answered, in words: (the id, the caller's pair, transaction.version).
Cell = Callable[[TransactionMetadata, ProducerIdAndEpoch, int], str]


class Table(NamedTuple):
    """One request; `levels` of transaction.version that differ, and whether it may come without a pair."""

    request: str
    cell: Cell
    levels: tuple[int, ...]
    without_pair: bool = False


def pair_text(of: TransactionMetadata, producer_id: ProducerId, epoch: Epoch) -> str:
    """A pair, relative to the one that is held."""
    if producer_id < 0:
        return ""
    current = of.current
    if producer_id != current.producer_id or current.producer_epoch < 0:
        return f" (new, {epoch})"
    step = epoch - current.producer_epoch
    return f" (P, E{f'{step:+d}' if step else ''})"


def outcome(of: TransactionMetadata, decision: object) -> str:
    """A decision in a few words."""
    match decision:
        case Refusal(error=error):
            return error.name
        case Unchanged(producer_id=producer_id, producer_epoch=epoch, ongoing=ongoing):
            return "ok" + pair_text(of, producer_id, epoch) + _kept(ongoing)
        case Transition(to=to, error=error, producer_id=producer_id, producer_epoch=epoch, ongoing=ongoing):
            ok = error is ErrorCode.NONE
            answer = "ok" + pair_text(of, producer_id, epoch) + _kept(ongoing) if ok else error.name
            return f"{answer}, then {(to.pending or to.state).wire_name}"
    raise AssertionError(f"no decision: {decision}")


def _kept(ongoing: ProducerIdAndEpoch) -> str:
    return "" if ongoing == NO_PRODUCER else " to end what is open"


def init_cell(keep_prepared: bool) -> Cell:
    def cell(of: TransactionMetadata, pair: ProducerIdAndEpoch, level: int) -> str:
        return outcome(of, initialize(of, Initialize(pair, TIMEOUT, keep_prepared), NOW, level, FRESH))

    return cell


def end_cell(commit: bool, version: int) -> Cell:
    def cell(of: TransactionMetadata, pair: ProducerIdAndEpoch, level: int) -> str:
        return outcome(of, end(of, End(*pair, commit, version), NOW, level, FRESH))

    return cell


def add_cell(version: int, at: TopicPartition) -> Cell:
    def cell(of: TransactionMetadata, pair: ProducerIdAndEpoch, level: int) -> str:
        return outcome(of, add_partitions(of, AddPartitions(*pair, [at], version), NOW, level))

    return cell


def verify_cell(at: TopicPartition) -> Cell:
    def cell(of: TransactionMetadata, pair: ProducerIdAndEpoch, _: int) -> str:
        error = verify(of, *pair, [at])[at]
        return "ok" if error is ErrorCode.NONE else error.name

    return cell


def told_by_leader(mode: Mode, of: TransactionMetadata, pair: ProducerIdAndEpoch, level: int) -> tuple[Verified, str]:
    """What a leader makes of the coordinator's answer about a new partition, and what follows if it is added."""
    if mode is not Mode.ADD_PARTITION:
        return Verified(mode, {NEW: of_leader(verify(of, *pair, [NEW])[NEW], mode)}), ""
    added = add_partitions(of, AddPartitions(*pair, [NEW], 2), NOW, level)
    error = added.error if isinstance(added, Refusal) else ErrorCode.NONE
    then = f", then {added.to.state.wire_name}" if isinstance(added, Transition) else ""
    timed_out = isinstance(added, Refusal) and added.timed_out
    return Verified(mode, {NEW: of_leader(error, mode)}, timed_out=timed_out), then


def produce_cell(version: int) -> Cell:
    def cell(of: TransactionMetadata, pair: ProducerIdAndEpoch, level: int) -> str:
        verified, then = told_by_leader(Mode.of_produce(version), of, pair, level)
        error, _ = verified.produce_error(NEW)
        return "ok" + then if error is ErrorCode.NONE else error.name

    return cell


def offsets_cell(version: int) -> Cell:
    def cell(of: TransactionMetadata, pair: ProducerIdAndEpoch, level: int) -> str:
        verified, then = told_by_leader(Mode.of_offset_commit(version), of, pair, level)
        error = verified.offsets_error(NEW)
        return "ok" + then if error is ErrorCode.NONE else error.name

    return cell


def tables() -> Iterator[Table]:
    yield Table("InitProducerId", init_cell(False), (2, 1, 0), without_pair=True)
    yield Table("InitProducerId v6 with keepPreparedTxn", init_cell(True), (2, 1, 0), without_pair=True)
    for commit in (True, False):
        what = "commit" if commit else "abort"
        yield Table(f"EndTxn({what}) v0-v4", end_cell(commit, 4), (2, 1, 0))
        yield Table(f"EndTxn({what}) v5", end_cell(commit, 5), (2, 1, 0))
    yield Table("AddPartitionsToTxn v0-v3 of a partition that is in", add_cell(0, KNOWN), (2, 1, 0))
    yield Table("AddPartitionsToTxn v0-v3 of a new partition", add_cell(0, NEW), (2, 1, 0))
    yield Table("AddOffsetsToTxn of a new group", add_cell(0, NEW), (2, 1, 0))
    yield Table("AddPartitionsToTxn v4-v5 of a partition that is in", add_cell(2, KNOWN), (2, 1, 0))
    yield Table("AddPartitionsToTxn v4-v5 of a new partition", add_cell(2, NEW), (2, 1, 0))
    yield Table("AddPartitionsToTxn v4-v5 to verify a partition that is in", verify_cell(KNOWN), (2, 1, 0))
    yield Table("AddPartitionsToTxn v4-v5 to verify a partition that is not in", verify_cell(NEW), (2, 1, 0))
    for first, last in ((3, 10), (11, 11), (12, 13)):
        versions = f"v{first}-v{last}" if first < last else f"v{first}"
        yield Table(f"Produce {versions} to a partition that is not in", produce_cell(last), (2, 1, 0))
    for first, last in ((0, 3), (4, 4), (5, 5)):
        versions = f"v{first}-v{last}" if first < last else f"v{first}"
        yield Table(f"TxnOffsetCommit {versions} of a group that is not in", offsets_cell(last), (2, 1, 0))


def row(table: Table, situation: Situation, level: int) -> str:
    of = reach(situation, level)
    cells = []
    for name, pair in callers(situation, of).items():
        if name == "no pair" and not table.without_pair:
            continue
        if pair is None:
            cells.append(NOTHING)
        elif of.current.producer_epoch < 0 and not table.without_pair:
            cells.append(ABSENT)
        else:
            cells.append(table.cell(of, pair, level))
    return f"| {situation.name} | {' | '.join(cells)} |"


def rows(table: Table, situations: Sequence[Situation], level: int) -> list[str]:
    names = [name for name in callers(situations[0], reach(situations[0], level)) if name != "no pair"]
    if table.without_pair:
        names.insert(0, "no pair")
    head = ["| state | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    return head + [row(table, situation, level) for situation in situations]


def requests_page(title: str, about: Sequence[str], situations: Sequence[Situation]) -> str:
    lines = [f"# {title}", "", *about, "Generated from the coordinator's decisions; do not edit."]
    for table in tables():
        found = {level: rows(table, situations, level) for level in table.levels}
        alike: list[tuple[list[int], list[str]]] = []
        for level, cells in found.items():
            same = next((levels for levels, other in alike if other == cells), None)
            if same is None:
                alike.append(([level], cells))
            else:
                same.append(level)
        for levels, cells in alike:
            versions = " and ".join(map(str, levels))
            lines += ["", f"## {table.request}, at transaction.version {versions}", "", *cells]
    return "\n".join(lines) + "\n"


def middle_page() -> str:
    about = (
        "What each request is answered, by the state of the transactional id (rows) and the pair that the caller comes",
        "with (columns). The id is held by (P, E); its producer is the second one, and has held several epochs. An",
        "answer may carry a pair, and a state follows where it changes. In PrepareCommit and PrepareAbort markers are",
        "still missing.",
    )
    return requests_page("Every cell", about, MIDDLE)


def last_epoch_page() -> str:
    about = (
        "The same at the end of a producer id: the id was held as (P, 32766), the last pair that a client may hold,",
        "and what follows is a new producer id. (P, E) is the pair that is held in that row.",
    )
    return requests_page("Every cell at the last epoch", about, LAST)


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
        "Of what `make compare` asks, everything else is answered alike, code by code. Generated from the lists of the",
        "coordinator and of the node; do not edit.",
        "",
        "Compared is release 4.3.1. Not counted:",
        "",
        "- what only later releases have (TxnOffsetCommit v6);",
        "- epochs of leaders and coordinators, which rise when a node of Apache Kafka starts, and with them the time",
        "  at which it says that a repeated batch was appended;",
        "- the words of error messages;",
        "- the settings of a broker, and of what one node does not have (replication, tiered storage);",
        "- when a request is taken up that was sent before the earlier ones of its connection were answered: Apache",
        "  Kafka waits for those answers; here only its own answer does, so answers keep their order;",
        "- bytes that every reader throws away: the cut-off beginning of a batch that had no room in an answer,",
        "  aborted transactions that begin behind its records.",
    ]
    for ground in Ground:
        listed = [entry for entry in (*DIFFERENCES, *leader.DIFFERENCES) if entry.ground is ground]
        lines += [
            "",
            f"## {ground}",
            "",
            "| request | situation | Apache Kafka 4.3 | Fencepost | why | source |",
            "|---|---|---|---|---|---|",
            *(f"| {' | '.join(entry[1:])} |" for entry in listed),
        ]
    return "\n".join(lines) + "\n"


PAGES = {
    "states.md": states_page,
    "requests.md": middle_page,
    "requests_at_the_last_epoch.md": last_epoch_page,
    "differences.md": differences_page,
}


def main() -> None:
    write({f"reference/transactions/{name}": page for name, page in PAGES.items()})


if __name__ == "__main__":
    main()
