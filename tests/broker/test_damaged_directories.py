"""Half records and foreign ones in a node's directory: said once, and whoever has nothing to do with it goes on."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.group_talk import commit, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    end,
    ended,
    fetch,
    find_coordinator,
    init,
    init_answer,
    new_topic,
    produce,
    values,
)

from fencepost.broker import running_broker
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.protocol.batch import headers, stamp
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.records import decode_batch, encode_batch, encode_record, seal
from fencepost.protocol.types import LeaderEpoch, Milliseconds, Offset, ProducerIdAndEpoch

PARTITIONS = 5
COME_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: With the operating system's flush the segments are all there is, as in a directory of Apache Kafka.
FLUSH = "os"


@pytest.fixture(autouse=True)
def what_the_log_says(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever level others have set."""
    caplog.set_level(logging.WARNING, "fencepost")


@contextmanager
def node(data: Path) -> Iterator[Client]:
    with running_broker(data=data, settings=SETTINGS, flush=FLUSH) as broker:
        client = Client(broker)
        yield client
        client.close()


def forget_the_commit_log(data: Path) -> None:
    """As a directory that was put back from a copy, or comes from elsewhere: everything is read and checked."""
    for file in (data / "commit-log").glob("*.log"):
        file.unlink()


def append(data: Path, directory: str, raw: bytes) -> int:
    """Write a batch behind the last one of a partition; its offset."""
    file = data / directory / f"{0:020d}.log"
    known = file.read_bytes()
    offset = max((header.last_offset for _, header in headers(known)), default=-1) + 1
    given = bytearray(raw)
    stamp(given, 0, Offset(offset), LeaderEpoch(0))
    file.write_bytes(known + given)
    forget_the_commit_log(data)
    return offset


def control(key: bytes, value: bytes, pair: ProducerIdAndEpoch) -> bytes:
    body = encode_record(0, 0, key, value, ())
    return seal(
        body,
        1,
        Milliseconds(1),
        Milliseconds(1),
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        transactional=True,
        control=True,
    )


def last_record(data: Path, directory: str) -> tuple[bytes, bytes]:
    """Key and value of the newest record of a journal that has a value."""
    raw = (data / directory / f"{0:020d}.log").read_bytes()
    found = [record for at, header in headers(raw) if not header.is_control for record in decode_batch(raw, at)]
    key, value = next((each.key, each.value) for each in reversed(found) if each.value)
    assert key is not None and value is not None
    return key, value


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is said, but for what `forget_the_commit_log` causes."""
    said = [each.getMessage() for each in caplog.records]
    return [line for line in said if not line.startswith("there is no commit log")]


FOREIGN = {
    "half a value": (b"\0\0\0\1", b"\0\0\0"),
    "half a key": (b"\0\0\0", b""),
    "another type": (b"\0\0\0\x07", b"?"),
    "another version and type": (b"\0\x63\0\x09", b""),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_control_batch_that_is_no_marker_ends_nothing(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    with node(tmp_path) as client:
        find_group(client)
        topic, other, pair = new_topic(client), new_topic(client), init(client, "t")
        data = batch("first", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
        assert txn_commit(client, "t", pair, other, 5) == [ErrorCode.NONE]
    group_home = f"__consumer_offsets-{partition_for_id('g', PARTITIONS)}"
    id_home = f"__transaction_state-{partition_for_id('t', PARTITIONS)}"
    foreign = control(*FOREIGN[what], ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1))
    places = {where: append(tmp_path, where, foreign) for where in (f"{topic}-0", group_home, id_home)}
    with node(tmp_path) as client:
        assert fetch(client, topic).last_stable_offset == 0
        data = batch("second", pair=pair, sequence=1, transactional=True)
        assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
        ended(client, "t", pair)
        assert fetch(client, topic).last_stable_offset == fetch(client, topic).high_watermark == 4
        assert produce(client, other, batch("plain")).error_code == ErrorCode.NONE
    said = lines(caplog)
    for where, offset in places.items():
        name, _, index = where.rpartition("-")
        (line,) = [each for each in said if f"topic={name} partition={index} offset={offset} " in each]
        assert "no transaction marker" in line and "WriteTxnMarkers" in line


def half_of_the_value(key: bytes, value: bytes) -> bytes:
    return encode_batch([(1, key, value[: len(value) // 2], ())])


def half_of_the_key(key: bytes, value: bytes) -> bytes:
    return encode_batch([(1, key[: len(key) // 2], value, ())])


def a_version_of_the_future(key: bytes, value: bytes) -> bytes:
    return encode_batch([(1, key, b"\x7f\xff" + value[2:], ())])


HALVES = [half_of_the_value, half_of_the_key, a_version_of_the_future]


@pytest.mark.parametrize("damage", HALVES)
def test_half_a_record_in_the_journal_of_transactions(
    tmp_path: Path, damage: Callable[[bytes, bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """What it said is not known, so nothing of its partition is used: an older record would be a wrong answer."""
    with node(tmp_path) as client:
        topic, pair = new_topic(client), init(client, "t")
        names = [f"u{number}" for number in range(40)]
        others = [name for name in names if partition_for_id(name, PARTITIONS) != partition_for_id("t", PARTITIONS)]
        pairs = {name: init(client, name) for name in others}
    home = partition_for_id("t", PARTITIONS)
    directory = f"__transaction_state-{home}"
    offset = append(tmp_path, directory, damage(*last_record(tmp_path, directory)))
    with node(tmp_path) as client:
        assert init_answer(client, "t").error_code == COME_AGAIN
        assert init_answer(client, "t", pair).error_code == COME_AGAIN
        assert add(client, "t", pair, topic) == COME_AGAIN
        assert end(client, "t", pair).error_code == COME_AGAIN
        data = batch("x", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, "t").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
        assert state.error_code == COME_AGAIN
        listed = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        assert listed.error_code == COME_AGAIN, "a part of them would be taken for all"
        for name, known in pairs.items():
            data = batch(name, pair=known, sequence=0, transactional=True)
            assert produce(client, topic, data, name).error_code == ErrorCode.NONE
            ended(client, name, known)
        assert values(fetch(client, topic)) == others
    (line,) = lines(caplog)
    assert f"topic=__transaction_state partition={home}" in line and f"at offset {offset}" in line
    assert "put back a copy" in line


@pytest.mark.parametrize("damage", HALVES)
def test_half_a_record_in_the_journal_of_groups(
    tmp_path: Path, damage: Callable[[bytes, bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with node(tmp_path) as client:
        find_group(client)
        topic, pair = new_topic(client), init(client, "t")
        assert commit(client, topic, 5) == [ErrorCode.NONE]
    home = partition_for_id("g", PARTITIONS)
    directory = f"__consumer_offsets-{home}"
    offset = append(tmp_path, directory, damage(*last_record(tmp_path, directory)))
    with node(tmp_path) as client:
        assert commit(client, topic, 6) == [COME_AGAIN]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True)
        assert client.ask(asked, 9).groups[0].error_code == COME_AGAIN
        assert txn_commit(client, "t", pair, topic, 6) == [COME_AGAIN]
        assert client.ask(ListGroupsRequest(states_filter=[], types_filter=[])).error_code == COME_AGAIN
        others = [f"h{n}" for n in range(20) if partition_for_id(f"h{n}", PARTITIONS) != home]
        for group in others:
            assert commit(client, topic, 7, group=group) == [ErrorCode.NONE]
        data = batch("x", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
        ended(client, "t", pair)
    (line,) = lines(caplog)
    assert f"topic=__consumer_offsets partition={home}" in line and f"at offset {offset}" in line


def test_a_torn_batch_in_a_journal_is_cut_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its end was never acknowledged: what was before it counts."""
    with node(tmp_path) as client:
        find_group(client)
        topic, pair = new_topic(client), init(client, "t")
        assert commit(client, topic, 5) == [ErrorCode.NONE]
    for name, key in (("__transaction_state", "t"), ("__consumer_offsets", "g")):
        directory = f"{name}-{partition_for_id(key, PARTITIONS)}"
        append(tmp_path, directory, half_of_the_value(*last_record(tmp_path, directory))[:-3])
    with node(tmp_path) as client:
        find_coordinator(client, "t")
        assert init_answer(client, "t", pair).producer_epoch == pair.producer_epoch + 1
        assert commit(client, topic, 6) == [ErrorCode.NONE]
    assert len(lines(caplog)) == 2 and all("cut a log" in line for line in lines(caplog))


def test_a_log_that_lost_what_was_synced_is_named_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with node(tmp_path) as client:
        topic, other = new_topic(client), new_topic(client)
        for each in (topic, other):
            assert produce(client, each, batch("x")).error_code == ErrorCode.NONE
    file = tmp_path / f"{topic}-0" / f"{0:020d}.log"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    for _ in range(2):
        with node(tmp_path) as client:
            assert fetch(client, topic).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, topic, batch("y")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert values(fetch(client, other)) == ["x"]
        (line,) = lines(caplog)
        assert f"{topic}-0/{0:020d}.log has" in line and "were synced; put back a copy" in line
        caplog.clear()
    file.write_bytes(whole)
    with node(tmp_path) as client:
        assert values(fetch(client, topic)) == ["x"]


@pytest.mark.parametrize(
    "name",
    [".lock", ".reserve", "fencepost.version", "fencepost.properties", "cleaner-offset-checkpoint", "commit-log/{}"],
)
@pytest.mark.parametrize("what", ["a directory", "a link to nothing"])
def test_what_stands_in_the_place_of_a_file_of_the_node_is_named_where_it_cannot_start(
    name: str, what: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with node(data) as client:
        topic = new_topic(client)
        assert produce(client, topic, batch("x")).error_code == ErrorCode.NONE
    (log,) = (data / "commit-log").glob("*.log")
    path = data / name.format(log.name)
    path.rename(tmp_path / "away") if path.exists() else None
    if what == "a directory":
        path.mkdir()
    elif name == ".reserve":
        return  # it is removed
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DirectoryUnusable) as refused, node(data):
        pass
    assert f"{path}: " in str(refused.value) and "then start again" in str(refused.value)
    path.rmdir() if what == "a directory" else path.unlink()
    if (tmp_path / "away").exists():
        (tmp_path / "away").rename(path)
    with node(data) as client:
        assert values(fetch(client, topic)) == ["x"]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["metadata.sqlite", "{}-0/00000000000000000000.log", "{}-0/partition.metadata"])
def test_who_may_not_use_a_file_is_told_to_see_to_that_and_not_to_do_without_it(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata that are made again lack the settings of all topics."""
    with node(tmp_path) as client:
        topic = new_topic(client)
        assert produce(client, topic, batch("x")).error_code == ErrorCode.NONE
    path, opened = tmp_path / name.format(topic), os.open

    def refusing(given: Any, *how: Any, **more: Any) -> int:
        if Path(given) == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(given, *how, **more)

    with monkeypatch.context() as patch:
        patch.setattr("os.open", refusing)
        if name == "metadata.sqlite":
            with pytest.raises(DirectoryUnusable) as refused, node(tmp_path):
                pass
            told = str(refused.value)
        else:
            with node(tmp_path) as client:
                assert fetch(client, topic).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            (told,) = lines(caplog)
    assert str(path) in told and "Permission denied" in told and "see to it that the node can read and write it" in told
    assert "--rebuild-metadata" not in told and "write '" not in told
    assert name == "metadata.sqlite" or "move" not in told, "which would lose it"
    with node(tmp_path) as client:
        assert values(fetch(client, topic)) == ["x"]
