"""A broker in a thread of its own: it is what it was given, and nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random

import pytest

from fencepost.broker import running_broker
from fencepost.broker.metadata.settings import BadSetting
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Runtime, SocketNetwork, SystemClock


class Ahead(SystemClock):
    """A clock that is fast by a day."""

    def now(self) -> Milliseconds:
        return Milliseconds(super().now() + 86_400_000)


def threads() -> set[threading.Thread]:
    """Those of brokers: others of this process may have one as well."""
    return {each for each in threading.enumerate() if each.name == "fencepost-broker"}


def test_it_has_the_world_that_it_was_given_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    new = asyncio.new_event_loop

    def made() -> asyncio.AbstractEventLoop:
        loops.append(new())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", made)
    clock, before = Ahead(), threads()
    with running_broker(data=tmp_path, flush="os", runtime=Runtime(clock, SocketNetwork(), Random(1))) as broker:
        assert broker.node.clock is clock
        assert broker.node.storage.flush_to_os
        assert (tmp_path / "metadata.sqlite").exists()
        assert len(threads() - before) == 1
    assert threads() == before
    assert [each.is_closed() for each in loops] == [True]


def test_one_that_cannot_start_leaves_nothing_either(tmp_path: Path) -> None:
    before = threads()
    with pytest.raises(BadSetting), running_broker(settings={"no.such.setting": 1}):
        raise AssertionError("it has started")
    with running_broker(data=tmp_path) as broker:
        another = running_broker(data=tmp_path / "another", listen=f"127.0.0.1:{broker.port}")
        with pytest.raises(OSError, match="in use"), another:
            raise AssertionError("it has started")
        assert len(threads() - before) == 1
    assert threads() == before
