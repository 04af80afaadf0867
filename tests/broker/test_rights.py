"""A start without the rights to some file: it is refused and has written nothing, or one partition is offline."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.directories import node, to_recover
from tests.broker.test_refused_starts import everything
from tests.broker.wire import SETTINGS, fetch, values
from tests.log.log_doubles import append
from tests.log.log_doubles import batch as log_batch

from fencepost.broker import Broker
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.protocol.errors import ErrorCode

NOBODY = 65534
SEGMENT = f"{0:020d}.log"


@pytest.fixture
def data() -> Iterator[Path]:
    """The directory of a node that was killed with two topics, of which one has a record in the commit log alone."""

    async def run(data: Path) -> None:
        broker = await Broker(data=data, settings=SETTINGS).start()
        for topic in ("t", "u"):
            broker.node.topics.create_at_once(topic, 1)
            partition = broker.node.storage.partition(topic, 0)
            assert partition is not None
            await broker.node.storage.durability.wait(append(partition, log_batch(tag="kept")).lsn)
        broker.crash()
        (data / "t-0" / SEGMENT).unlink()  # as a power loss may: all of it is in the commit log

    # Not in tmp_path, which is its owner's alone.
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        asyncio.run(run(root / "data"))
        assert to_recover(root / "data") > 0
        if os.geteuid() == 0:
            for path in [root, *root.rglob("*")]:
                os.chown(path, NOBODY, NOBODY)
        yield root / "data"
        shutil.rmtree(root / "data")


@contextmanager
def lacking(path: Path, mode: int) -> Iterator[None]:
    """As somebody who has no other rights to this than its mode gives."""
    before = path.stat().st_mode & 0o777
    path.chmod(mode)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        if path.exists():
            path.chmod(before)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("", 0o555),
        ("commit-log", 0o555),
        ("commit-log", 0),
        ("commit-log/starts", 0o444),
        ("metadata.sqlite", 0o444),
        ("fencepost.version", 0),
    ],
)
def test_a_start_that_is_refused_for_missing_rights_writes_nothing(data: Path, name: str, mode: int) -> None:
    before = everything(data)
    with lacking(data / name, mode):
        with pytest.raises(DirectoryUnusable, match="Permission denied; see to it") as refused, node(data):
            pass
        assert str(data / name) in str(refused.value)
    assert everything(data) == before
    with node(data) as client:
        assert values(fetch(client, "t")) == values(fetch(client, "u")) == ["kept"]


@pytest.mark.parametrize(("name", "mode"), [("t-0", 0), ("t-0", 0o555), ("t-0/partition.metadata", 0)])
def test_a_partition_without_its_rights_is_offline_until_it_has_them(
    data: Path, name: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    with lacking(data / name, mode), node(data) as client:
        assert fetch(client, "t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(fetch(client, "u")) == ["kept"]
    (told,) = (record.getMessage() for record in caplog.records if record.levelname != "INFO")
    assert told.startswith("partition t-0 is offline") and "Permission denied" in told and str(data / name) in told
    with node(data) as client:
        assert values(fetch(client, "t")) == ["kept"]


def test_leader_epochs_that_may_not_be_read_are_told_as_such_and_made_again(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = data / "u-0" / "leader-epoch-checkpoint"
    with lacking(path, 0), node(data) as client:
        assert values(fetch(client, "u")) == ["kept"]
    (told,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert told.startswith(f"{path} could not be read (Permission denied) and was made again")
