"""Write docs/reference/promises.md: what the design documents promise, and the tests that show it.

    python scripts/promises_page.py

A test says which promise it shows by `@pytest.mark.promise("id")`; the tests are read, not run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT, Cell, Pages, table, write

TESTS = ROOT / "tests"


class Promise(NamedTuple):
    """One line of a design document, in our words.  `missing`: what is not there yet, where that is known."""

    id: str
    text: str
    missing: str = ""


#: document -> its promises
DOCUMENTS: dict[str, tuple[Promise, ...]] = {
    "KIP-360: the instance epoch": (
        Promise("360.new-instance", "InitProducerId without a pair bumps the epoch and begins a new instance."),
        Promise("360.same-instance", "With the current pair it bumps the epoch; the instance stays."),
        Promise(
            "360.repeated", "With an older epoch of this instance it answers the current one, so it may be repeated."
        ),
        Promise("360.repeated-after-failover", "That holds when the coordinator changed in between."),
        Promise("360.other-epochs", "An epoch of an older instance, or one that nobody was given, is refused."),
        Promise("360.expired-and-reused", "After an id has expired and come back, its producer id tells old from new."),
        Promise(
            "360.unknown-producer", "A transactional first write of an unknown producer is put to the coordinator."
        ),
        Promise("360.still-unknown", "When that answer is there, the leader looks again before it writes."),
        Promise("360.describe", "Who holds a transactional id, its state and its partitions can be asked for."),
    ),
    "KIP-360: handling of failures": (
        Promise("360.mapping-gone", "A producer whose id has expired asks anew, aborts what was open, and goes on."),
        Promise("360.mapping-taken", "If another producer has the id by then, it is told that it was replaced."),
        Promise(
            "360.state-outlives-records",
            "A partition remembers a producer when its records are gone, until it expires.",
        ),
        Promise("360.permanent-sequence", "A batch that may be written keeps its first epoch and sequence."),
        Promise(
            "360.later-batches-fail",
            "When a batch fails for good, the later ones of its partition that have numbers fail with it, unless its "
            "own records were refused and no try before may have written them.",
        ),
        Promise(
            "360.abort-and-go-on", "A transactional producer aborts after that, and its next transaction is whole."
        ),
        Promise(
            "360.idempotent-bump", "An idempotent producer takes the next epoch by itself and goes on from sequence 0."
        ),
    ),
    "KIP-588: time-outs of transactions": (
        Promise("588.same-producer", "A producer whose transaction was timed out gets the bumped epoch and goes on."),
        Promise("588.remembered", "The coordinator still knows of the time-out after it was restarted or moved."),
        Promise(
            "588.told-so",
            "Until then its requests are answered as timed out, not as fenced, where a version can say so.",
        ),
        Promise("588.replaced", "Once another instance took over they are answered as fenced."),
        Promise("588.abort", "To abort a transaction that was timed out is no error."),
        Promise("588.produce", "The client takes a stale epoch from a partition for a reason to ask, not for its end."),
        Promise("588.older-clients", "Older clients get errors that they know."),
        Promise("588.older-brokers", "On brokers of the older protocols the client recovers as far as these allow."),
    ),
    "KIP-890: the server's own defence": (
        Promise("890.bump", "Every end of a transaction bumps the epoch, and its answer carries the new one."),
        Promise("890.overflow", "When the epochs of a producer id are used up, the end gives a new producer id."),
        Promise(
            "890.repeated-end", "A repeated end is answered alike; one that asks for the other outcome is refused."
        ),
        Promise("890.delayed-end", "A delayed end does not end the next transaction."),
        Promise("890.late-record", "A record that comes after its transaction's end opens nothing and joins nothing."),
        Promise("890.implicit-produce", "A Produce of the newer protocol adds its partition to the transaction."),
        Promise("890.implicit-offsets", "So does a TxnOffsetCommit."),
        Promise("890.verified", "Of older clients a first write needs a transaction that has its partition."),
        Promise("890.guard", "A marker that comes between verification and write makes the write fail."),
        Promise(
            "890.older-codes", "Older clients are told of a coordinator's troubles in errors that they try again on."
        ),
        Promise("890.abortable", "Clients that know TRANSACTION_ABORTABLE are told it."),
        Promise("890.first-sequence", "A first sequence that is not 0 is refused by the newer protocol."),
        Promise("890.switch", "Verification can be switched off."),
        Promise("890.metrics", "Verifications, their time and their failures are measured."),
        Promise(
            "890.levels", "transaction.version goes up and down while clients run, and no record is lost or doubled."
        ),
        Promise(
            "890.level-refused", "Where the level is too low, the newer protocol is refused and the older one works."
        ),
        Promise(
            "890.record", "The coordinator's records have the tagged fields of version 1, and are read back as written."
        ),
        Promise("890.brokers-only", "Only who may act on the cluster may verify for others."),
    ),
    "Transactional messaging, 2014": (
        Promise(
            "2014.journal",
            "A decision is durable before any marker, and every marker before the transaction is complete.",
        ),
        Promise("2014.coordinator-failure", "Decided transactions are carried out after a restart; open ones go on."),
        Promise("2014.control-records", "Markers stand in the partitions' own logs and are not shown to applications."),
        Promise("2014.read-committed", "READ_COMMITTED shows committed transactions only."),
        Promise("2014.read-uncommitted", "READ_UNCOMMITTED shows everything but markers."),
        Promise("2014.offsets", "Committed offsets move with their transaction."),
        Promise("2014.time-out", "A transaction whose producer is gone is aborted when its time is up."),
        Promise(
            "2014.closed-connection", "If so configured, it is aborted soon after its producer's connection closed."
        ),
        Promise("2014.one-producer", "Of two producers with one transactional id, the older can write nothing more."),
        Promise("2014.repeats", "Repeated requests change nothing."),
        Promise("2014.idempotent-alone", "A producer without transactions doubles no record either."),
        Promise(
            "2014.commit-order",
            "A consumer that is not held up by somebody else's open transaction: each is delivered when its "
            "commit comes.",
        ),
        Promise(
            "2014.spill",
            "What it buffers of open transactions goes to disk beyond a limit.",
        ),
        Promise(
            "2014.offset-pair",
            "Its committed offset is a pair: where the earliest open transaction begins, and how far it has delivered.",
        ),
        Promise(
            "2014.inside-transaction",
            "A third offset tells how far it is inside a long transaction.",
        ),
    ),
}
KNOWN = {promise.id for promises in DOCUMENTS.values() for promise in promises}


def promised(node: ast.expr) -> Iterator[str]:
    """The promises that a decorator names."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
        for argument in node.args:
            assert isinstance(argument, ast.Constant) and argument.value in KNOWN, f"no promise: {ast.unparse(node)}"
            yield str(argument.value)


def shown_by() -> dict[str, list[str]]:
    """Promise -> the tests that name it, as `tests/...py::test_...`."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.promise" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    for promise in promised(decorator):
                        found.setdefault(promise, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def kept(promise: Promise, tests: list[str]) -> Cell:
    if promise.missing:
        assert not tests, f"{promise.id} is said to be missing, and shown by {tests}"
        return f"**Not there yet:** {promise.missing}."
    if not tests:
        return "**No test shows it yet.**"
    return "<br>".join(f"`{test}`" for test in tests)


def page() -> str:
    found = shown_by()
    everything = [promise for promises in DOCUMENTS.values() for promise in promises]
    shown = sum(promise.id in found for promise in everything)
    missing = sum(bool(promise.missing) for promise in everything)
    lines = [
        "# Promises and their tests",
        "",
        "Fencepost is built from five design documents of Apache Kafka's developers. What they promise, "
        "in our words, and the",
        f"tests that show it. Of {len(everything)} promises {shown} are shown, {missing} are not there yet, and",
        f"{len(everything) - shown - missing} have no test of their own. `make test` runs these tests, "
        f"but for those of",
        "`tests/compare`, which `make compare` runs.",
    ]
    for document, promises in DOCUMENTS.items():
        rows = [[promise.text, kept(promise, found.get(promise.id, []))] for promise in promises]
        lines += ["", f"## {document}", "", *table(["promise", "shown by"], rows)]
    return "\n".join(lines) + "\n"


PAGES: Pages = {"reference/promises.md": page}

if __name__ == "__main__":
    write(PAGES)
