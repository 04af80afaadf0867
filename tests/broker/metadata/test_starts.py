"""Parts of a data directory that are copies of an earlier start: nothing is cut, and no producer id is given twice."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.broker.directories import node
from tests.broker.wire import Client, batch, fetch, new_topic, produce, values

from fencepost.broker.metadata.starts import Known
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import InitProducerIdRequest

LOG, METADATA = "commit-log", "metadata.sqlite"


def new_producer(client: Client) -> int:
    answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    assert answer.error_code == ErrorCode.NONE
    return int(answer.producer_id)


def write(client: Client, topic: str, *records: str) -> None:
    for record in records:
        assert produce(client, topic, batch(record)).error_code == ErrorCode.NONE


def exchange(data: Path, part: str, source: Path) -> None:
    """Put what `source` has in the place of a part of the directory."""
    here = data / part
    shutil.rmtree(here) if here.is_dir() else here.unlink()
    shutil.copytree(source / part, here) if (source / part).is_dir() else shutil.copy(source / part, here)


def contents(data: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in data.rglob("*") if each.is_file() and each.name != ".reserve"}


class History:
    """A directory with copies of it: after the first run, in the second run, and of now, after the third."""

    def __init__(self, root: Path) -> None:
        self.data, self.first, self.second, self.now = (root / name for name in ("data", "first", "second", "now"))
        with node(self.data) as client:
            self.topic = new_topic(client)
            self.known = [new_producer(client)]
            write(client, self.topic, "a")
        self.copy(self.first)
        with node(self.data) as client:
            self.known.append(new_producer(client))
            write(client, self.topic, "b")
            self.copy(self.second)
        with node(self.data) as client:
            self.known.append(new_producer(client))
            write(client, self.topic, "c")
        self.copy(self.now)

    def copy(self, to: Path) -> None:
        shutil.copytree(self.data, to)

    def values(self) -> list[str]:
        with node(self.data) as client:
            return values(fetch(client, self.topic))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


@pytest.mark.parametrize("copy", ["first", "second"])
def test_an_older_commit_log_is_refused_until_the_right_one_is_back(history: History, copy: str) -> None:
    exchange(history.data, LOG, getattr(history, copy))
    before = contents(history.data)
    for _ in range(2):
        with pytest.raises(DirectoryUnusable, match=r"commit-log is older than the rest of .*put back the one that"):
            history.values()
        assert contents(history.data) == before
    exchange(history.data, LOG, history.now)
    assert history.values() == ["a", "b", "c"]


def test_where_an_older_commit_log_is_moved_away_everything_is_kept(history: History) -> None:
    exchange(history.data, LOG, history.first)
    (history.data / LOG).rename(history.data.parent / "away")
    with node(history.data) as client:
        write(client, history.topic, "d")
    assert history.values() == ["a", "b", "c", "d"]
    shutil.rmtree(history.data / LOG)
    (history.data.parent / "away").rename(history.data / LOG)
    with pytest.raises(DirectoryUnusable, match="commit-log is older"):
        history.values()


def test_a_commit_log_without_its_newest_file_is_refused(history: History) -> None:
    exchange(history.data, LOG, history.second)
    shutil.copy(history.now / LOG / "starts", history.data / LOG / "starts")
    with pytest.raises(DirectoryUnusable, match="or lacks its newest files"):
        history.values()


@pytest.mark.parametrize("number", [b"0\n", b"1\n", b"2"])
def test_a_count_beside_the_commit_log_that_says_less_is_not_believed(history: History, number: bytes) -> None:
    (history.data / LOG / "starts").write_bytes(number)
    with pytest.raises(DirectoryUnusable, match="commit-log is older"):
        history.values()
    exchange(history.data, LOG, history.now)
    assert history.values() == ["a", "b", "c"]


@pytest.mark.parametrize("damage", [b"", b"\0\0", b"-1\n", b"3\n\n", b"s\n", b"\xb3\n", "\u00b3\n".encode(), b"9" * 30])
@pytest.mark.parametrize("metadata", ["first", "now"])
def test_a_count_beside_the_commit_log_that_is_damaged_is_named_and_can_be_written_again(
    history: History, damage: bytes, metadata: str
) -> None:
    """It says nothing: neither that the commit log is older, nor that the metadata is not."""
    exchange(history.data, METADATA, getattr(history, metadata))
    (history.data / LOG / "starts").write_bytes(damage)
    before = contents(history.data)
    with pytest.raises(DirectoryUnusable, match=r"commit-log/starts is damaged.*nothing was changed") as refused:
        history.values()
    assert contents(history.data) == before
    exchange(history.data, METADATA, history.now)
    with pytest.raises(DirectoryUnusable, match=r"write 3 into it") as refused:
        history.values()
    (history.data / LOG / "starts").write_text(str(refused.value).split()[-3])
    assert history.values() == ["a", "b", "c"]
    assert (history.data / LOG / "starts").read_text() == "4\n"


@pytest.mark.parametrize("copy", ["first", "second"])
def test_older_metadata_gives_out_no_producer_id_twice(
    history: History, copy: str, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(history.data, METADATA, getattr(history, copy))
    given = list(history.known)
    for _ in range(2):
        with node(history.data) as client:
            assert values(fetch(client, history.topic)) == ["a", "b", "c"]
            given.append(new_producer(client))
        assert len(set(given)) == len(given)
    assert given[-1] - given[-2] < 10_000, "only the first start goes on far beyond"
    assert len([said for said in caplog.messages if "metadata.sqlite is older than the rest" in said]) == 1


def test_older_metadata_goes_on_beyond_every_producer_id_that_a_partition_knows(history: History) -> None:
    """Also beyond those that a start with older metadata gave out before."""
    for _ in range(2):
        exchange(history.data, METADATA, history.first)
        with node(history.data) as client:
            given = new_producer(client)
            assert given not in history.known
            history.known.append(given)
            record = batch("x", pair=(given, 0), sequence=0)
            assert produce(client, history.topic, record).error_code == ErrorCode.NONE


def test_starts_are_counted_on_with_older_metadata(history: History) -> None:
    """Counted from there, a commit log of a later start would be taken for an older one, or the other way round."""
    exchange(history.data, METADATA, history.first)
    for number in (4, 5):
        assert history.values() == ["a", "b", "c"]
        assert (history.data / LOG / "starts").read_text() == f"{number}\n"


def test_an_older_copy_of_everything_is_as_good_as_new(history: History) -> None:
    for copy, records in ((history.first, ["a"]), (history.second, ["a", "b"]), (history.now, ["a", "b", "c"])):
        history.data = copy
        assert history.values() == records


def test_a_directory_of_an_earlier_version_is_taken_as_it_is(history: History) -> None:
    """It counted no starts."""
    connection = sqlite3.connect(history.data / METADATA)
    assert connection.execute("DELETE FROM metadata WHERE key LIKE 'starts-%'").rowcount == 2
    connection.commit()
    connection.close()
    (history.data / LOG / "starts").unlink()
    for _ in range(2):
        assert history.values() == ["a", "b", "c"]
    assert (history.data / LOG / "starts").read_text() == "2\n"


@pytest.mark.parametrize("begun", range(4))
@pytest.mark.parametrize("done", range(4))
@pytest.mark.parametrize("beside", range(4))
def test_a_start_that_ends_anywhere_is_no_older_copy(begun: int, done: int, beside: int) -> None:
    """The order of writing: begun, beside the log, a generation, done; each may be the last one that was."""
    known = Known(begun, done, done * 10, beside, done * 10)
    assert known.log_is_older == (beside < done and done > 0)
    assert known.metadata_is_older == (beside > begun)


@pytest.mark.parametrize(("begun", "beside_log"), [(0, 0), (3, 3), (4, 3), (3, 4)])
def test_no_start_has_the_number_of_one_that_was_begun_before(begun: int, beside_log: int) -> None:
    """Whichever of the two places was written before the end."""
    number = Known(begun, min(begun, beside_log), 1, beside_log, 1).next_number
    assert number == max(begun, beside_log) + 1
