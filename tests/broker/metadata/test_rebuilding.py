"""Metadata that is lost is said, and made again from the partitions when that is asked for."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from tests.broker.directories import node
from tests.broker.group_talk import commit, find_group
from tests.broker.wire import (
    batch,
    ended,
    fetch,
    find_coordinator,
    init,
    init_answer,
    new_topic,
    produce,
    produce_request,
    values,
)

from fencepost.broker.metadata.rebuilding import FIRST_PRODUCER_ID, largest_producer_id, topics_of
from fencepost.broker.metadata.topic_rules import INTERNAL, INTERNAL_SETTINGS
from fencepost.coordinator.transaction import journal
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log.data_directory import DirectoryUnusable, FoundPartition
from fencepost.log.space import NAME as RESERVE
from fencepost.log.storage import Storage
from fencepost.protocol.batch import read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.types import TRANSACTION_STATE, Epoch, ProducerId

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def lose(data: Path, how: str) -> None:
    file = data / "metadata.sqlite"
    if how == "gone":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    else:
        file.write_bytes(b"no database at all" * 100)


def everything_in(data: Path) -> dict[Path, bytes | None]:
    """All files and directories, and what is in them: of the reserve, which holds nothing, its size and its space."""
    found: dict[Path, bytes | None] = {path: None if path.is_dir() else path.read_bytes() for path in data.rglob("*")}
    reserve = (data / RESERVE).stat()
    return {**found, data / RESERVE: f"{reserve.st_size} bytes in {reserve.st_blocks} blocks".encode()}


@pytest.mark.parametrize("flush", ["durable", "os"])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_lost_metadata_is_refused_and_made_again(tmp_path: Path, flush: str, how: str) -> None:
    with node(tmp_path, flush) as client:
        topic = new_topic(client, partitions=3, retention_ms="1000000")
        kept = dict(client.broker.node.topics.by_id)
        assert produce(client, topic, batch("x", "y")).error_code == ErrorCode.NONE
        pair = init(client, "id")
        record = batch("z", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, record, "id").error_code == ErrorCode.NONE
        pair = ended(client, "id", pair)
        find_group(client)
        assert commit(client, topic, 2) == [ErrorCode.NONE]
    lose(tmp_path, how)
    before = everything_in(tmp_path)
    for _ in range(2):
        with pytest.raises(DirectoryUnusable, match=r"is lost or empty.*--rebuild-metadata"), node(tmp_path, flush):
            pass
        assert everything_in(tmp_path) == before
    with node(tmp_path, flush, rebuild=True) as client:
        topics = client.broker.node.topics
        assert {topic_id: (each.name, each.count) for topic_id, each in topics.by_id.items()} == {
            topic_id: (each.name, each.count) for topic_id, each in kept.items()
        } | {topics.by_name[name].topic_id: (name, 5) for name in INTERNAL}
        assert values(fetch(client, topic)) == ["x", "y", "z"]
        assert topics.by_name[topic].settings == {"retention.ms": "-1", "retention.bytes": "-1"}
        for name in INTERNAL:
            assert topics.by_name[name].settings == dict(INTERNAL_SETTINGS[name])
        fresh = init_answer(client, None)
        assert fresh.producer_id > FIRST_PRODUCER_ID + pair.producer_id
        find_coordinator(client, "id")
        again = init_answer(client, "id", pair)
        assert (again.error_code, again.producer_id) == (ErrorCode.NONE, pair.producer_id)
    with pytest.raises(DirectoryUnusable, match="start again without"), node(tmp_path, flush, rebuild=True):
        pass
    with node(tmp_path, flush) as client:
        assert values(fetch(client, topic)) == ["x", "y", "z"]


@pytest.mark.parametrize("again", [False, True])
def test_a_rebuild_that_is_cut_off_is_finished_by_the_next_start_with_the_option_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    with node(tmp_path) as client:
        topic, (*_, given) = new_topic(client), [init_answer(client, None).producer_id for _ in range(3)]
        record = batch("x", pair=(given, 0), sequence=0)
        assert produce(client, topic, record).error_code == ErrorCode.NONE
    lose(tmp_path, "gone")
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "start", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        with pytest.raises(DirectoryUnusable, match="cannot be used"), node(tmp_path, rebuild=True):
            pass
    with node(tmp_path, rebuild=again) as client:
        assert values(fetch(client, topic)) == ["x"]
        assert init_answer(client, None).producer_id > FIRST_PRODUCER_ID + given
    with pytest.raises(DirectoryUnusable, match="start again without"), node(tmp_path, rebuild=True):
        pass


def test_partitions_that_this_commit_log_never_knew_are_read_as_they_are(tmp_path: Path) -> None:
    """A directory put together from copies; also when the node ends before the rebuilding is finished."""
    with node(tmp_path / "one") as client:
        topic = new_topic(client)
        assert produce(client, topic, batch("x")).error_code == ErrorCode.NONE
    with node(tmp_path / "two") as client:
        other = new_topic(client)
        assert produce(client, other, batch("y")).error_code == ErrorCode.NONE
    shutil.copytree(tmp_path / "one" / f"{topic}-0", tmp_path / "two" / f"{topic}-0")
    (tmp_path / "two" / "metadata.sqlite").unlink()
    with pytest.MonkeyPatch.context() as patch:

        def start(_: Storage) -> None:
            raise OSError(5, "it ends here")

        patch.setattr(Storage, "start", start)
        with pytest.raises(DirectoryUnusable, match="it ends here"), node(tmp_path / "two", rebuild=True):
            pass
    with node(tmp_path / "two") as client:
        assert values(fetch(client, topic)) == ["x"]
        assert values(fetch(client, other)) == ["y"]
        assert init_answer(client, None).producer_id >= FIRST_PRODUCER_ID


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("topic/%", b'{"id": ', "under 'topic/"),
        ("topic/%", b"{}", "under 'topic/"),
        ("topic/%", b"[]", "under 'topic/"),
        ("topic/%", b'{"id": "x", "partitions": 1, "settings": {}}', "under 'topic/"),
        ("features", b"\xff", "under 'features'"),
        ("features", b"7", "under 'features'"),
        ("deleted-topic/%", b"\xff", "under 'deleted-topic/"),
        ("topic/%", "text", "under 'topic/"),
    ],
)
def test_what_cannot_be_read_of_the_metadata_is_named(key: str, value: bytes | str, why: str, tmp_path: Path) -> None:
    """An older Fencepost wrote no checksums."""
    with node(tmp_path) as client:
        new_topic(client)
        gone = DeleteTopicState(name=new_topic(client))
        client.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=1000))
    with closing(sqlite3.connect(tmp_path / "metadata.sqlite", isolation_level=None)) as store:
        assert store.execute("UPDATE metadata SET value = ?, checksum = NULL WHERE key LIKE ?", (value, key)).rowcount
    before = {path: path.read_bytes() for path in tmp_path.glob("*-0/*")}
    with pytest.raises(DirectoryUnusable, match=f"{why}.*put back a copy of it, or move it away"), node(tmp_path):
        pass
    assert {path: path.read_bytes() for path in tmp_path.glob("*-0/*")} == before


def test_a_file_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    with node(tmp_path) as client:
        new_topic(client)
    lose(tmp_path, "damaged")
    with pytest.raises(DirectoryUnusable, match=r"put back a copy of it, or move it away"), node(tmp_path):
        pass
    (tmp_path / "metadata.sqlite").unlink()
    with sqlite3.connect(tmp_path / "metadata.sqlite") as foreign:
        foreign.execute("CREATE TABLE accounts (name TEXT)")
    before = (tmp_path / "metadata.sqlite").read_bytes()
    with pytest.raises(DirectoryUnusable, match="of another program, with tables accounts"), node(tmp_path):
        pass
    assert (tmp_path / "metadata.sqlite").read_bytes() == before


def test_a_foreign_directory_of_partitions_is_refused_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(b"x" * 100)
    (tmp_path / "lost+found").mkdir()
    # What Apache Kafka leaves has names that are ours as well.
    for name, said in ((".lock", ""), ("cleaner-offset-checkpoint", "0\n1\norders 0 5\n")):
        (tmp_path / name).write_text(said)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DirectoryUnusable, match="is lost or empty, and there are partitions"), node(tmp_path):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    for path in (partition / f"{0:020d}.log", partition):
        path.unlink() if path.is_file() else path.rmdir()
    with node(tmp_path) as client:
        new_topic(client)


@pytest.mark.parametrize("logged", [True, False])
def test_a_partition_whose_id_cannot_be_read_is_offline_when_metadata_are_made_again(
    tmp_path: Path, logged: bool
) -> None:
    """As the last one of its topic it was not counted, and so no partition of it any more."""
    with node(tmp_path) as client:
        topic = new_topic(client, partitions=3)
        client.ask(produce_request(client, topic, [batch("x")] * 3))
    lose(tmp_path, "gone")
    if not logged:
        shutil.rmtree(tmp_path / "commit-log")
    file = tmp_path / f"{topic}-2" / "partition.metadata"
    right = file.read_text()
    file.write_text("junk")
    with node(tmp_path, rebuild=True) as client:
        assert client.broker.node.topics.by_name[topic].count == 3
        assert "cannot be read" in client.broker.node.storage.offline[topic, 2].reason
    file.write_text(right)
    with node(tmp_path) as client:
        partition = client.broker.node.storage.partition(topic, 2)
        assert partition is not None and partition.high_watermark == 1


def test_topics_of_which_no_id_can_be_read_are_not_forgotten(tmp_path: Path) -> None:
    with node(tmp_path) as client:
        topic = new_topic(client)
    lose(tmp_path, "gone")
    shutil.rmtree(tmp_path / "commit-log")
    file = tmp_path / f"{topic}-0" / "partition.metadata"
    right = file.read_text()
    file.write_text("junk")
    with pytest.raises(DirectoryUnusable, match=f"{topic}-0/partition.metadata, or move"), node(tmp_path, rebuild=True):
        pass
    file.write_text(right)
    with node(tmp_path, rebuild=True) as client:
        assert client.broker.node.topics.by_name[topic].count == 1


def test_a_copy_under_a_number_that_no_partition_had_makes_no_topic_larger(tmp_path: Path) -> None:
    """Else keys would go to other partitions, and no topic can be made smaller again."""
    with node(tmp_path) as client:
        topic = new_topic(client, partitions=2)
        assert produce(client, topic, batch("x")).error_code == ErrorCode.NONE
    copy = shutil.copytree(tmp_path / f"{topic}-0", tmp_path / f"{topic}-7")
    lose(tmp_path, "gone")
    before = {path: path.read_bytes() for path in copy.iterdir()}
    with node(tmp_path, rebuild=True) as client:
        assert client.broker.node.topics.by_name[topic].count == 2
        assert values(fetch(client, topic)) == ["x"]
    assert {path: path.read_bytes() for path in copy.iterdir()} == before


def test_partitions_in_each_others_place_count_for_their_topic(tmp_path: Path) -> None:
    with node(tmp_path) as client:
        topic = new_topic(client, partitions=3)
    lose(tmp_path, "gone")
    one, two, between = tmp_path / f"{topic}-1", tmp_path / f"{topic}-2", tmp_path / "between"
    one.rename(between), two.rename(one), between.rename(two)
    with node(tmp_path, rebuild=True) as client:
        assert client.broker.node.topics.by_name[topic].count == 3
        assert {index for _, index in client.broker.node.storage.offline} == {1, 2}


def test_what_partitions_say_of_their_topics() -> None:
    def found(topic: str, index: int, topic_id: uuid.UUID | None, logged: bool = False) -> FoundPartition:
        return FoundPartition(topic, index, topic_id, logged)

    partitions = [found("a", 0, A, True), found("a", 2, A), found("a-1", 0, B), found("a", 1, None)]
    assert topics_of(partitions, 10) == {"a": (A, 3, 1), "a-1": (B, 1, 0)}
    # One changed letter among several; what the commit log knows counts more than many.
    assert topics_of([found("a", 0, B), found("a", 1, A), found("a", 2, A)], 10)["a"].topic_id == A
    assert topics_of([found("a", 0, B, True), found("a", 1, A), found("a", 2, A)], 10)["a"].topic_id == B
    # Copies under other names, and names that are no partitions of ours.
    copies = [found("a", 0, A, True), found("a-backup", 0, A), found("a-0-backup", 20261121, A)]
    assert topics_of(copies, 10) == {"a": (A, 1, 0)}
    # Under another number: one that the commit log knows is in its place, whatever the line says; nor can a log that is
    # lost tell.
    moved = FoundPartition("a", 7, A, logged=False, misplaced=True)
    assert topics_of([found("a", 0, A, True), moved], 10) == {"a": (A, 1, 0)}
    assert topics_of([found("a", 0, A), moved], 10) == {"a": (A, 8, 6)}
    known = FoundPartition("a", 1, A, logged=True, misplaced=True)
    assert topics_of([found("a", 0, A, True), known], 10) == {"a": (A, 2, 0)}
    with pytest.raises(DirectoryUnusable, match="'a' and of 'a-backup' have the same topic id"):
        topics_of([found("a", 0, A), found("a-backup", 0, A)], 10)
    assert topics_of([], 10) == {}


@pytest.mark.parametrize(
    ("known", "written", "stored", "largest"),
    [
        ([], [], [], -1),
        ([5], [], [], 5),
        ([], [6, 2], [], 6),
        ([5], [6], [(7, -1)], 7),
        ([5], [6], [(7, 8), (3, -1)], 8),
    ],
)
@pytest.mark.parametrize("level", [0, 2])
def test_a_producer_id_is_in_use_that_a_partition_or_a_transaction_knows_or_will(
    known: list[int], written: list[int], stored: list[tuple[int, int]], largest: int, level: int
) -> None:
    """Its producer may have written nothing that is left, and the next one of a transaction nothing at all."""
    batches = [
        journal.encode(
            TransactionMetadata(str(place), ProducerId(now), Epoch(0), next_producer_id=ProducerId(next_one)), level
        )
        for place, (now, next_one) in enumerate(stored)
    ]
    partitions = [
        SimpleNamespace(
            topic=topic,
            index=0,
            log_start_offset=0,
            producers=SimpleNamespace(entries=dict.fromkeys(known)),
            scan=lambda _, found=found: iter(found),
        )
        for topic, found in (
            ("t", [(SimpleNamespace(producer_id=each), b"") for each in written]),
            (TRANSACTION_STATE, [(read_header(batch), batch) for batch in batches]),
        )
    ]
    assert largest_producer_id(cast(Any, partitions)) == largest
