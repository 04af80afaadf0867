"""Input that makes no sense, or comes from somebody who may not: Kafka's code, a line in the log, nothing changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from tests.broker.group_talk import committed_offset, find_group, txn_commit
from tests.broker.wire import (
    Client,
    add,
    batch,
    end,
    ended,
    fetch,
    init,
    init_answer,
    new_topic,
    produce,
    serving,
    values,
)

from fencepost.broker.authorizer import Operation, Resource
from fencepost.node_log import MOST_PER_MINUTE
from fencepost.protocol.encoding import uvarint
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import ProducerIdAndEpoch


@pytest.fixture(autouse=True)
def what_the_log_says(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever level others have set."""
    caplog.set_level(logging.INFO, "fencepost")


class Denies:
    """An authorizer that the test tells what to deny."""

    def __init__(self) -> None:
        self.denied: dict[Resource, None] = {}

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return resource not in self.denied


class Scene:
    """A transactional id "t" with an open transaction, a stranger who asks, and a friend who goes on meanwhile."""

    def __init__(self, stranger: Client, friend: Client, denies: Denies) -> None:
        self.stranger, self.friend, self.denies = stranger, friend, denies
        find_group(friend)
        self.topic, self.other = new_topic(friend), new_topic(friend)
        self.pair = init(friend, "t")
        self.stale = ProducerIdAndEpoch.of(self.pair.producer_id, -1)
        self.foreign = ProducerIdAndEpoch.of(self.pair.producer_id + 5000, 0)
        self.written("first")
        self.before = self.state()

    def written(self, value: str, sequence: int = 0) -> None:
        data = batch(value, pair=self.pair, sequence=sequence, transactional=True)
        assert produce(self.friend, self.topic, data, "t").error_code == ErrorCode.NONE

    def state(self) -> object:
        everything = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        listed = self.friend.ask(everything).transaction_states
        described = self.friend.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
        logs = [fetch(self.friend, topic).high_watermark for topic in (self.topic, self.other)]
        return listed, described, logs, committed_offset(self.friend, self.topic)

    def assert_nothing_changed(self) -> None:
        assert self.state() == self.before
        self.written("second", 1)
        following = ended(self.friend, "t", self.pair)
        assert following == (self.pair.producer_id, self.pair.producer_epoch + 1)
        assert values(fetch(self.friend, self.topic)) == ["first", "second"]


@pytest.fixture
def scene() -> Iterator[Scene]:
    denies = Denies()
    with serving(authorizer=denies) as broker:
        stranger, friend = Client(broker), Client(broker)
        yield Scene(stranger, friend, denies)
        stranger.close()
        friend.close()


def add_offsets(scene: Scene, name: str, pair: ProducerIdAndEpoch) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id="g"
    )
    return int(scene.stranger.ask(request).error_code)


def written(scene: Scene, name: str, pair: ProducerIdAndEpoch, version: int | None = None) -> int:
    data = batch("x", pair=pair, sequence=0, transactional=True)
    return int(produce(scene.stranger, scene.other, data, name, version=version).error_code)


def mark(scene: Scene, topic: str, pair: tuple[int, int], partition: int = 0) -> int:
    """A commit marker by the stranger."""
    one = WritableTxnMarker(
        producer_id=pair[0],
        producer_epoch=pair[1],
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=0,
        transaction_version=2,
    )
    answer = scene.stranger.ask(WriteTxnMarkersRequest(markers=[one]))
    return int(answer.markers[0].topics[0].partitions[0].error_code)


class Case(NamedTuple):
    """What the stranger asks for, the error, and what the log says of it."""

    name: str
    ask: Callable[[Scene], int]
    error: ErrorCode
    said: str


NO_MAPPING, FENCED, STALE = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
BAD_REQUEST, BAD_TIMEOUT = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TRANSACTION_TIMEOUT
CASES = [
    Case("init, empty id", lambda s: init_answer(s.stranger, "").error_code, BAD_REQUEST, "transactional_id=''"),
    Case("add, empty id", lambda s: add(s.stranger, "", s.pair, s.other), BAD_REQUEST, "transactional_id=''"),
    Case("offsets, empty id", lambda s: add_offsets(s, "", s.pair), BAD_REQUEST, "refused AddOffsetsToTxn"),
    Case("end, empty id", lambda s: end(s.stranger, "", s.pair).error_code, BAD_REQUEST, "refused EndTxn"),
    Case("produce, empty id", lambda s: written(s, "", s.pair), BAD_REQUEST, "refused Produce"),
    *(
        Case(
            f"time-out {timeout}",
            lambda s, timeout=timeout: init_answer(s.stranger, "t", timeout_ms=timeout).error_code,  # type: ignore[misc]
            BAD_TIMEOUT,
            "transaction.max.timeout.ms",
        )
        for timeout in (0, -1, -(2**31), 900_001, 2**31 - 1)
    ),
    Case("add, foreign", lambda s: add(s.stranger, "t", s.foreign, s.other), NO_MAPPING, "epoch=0"),
    Case("add v5, foreign", lambda s: add(s.stranger, "t", s.foreign, s.other, version=5), NO_MAPPING, "epoch=0"),
    Case("offsets, foreign", lambda s: add_offsets(s, "t", s.foreign), NO_MAPPING, "refused AddOffsetsToTxn"),
    Case("end, foreign", lambda s: end(s.stranger, "t", s.foreign).error_code, NO_MAPPING, "transactional_id=t "),
    Case("produce, foreign", lambda s: written(s, "t", s.foreign), NO_MAPPING, "refused Produce"),
    Case("produce v11, foreign", lambda s: written(s, "t", s.foreign, 11), NO_MAPPING, "refused Produce"),
    Case("produce, unknown id", lambda s: written(s, "nobody", s.pair), NO_MAPPING, "transactional_id=nobody"),
    Case(
        "offsets, foreign",
        lambda s: txn_commit(s.stranger, "t", s.foreign, s.topic, 3)[0],
        NO_MAPPING,
        "refused TxnOffsetCommit",
    ),
    Case("init, epoch -1", lambda s: init_answer(s.stranger, "t", s.stale).error_code, BAD_REQUEST, "epoch=-1"),
    Case("init, only an epoch", lambda s: init_answer(s.stranger, "t", (-1, 3)).error_code, BAD_REQUEST, "epoch=3"),
    Case("add, epoch -1", lambda s: add(s.stranger, "t", s.stale, s.other), FENCED, "epoch=-1"),
    Case("offsets, epoch -1", lambda s: add_offsets(s, "t", s.stale), FENCED, "epoch=-1"),
    Case("end, epoch -1", lambda s: end(s.stranger, "t", s.stale).error_code, FENCED, "epoch=-1"),
    Case("end v4, epoch -1", lambda s: end(s.stranger, "t", s.stale, version=4).error_code, FENCED, "epoch=-1"),
    Case("offsets, epoch -1", lambda s: txn_commit(s.stranger, "t", s.stale, s.topic, 3)[0], STALE, "epoch=-1"),
    Case("marker, epoch -1", lambda s: mark(s, s.topic, s.stale), UNKNOWN, "epoch=-1"),
    Case("marker, id -1", lambda s: mark(s, s.topic, (-1, 0)), UNKNOWN, "producer_id=-1"),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_is_refused_and_said_and_changes_nothing(scene: Scene, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    assert case.ask(scene) == case.error
    (line,) = [each.getMessage() for each in caplog.records]
    assert case.said in line and f"with {ErrorCode(case.error).name} " in line
    assert "\n" not in line and "client=wire host=/127.0.0.1" in line
    assert case.ask(scene) == case.error, "the stranger's connection goes on"
    scene.assert_nothing_changed()


def test_a_batch_of_epoch_minus_1_is_refused_before_anybody_is_asked(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for pair in (scene.stale, ProducerIdAndEpoch.of(-1, 0)):
        told = written(scene, "t", pair)
        assert told in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_PRODUCER_EPOCH), told
    assert len(caplog.records) == 2
    scene.assert_nothing_changed()


def test_markers_of_somebody_who_may_not_are_not_written(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.denies.denied[Resource.CLUSTER] = None
    offsets = scene.friend.broker.node.groups.partition_for("g")
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert mark(scene, scene.topic, (scene.pair.producer_id, scene.pair.producer_epoch + 1)) == refused
    assert mark(scene, "__consumer_offsets", (scene.foreign.producer_id, 1), offsets) == refused
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 2
    assert f"producer_id={scene.pair.producer_id} epoch={scene.pair.producer_epoch + 1}" in lines[0]
    assert all("refused WriteTxnMarkers with CLUSTER_AUTHORIZATION_FAILED" in line for line in lines)
    scene.assert_nothing_changed()


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_may_be_long_but_not_too_long(
    scene: Scene, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What has no room in a record of the journal is no request: its connection ends, as in Apache Kafka."""
    fits = "x" * 32_767
    assert init_answer(scene.friend, fits, version=version).error_code == ErrorCode.NONE
    assert init_answer(scene.friend, fits, version=version).producer_epoch == 1
    if version < 2:
        return  # their strings cannot be longer
    scene.before = scene.state()
    stranger = scene.stranger
    fitting, longer = uvarint(32_768) + b"x" * 32_767, uvarint(32_769) + b"x" * 32_768
    body = stranger.frame(_init_of(fits), version)[4:].replace(fitting, longer)
    stranger.send_bytes(len(body).to_bytes(4, "big") + body)
    assert stranger.is_closed()
    (line,) = [each.getMessage() for each in caplog.records]
    assert "closing the connection" in line and "transactional_id has 32768 bytes" in line
    scene.assert_nothing_changed()


def _init_of(name: str) -> object:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)


def test_strange_names_stay_on_one_line(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    end(scene.stranger, "a\nWARNING all is lost", scene.pair)
    end(scene.stranger, "\x1b[2J" + "y" * 5000, scene.pair)
    for record in caplog.records:
        line = record.getMessage()
        assert line.isprintable() and len(line) < 600
    assert len(caplog.records) == 2


def test_somebody_who_does_not_stop_does_not_fill_the_log(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(10 * MOST_PER_MINUTE):
        assert end(scene.stranger, "t", scene.foreign).error_code == NO_MAPPING
    assert MOST_PER_MINUTE <= len(caplog.records) <= 2 * MOST_PER_MINUTE, "a minute may end in between"
    assert "left out" in caplog.records[MOST_PER_MINUTE - 1].getMessage() or len(caplog.records) > MOST_PER_MINUTE
    scene.assert_nothing_changed()


def test_many_that_are_fenced_do_not_hide_one_that_makes_no_sense(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    newer = ProducerIdAndEpoch.of(scene.pair.producer_id, scene.pair.producer_epoch + 1)
    for pair in [newer] * 2 * MOST_PER_MINUTE + [scene.stale]:
        assert end(scene.stranger, "t", pair).error_code == ErrorCode.PRODUCER_FENCED
    levels = [record.levelno for record in caplog.records]
    assert (levels.count(logging.WARNING), levels[-1]) == (1, logging.WARNING)
    assert set(levels[:-1]) == {logging.INFO}
    scene.assert_nothing_changed()


def test_everyday_refusals_are_not_said(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """What every client meets now and then and deals with by itself."""
    assert add(scene.stranger, "t", scene.pair, "unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = init(scene.stranger, "u")
    assert end(scene.stranger, "u", other).error_code == ErrorCode.INVALID_TXN_STATE
    assert written(scene, "u", other, 11) == ErrorCode.TRANSACTION_ABORTABLE
    assert init_answer(scene.stranger, "t").error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert caplog.records == []
