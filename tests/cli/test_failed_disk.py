"""How the process of a node ends when its disk has failed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fencepost.broker import Broker, running_broker
from fencepost.cli.serve import _until_signalled
from fencepost.cli.stop_signals import StopSignals
from fencepost.log.commit_log import StorageFailed
from fencepost.log.space import NAME as RESERVE


class Listener:
    """A connection that notes how it was ended."""

    under_way = ()

    def __init__(self) -> None:
        self.ends: list[str] = []

    def close(self) -> None:
        self.ends.append("with the answers that were ready")

    def abort(self) -> None:
        self.ends.append("at once")

    def tidy(self, now: float, longest_idle: float) -> None: ...


@pytest.mark.parametrize("flush", ["durable", "os"])
def test_a_node_whose_disk_has_failed_ends_as_if_it_were_killed_and_says_so(
    flush: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it knows is ahead of the disk: it is neither answered nor written any more."""

    def written() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != RESERVE}

    async def main() -> int:
        broker = await Broker(data=tmp_path, flush=flush).start()
        listener = Listener()
        before: dict[Path, bytes] = {}
        broker.node.connections[listener] = None

        async def fail() -> None:
            nonlocal before
            await broker.node.topics.create("t", 2, {}, broker.node.slices)
            broker.node.storage.fail(StorageFailed("the disk did not take it"))
            before = written()

        failing = asyncio.ensure_future(fail())
        nobody = cast(StopSignals, SimpleNamespace(when_one_comes=lambda _: None))
        code = await _until_signalled(broker, str(tmp_path), None, nobody)
        await failing
        assert listener.ends == ["at once"]
        assert written() == before
        return code

    assert asyncio.run(main()) == 1
    assert "ready" in capsys.readouterr().out
    (said,) = [text for text in caplog.messages if text.startswith("stopped: ")]
    lost = "nothing acknowledged is lost"
    if flush == "os":
        lost = "with --flush=os what was acknowledged last may be lost"
    assert said == f"stopped: the disk did not take it; {lost}, start again when the disk is well"
    with running_broker(data=tmp_path, flush=flush):
        pass
