"""A start that is refused writes nothing, whatever the reason: not even a file that is missing is made again."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from tests.broker.directories import node, to_recover
from tests.broker.wire import HELLO, SETTINGS, batch, new_topic, produce
from tests.log.log_doubles import append
from tests.log.log_doubles import batch as log_batch

from fencepost.broker import Broker, running_broker
from fencepost.log.data_directory import DirectoryUnusable, check_free, mark, take
from fencepost.log.disk import LocalDisk
from fencepost.protocol.codec import API_VERSIONS, decode_response, encode_request
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import RESPONSES
from fencepost.runtime import Admission, Listener, Runtime, SocketNetwork, SystemClock

SEGMENT = f"{0:020d}.log"


def _damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _newest_generation(data: Path) -> Path:
    return max((data / "commit-log").glob("*.log"))


def _copy_a_topic(data: Path) -> None:
    (data / "metadata.sqlite").unlink()
    shutil.rmtree(data / "commit-log")
    (data / "commit-log").mkdir()
    shutil.copytree(next(data.glob("*-0")), data / "a-copy-0")


#: What is wrong with a directory -> what makes it so; behind it whether --rebuild-metadata is given.
WRONG: dict[str, tuple[Callable[[Path], object], bool]] = {
    "of Apache Kafka": (lambda data: (data / "meta.properties").write_text("version=1"), False),
    "of a newer version": (lambda data: (data / "fencepost.version").write_text("99"), False),
    "a version that cannot be read": (lambda data: (data / "fencepost.version").write_text("?"), False),
    "no metadata": (lambda data: (data / "metadata.sqlite").unlink(), False),
    "damaged metadata": (lambda data: _damage(data / "metadata.sqlite", 30), False),
    "metadata that are no database": (lambda data: (data / "metadata.sqlite").write_bytes(b"x" * 5000), False),
    "metadata that are there": (lambda _: None, True),
    "a copy of a topic": (_copy_a_topic, True),
    "a damaged commit log": (lambda data: _damage(_newest_generation(data), 60), False),
    "a commit log of another start": (lambda data: (data / "commit-log" / "starts").write_text("0"), False),
    "a generation of nobody": (lambda data: (data / "commit-log" / f"{999:020d}.log").write_bytes(b"x" * 99), False),
    "of another cluster": (
        lambda data: (data / "fencepost.properties").write_text(f"version=1\ncluster.id={'x' * 22}\n"),
        False,
    ),
    "no cluster": (lambda data: (data / "fencepost.properties").write_text("?"), False),
}
#: Files that a start makes again where it goes on.
MADE_AGAIN = ["", "fencepost.version", "fencepost.properties"]


def everything(data: Path) -> dict[str, bytes]:
    found = {}
    for directory, _, names in os.walk(data):
        found[directory] = b""
        found |= {path: Path(path).read_bytes() for path in (f"{directory}/{name}" for name in names)}
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a node that was started twice, and has a record."""
    data = tmp_path_factory.mktemp("used")
    for _ in range(2):
        with node(data) as client:
            assert produce(client, new_topic(client), batch("kept")).error_code == 0
    return data


@pytest.mark.parametrize("missing", MADE_AGAIN)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_start_that_is_refused_writes_nothing(tmp_path: Path, used: Path, wrong: str, missing: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(used, data)
    make_wrong, rebuild = WRONG[wrong]
    if missing:
        (data / missing).unlink()
    make_wrong(data)
    before = everything(data)
    with pytest.raises(DirectoryUnusable), node(data, rebuild=rebuild):
        pass
    assert everything(data) == before


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_directory_that_apache_kafka_left_is_named_as_such(tmp_path: Path, rebuild: bool) -> None:
    """Whatever of it is no file of ours: it was said that its metadata are lost, and to make them again."""
    data = tmp_path / "data"
    for name in ("__cluster_metadata-0", "orders-0", "other-1"):
        (data / name).mkdir(parents=True)
        (data / name / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        (data / name / f"{0:020d}.log").write_bytes(b"x" * 100)
    for name in ("meta.properties", "bootstrap.checkpoint", "cleaner-offset-checkpoint"):
        (data / name).write_text("version=1\n")
    before = everything(data)
    with (
        pytest.raises(DirectoryUnusable, match=r"one of Apache Kafka.*choose another --data"),
        node(data, rebuild=rebuild),
    ):
        pass
    assert everything(data) == before


# What others have


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a node that was killed: the next start has something to recover."""
    data = tmp_path_factory.mktemp("crashed")

    async def run() -> None:
        broker = await Broker(data=data, settings=SETTINGS).start()
        broker.node.topics.create_at_once("t", 1)
        partition = broker.node.storage.partition("t", 0)
        assert partition is not None
        await broker.node.storage.durability.wait(append(partition, log_batch(tag="kept")).lsn)
        broker.crash()

    asyncio.run(run())
    assert to_recover(data) > 0
    return data


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ({"address"}, "in use"),
        ({"directory"}, "used by another running broker: stop it, or choose another --data"),
        ({"address", "directory"}, "used by another running broker: stop it, or choose another --data"),
    ],
)
def test_what_another_one_has_is_told_before_anything_is_written(
    tmp_path: Path, crashed: Path, taken: set[str], told: str
) -> None:
    """The same node started a second time has both in use, and it is the node that is to be named."""
    data = tmp_path / "data"
    shutil.copytree(crashed, data)
    before = everything(data)
    with ExitStack() as held, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if "address" in taken:
            other.listen()
        else:
            other.close()
        if "directory" in taken:
            held.callback(LocalDisk().lock(data / ".lock"))
        port = other.getsockname()[1] if "address" in taken else 0
        broker = Broker(data=data, settings=SETTINGS, listen=f"127.0.0.1:{port}")
        with pytest.raises((OSError, DirectoryUnusable), match=told):
            asyncio.run(broker.start())
        assert everything(data) == before


def test_a_new_directory_is_not_made_where_the_address_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        broker = Broker(data=tmp_path / "data", listen=f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(OSError, match="in use"):
            asyncio.run(broker.start())
    assert not (tmp_path / "data").exists()


class Impatient(SocketNetwork):
    """Somebody connects as soon as the node has its address."""

    def __init__(self) -> None:
        self.refused = 0

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        admission: Admission,
        *,
        at_once: bool = True,
    ) -> Listener:
        listener = await super().listen(protocol_factory, host, port, admission, at_once=at_once)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, listener.port), timeout=20)
        self.refused += 1
        return listener


def test_who_connects_before_all_is_recovered_finds_nobody(tmp_path: Path, crashed: Path) -> None:
    """A client that waited would take the node for one that does not answer, or for a very old one."""
    data, network = tmp_path / "data", Impatient()
    shutil.copytree(crashed, data)
    with running_broker(data=data, settings=SETTINGS, runtime=Runtime(SystemClock(), network, Random(1))) as broker:
        assert network.refused == 1
        with socket.create_connection((broker.host, broker.port), timeout=20) as asked:
            asked.sendall(encode_request(HELLO, 3, 1, "in time"))
            answer = asked.recv(1 << 16)
    assert decode_response(RESPONSES[API_VERSIONS], answer[4:], 3)[1].error_code == ErrorCode.NONE


def test_a_directory_of_a_newer_format_is_refused_and_free_for_whoever_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk()
    take(disk, tmp_path, tmp_path / "commit-log")()
    with monkeypatch.context() as newer:
        newer.setattr("fencepost.log.data_directory.FORMAT_VERSION", 2)
        mark(disk, tmp_path)
    for _ in range(2):
        with pytest.raises(DirectoryUnusable, match="newer"):
            take(disk, tmp_path, tmp_path / "commit-log")
        check_free(disk, tmp_path)
