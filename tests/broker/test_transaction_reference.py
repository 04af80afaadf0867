"""The reference pages are current, and a broker answers over the wire what every cell of them says."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from scripts.transaction_reference import FOLDER, NOTHING, PAGES
from scripts.transaction_situations import LAST, MIDDLE, NEAR_THE_LAST_EPOCH, Situation, Step
from tests.broker.group_talk import txn_commit
from tests.broker.wire import Client, batch, end, find_coordinator, init_answer, on_the_loop, serving

from fencepost.broker import Broker
from fencepost.broker.leader.markers import LocalMarkers
from fencepost.coordinator.transaction.journal import encode
from fencepost.coordinator.transaction.markers import Marker, Results
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log.producer_state import Origin
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ProduceRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.messages.update_features import FeatureUpdateKey
from fencepost.protocol.types import (
    TRANSACTION_STATE,
    Epoch,
    Milliseconds,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)
from fencepost.runtime import at_once

Reply = tuple[ErrorCode, ProducerIdAndEpoch | None]
NOBODY = ProducerIdAndEpoch.of(-1, -1)
#: Topics whose leader takes markers, and whose leader is away.
HERE, AWAY = "here", "away"
KNOWN, NEW = 0, 1
SITUATIONS = {"requests.md": MIDDLE, "requests_at_the_last_epoch.md": LAST}
TIMEOUT_MS = 60_000
CLIENTS = 8
#: Producer ids of seeded transactional ids; far from those that the broker gives out.
SEEDED = 5_000_000
_names = itertools.count()


class Cell(NamedTuple):
    """One cell of a page."""

    title: str
    situation: Situation
    caller: str
    text: str


def cells(page: str) -> Iterator[Cell]:
    situations = {situation.name: situation for situation in SITUATIONS[page]}
    title, callers = "", []
    for line in (FOLDER / page).read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| state "):
            callers = [part.strip() for part in line.strip("|").split("|")][1:]
        elif line.startswith("| "):
            state, *texts = (part.strip() for part in line.strip("|").split("|"))
            yield from (
                Cell(title, situations[state], caller, text) for caller, text in zip(callers, texts, strict=True)
            )


CELLS = {page: [cell for cell in cells(page) if cell.text != NOTHING] for page in SITUATIONS}
TITLES = [(page, title) for page, found in CELLS.items() for title in dict.fromkeys(cell.title for cell in found)]


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_current(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "run python scripts/transaction_reference.py"


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    patch = pytest.MonkeyPatch()
    write = LocalMarkers.write

    def written(markers: LocalMarkers, marker: Marker, partitions: Sequence[TopicPartition]) -> Results:
        refused = dict.fromkeys((at for at in partitions if at.topic == AWAY), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return {**write(markers, marker, [at for at in partitions if at.topic != AWAY]), **refused}

    patch.setattr(LocalMarkers, "write", written)
    with serving(transaction_two_phase_commit_enable=True) as broker:
        client = Client(broker)
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            for name in (HERE, AWAY)
        ]
        client.ask(CreateTopicsRequest(topics=topics))
        find_coordinator(client, "any")
        find_coordinator(client, "any", key_type=0)
        client.close()
        yield broker
    patch.undo()


def finalize(client: Client, level: int) -> None:
    for kind in (1, 2):  # an upgrade or a downgrade: one of them is it
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
        client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)


def state(client: Client, name: str) -> Any:
    return client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]


class Id:
    """A transactional id on its way to a situation, and then what a cell's caller asks of it."""

    def __init__(self, client: Client, cell: Cell, level: int) -> None:
        self.client, self.cell, self._level = client, cell, level
        self.name = f"reference-{next(_names)}"
        walk = cell.situation.walk
        unfinished = Step.MARKERS not in walk and {Step.COMMIT, Step.ABORT, Step.TIME_OUT} & set(walk)
        self._topic = AWAY if unfinished else HERE
        self.waits = Step.TIME_OUT in walk
        self._steps = list(walk)
        self.held = self._before = NOBODY
        self.first = self._told = NOBODY
        if cell.situation.near_the_end:
            self.held = self.first = ProducerIdAndEpoch.of(SEEDED + next(_names), NEAR_THE_LAST_EPOCH)

    def seed(self) -> TransactionMetadata:
        """What the journal holds of an id that begins near its last epoch."""
        epoch, pid = Epoch(self.first.producer_epoch), ProducerId(self.first.producer_id)
        return TransactionMetadata(
            self.name, pid, epoch, pid, timeout_ms=Milliseconds(TIMEOUT_MS), instance_epoch=epoch
        )

    def walk(self) -> None:
        """Take every step up to one that only time brings."""
        while self._steps:
            step = self._steps[0]
            if step is Step.TIME_OUT:
                return
            self._steps.pop(0)
            self._take(step)
        if {Step.COMMIT, Step.ABORT} & set(self.cell.situation.walk):
            found = state(self.client, self.name)
            self.held = ProducerIdAndEpoch.of(found.producer_id, found.producer_epoch)

    def timed_out(self) -> None:
        """The time-out has come: take the rest of the way."""
        found = state(self.client, self.name)
        assert found.transaction_state == ("PrepareAbort" if self._topic == AWAY else "CompleteAbort")
        self._before, self.held = self.held, ProducerIdAndEpoch.of(found.producer_id, found.producer_epoch)
        self._steps.pop(0)
        self.walk()

    def _take(self, step: Step) -> None:
        if step in (Step.NEW_INSTANCE, Step.SAME_INSTANCE, Step.RECOVER, Step.KEEP):
            callers = {Step.SAME_INSTANCE: self.held, Step.RECOVER: self._before}
            error, pair = self._init(callers.get(step, NOBODY), step is Step.KEEP)
        elif step is Step.ADD:
            error, pair = self._add(self.held, KNOWN, 5 if self._level == 2 else 3), self.held
        elif step is Step.MARKERS:
            return
        else:
            error, pair = self._end(self.held, step is Step.COMMIT, 5 if self._level == 2 else 4)
        assert error is ErrorCode.NONE, (step, self.cell, error)
        self._told = self.held = pair or self.held

    def _init(self, pair: ProducerIdAndEpoch, keep: bool) -> Reply:
        if not keep:
            given = init_answer(self.client, self.name, pair, timeout_ms=TIMEOUT_MS, version=5)
        else:
            request = InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=pair.producer_id,
                producer_epoch=pair.producer_epoch,
                keep_prepared_txn=True,
            )
            given = self.client.ask(request, 6)
        return ErrorCode(given.error_code), ProducerIdAndEpoch.of(given.producer_id, given.producer_epoch)

    def _end(self, pair: ProducerIdAndEpoch, commit: bool, version: int) -> Reply:
        done = end(self.client, self.name, pair, commit=commit, version=version)
        given = ProducerIdAndEpoch.of(done.producer_id, done.producer_epoch) if version == 5 else None
        return ErrorCode(done.error_code), given

    def _add(self, pair: ProducerIdAndEpoch, partition: int, version: int, verify_only: bool = False) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=[partition])]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                transactional_id=self.name,
                producer_id=pair.producer_id,
                producer_epoch=pair.producer_epoch,
                topics=topics,
            )
            added = self.client.ask(request, version).results_by_topic[0]
        else:
            one = AddPartitionsToTxnTransaction(
                transactional_id=self.name,
                producer_id=pair.producer_id,
                producer_epoch=pair.producer_epoch,
                verify_only=verify_only,
                topics=topics,
            )
            answer = self.client.ask(AddPartitionsToTxnRequest(transactions=[one]), version)
            added = answer.results_by_transaction[0].topic_results[0]
        return ErrorCode(added.results_by_partition[0].partition_error_code)

    def _produce(self, data: bytes, version: int) -> ErrorCode:
        topic_id = self.client.broker.node.topics.by_name[self._topic].topic_id
        written = TopicProduceData(
            name=self._topic, topic_id=topic_id, partition_data=[PartitionProduceData(index=NEW, records=data)]
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=[written])
        return ErrorCode(self.client.ask(request, version).responses[0].partition_responses[0].error_code)

    def _caller(self) -> ProducerIdAndEpoch:
        producer_id, epoch = self.held
        instance = 1 if self.cell.situation.walk[-1:] != (Step.KEEP,) else epoch
        numbered = re.match(r"\(P, (\d+)\)", self.cell.caller)
        if numbered is not None:
            return ProducerIdAndEpoch.of(self.first.producer_id, int(numbered[1]))
        known = {
            "no pair": NOBODY,
            "current": self.held,
            "one back": ProducerIdAndEpoch.of(producer_id, epoch - 1),
            "first of this instance": ProducerIdAndEpoch.of(producer_id, instance),
            "older instance": ProducerIdAndEpoch.of(producer_id, instance - 1),
            "ahead": ProducerIdAndEpoch.of(producer_id, epoch + 1),
            "what it becomes": self._told,
            "another producer id": ProducerIdAndEpoch.of(max(producer_id, 0) + 100_000, max(epoch, 0)),
        }
        return known[self.cell.caller]

    def ask(self) -> Reply:
        """The request that the cell's table is about, from its caller."""
        title, pair = self.cell.title, self._caller()
        if title.startswith("InitProducerId"):
            return self._init(pair, "keepPreparedTxn" in title)
        if title.startswith("EndTxn"):
            return self._end(pair, "(commit)" in title, 5 if " v5" in title else 4)
        if title.startswith("AddOffsetsToTxn"):
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=pair.producer_id,
                producer_epoch=pair.producer_epoch,
                group_id="group",
            )
            return ErrorCode(self.client.ask(request, 4).error_code), None
        found = re.search(r" v\d+-v(\d+)| v(\d+)", title)
        newest = int(found[1] or found[2]) if found else 0
        if title.startswith("Produce"):
            data = batch("x", pair=pair, sequence=0, transactional=True)
            return self._produce(data, newest), None
        if title.startswith("TxnOffsetCommit"):
            return ErrorCode(txn_commit(self.client, self.name, pair, HERE, 1, version=newest)[0]), None
        partition = NEW if "new partition" in title or "not in" in title else KNOWN
        return self._add(pair, partition, 5 if " v4-v5" in title else 3, "to verify" in title), None


def bring(clients: Sequence[Client], cells: Sequence[Cell], level: int) -> list[Id]:
    """A fresh transactional id for every cell, brought to its situation."""
    broker = clients[0].broker
    ids = [Id(client, cell, level) for client, cell in zip(itertools.cycle(clients), cells, strict=False)]
    seeds = [one.seed() for one in ids if one.cell.situation.near_the_end]
    if seeds:
        on_the_loop(broker, lambda: remember(broker, seeds))
    to_time_out = [one for one in ids if one.waits]
    at_once_with_each(to_time_out, Id.walk)
    if to_time_out:
        later = Milliseconds(broker.node.clock.now() + 2 * TIMEOUT_MS)
        on_the_loop(broker, lambda: at_once(broker.node.transactions.tick(later)))
    at_once_with_each(to_time_out, Id.timed_out)
    at_once_with_each([one for one in ids if not one.waits], Id.walk)
    return ids


def at_once_with_each(ids: Sequence[Id], work: Callable[[Id], None]) -> None:
    """The ids of a client in turn, the clients at once: what waits for the disk waits together."""

    def of(client: Client) -> None:
        for one in ids:
            if one.client is client:
                work(one)

    clients = list(dict.fromkeys(one.client for one in ids))
    with ThreadPoolExecutor(len(clients) or 1) as threads:
        list(threads.map(of, clients))


def remember(broker: Broker, seeds: Sequence[TransactionMetadata]) -> None:
    """Have the coordinator find these ids in its journal."""
    for seed in seeds:
        journal = broker.node.storage.partition(
            TRANSACTION_STATE, broker.node.transactions.partition_for(seed.transactional_id)
        )
        assert journal is not None
        journal.append(encode(seed, 2), Origin.COORDINATOR, broker.node.clock.now())
    for index in range(broker.node.transactions.settings.partitions):
        broker.node.transactions.resign(index)
        broker.node.transactions.load(index)


def check(one: Id) -> None:
    before = state(one.client, one.name).transaction_state
    error, given = one.ask()
    answer, _, following = one.cell.text.partition(", then ")
    expected = ErrorCode.NONE if answer.startswith("ok") else ErrorCode[answer]
    assert error is expected, one.cell
    step = re.search(r"\(P, E([+-]\d+)?\)", answer)
    if step is not None and given is not None:
        assert given == (one.held.producer_id, one.held.producer_epoch + int(step[1] or 0)), one.cell
    elif "(new, 0)" in answer and given is not None:
        assert given.producer_id not in (-1, one.held.producer_id) and given.producer_epoch == 0, one.cell
    assert state(one.client, one.name).transaction_state == (following or before), one.cell


#: Whether each cell is tried at every level that it is said of, or at one of them.
DEPTHS = [pytest.param(False, id="at one level"), pytest.param(True, id="at every level", marks=pytest.mark.soak)]


@pytest.mark.parametrize("at_every_level", DEPTHS)
@pytest.mark.parametrize(("page", "title"), TITLES)
def test_the_broker_answers_what_the_table_says(node: Broker, page: str, title: str, at_every_level: bool) -> None:
    clients = [Client(node) for _ in range(CLIENTS)]
    cells = [cell for cell in CELLS[page] if cell.title == title]
    levels = list(map(int, re.findall(r"\d", title.partition("transaction.version")[2])))
    for number, level in enumerate(levels):
        finalize(clients[0], level)
        at_once_with_each(bring(clients, cells if at_every_level else cells[number :: len(levels)], level), check)
    finalize(clients[0], 2)
    for client in clients:
        client.close()
