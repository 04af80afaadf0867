"""The reference pages are current, and a broker answers over the wire what every cell of them says."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripts.transaction_reference import FOLDER, PAGES
from wire import Client, Pair, end, ended, find_coordinator, init, init_answer, serving, wait_until

from fencepost.broker import Broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.update_features import FeatureUpdateKey

Reply = tuple[ErrorCode, Pair | None]
KNOWN, NEW = 0, 1
#: Of the rows, those that a broker whose markers are written at once can be found in.
REACHABLE = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "CompleteAbort, by a time-out")
_names = itertools.count()


class Cell(NamedTuple):
    """One cell of requests.md."""

    title: str
    state: str
    caller: str
    text: str


def cells() -> Iterator[Cell]:
    title, callers = "", []
    for line in (FOLDER / "requests.md").read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| state "):
            callers = [part.strip() for part in line.strip("|").split("|")][1:]
        elif line.startswith("| "):
            state, *texts = (part.strip() for part in line.strip("|").split("|"))
            yield from (Cell(title, state, caller, text) for caller, text in zip(callers, texts, strict=True))


CELLS = list(cells())
TITLES = list(dict.fromkeys(cell.title for cell in CELLS))


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_current(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "run python scripts/transaction_reference.py"


def level_of(title: str) -> int:
    found = re.search(r"transaction.version (\d)", title)
    return int(found[1]) if found else 2


def ask(client: Client, title: str, name: str, pair: Pair) -> Reply:
    """The request that a table is about."""
    if title.startswith("InitProducerId"):
        answer = init_answer(client, name, pair)
        return ErrorCode(answer.error_code), Pair(answer.producer_id, answer.producer_epoch)
    if title.startswith("EndTxn"):
        version = 5 if " v5" in title else 4
        done = end(client, name, pair, commit="commit" in title, version=version)
        return ErrorCode(done.error_code), Pair(done.producer_id, done.producer_epoch) if version == 5 else None
    partition = NEW if "new partition" in title or "not in" in title else KNOWN
    topics = [AddPartitionsToTxnTopic(name="reference", partitions=[partition])]
    if title.startswith("AddPartitionsToTxn v0"):
        request = AddPartitionsToTxnRequest(
            transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.epoch, topics=topics
        )
        added = client.ask(request, 3).results_by_topic[0]
    else:
        one = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            verify_only=title.startswith("verification"),
            topics=topics,
        )
        added = client.ask(AddPartitionsToTxnRequest(transactions=[one]), 5).results_by_transaction[0].topic_results[0]
    return ErrorCode(added.results_by_partition[0].partition_error_code), None


def state(client: Client, name: str) -> Any:
    return client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]


def add_known(client: Client, name: str, pair: Pair) -> None:
    title = "implicit add: a partition that is in"
    assert ask(client, title, name, pair)[0] is ErrorCode.NONE


def bring(client: Client, name: str, wanted: str) -> Pair:
    """Bring a fresh transactional id into a state, at an epoch three above its instance's; the current pair."""
    find_coordinator(client, name)
    timed = wanted.endswith("time-out")
    init(client, name)
    pair = init(client, name, timeout_ms=50 if timed else 60_000)
    commit = wanted == "CompleteCommit"
    before = 2 if wanted in ("Empty", "CompleteCommit", "CompleteAbort") or timed else 3
    for _ in range(before):
        add_known(client, name, pair)
        pair = ended(client, name, pair, commit=commit)
    if wanted == "Empty":
        answer = init_answer(client, name, pair)
        return Pair(answer.producer_id, answer.producer_epoch)
    add_known(client, name, pair)
    if wanted == "Ongoing":
        return pair
    if timed:
        wait_until("it is timed out", lambda: state(client, name).transaction_state == "CompleteAbort")
        return Pair(pair.producer_id, pair.epoch + 1)
    return ended(client, name, pair, commit=commit)


CALLERS: dict[str, Callable[[Pair], Pair]] = {
    "no pair": lambda _: Pair(-1, -1),
    "current": lambda pair: pair,
    "one back": lambda pair: Pair(pair.producer_id, pair.epoch - 1),
    "earlier, this instance": lambda pair: Pair(pair.producer_id, pair.epoch - 3),
    "older instance": lambda pair: Pair(pair.producer_id, pair.epoch - 4),
    "ahead": lambda pair: Pair(pair.producer_id, pair.epoch + 1),
    "another producer id": lambda pair: Pair(pair.producer_id + 100_000, pair.epoch),
}


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with serving() as broker:
        client = Client(broker)
        topic = CreatableTopic(name="reference", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        client.ask(CreateTopicsRequest(topics=[topic]))
        client.close()
        yield broker


def finalize(client: Client, level: int) -> None:
    for kind in (1, 2):  # an upgrade or a downgrade: one of them is it
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
        client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)


@pytest.mark.parametrize("title", TITLES)
def test_the_broker_answers_what_the_table_says(node: Broker, title: str) -> None:
    client = Client(node)
    for cell in (cell for cell in CELLS if cell.title == title and cell.state in REACHABLE):
        name = f"reference-{next(_names)}"
        finalize(client, 2)
        pair = bring(client, name, cell.state)
        finalize(client, level_of(title))
        before = state(client, name)
        error, given = ask(client, title, name, CALLERS[cell.caller](pair))
        answer, _, following = cell.text.partition(", then ")
        expected = ErrorCode.NONE if answer.startswith("ok") else ErrorCode[answer]
        assert error is expected, cell
        step = re.search(r"\(P, E([+-]\d+)?\)", answer)
        if step is not None and given is not None:
            assert given == (pair.producer_id, pair.epoch + int(step[1] or 0)), cell
        assert state(client, name).transaction_state == (following or before.transaction_state), cell
    finalize(client, 2)
    client.close()
