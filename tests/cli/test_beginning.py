"""What `serve` refuses before it begins anything, and what it tells whom when it has begun."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker import Broker
from fencepost.broker.node import Endpoint
from fencepost.cli import Refused, main, serve
from fencepost.log.descriptors import LEAST


@pytest.fixture(autouse=True)
def nothing_of_the_process_changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serve, "StopSignals", lambda: SimpleNamespace(have_come=lambda: False))
    monkeypatch.setattr(serve, "freed_memory", lambda _: None)
    monkeypatch.setattr(serve, "get_logger", lambda _: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    yield
    gc.enable()


def options(**given: object) -> argparse.Namespace:
    usual: dict[str, object] = {
        "listen": "127.0.0.1:0",
        "advertise": None,
        "metrics": None,
        "data": "",
        "set": [],
        "settings": None,
    }
    others = {"flush": "durable", "recover_from_segments": False, "rebuild_metadata": False}
    return argparse.Namespace(**{**usual, **others, **given})


@pytest.mark.parametrize(("limit", "told"), [(LEAST - 1, "ulimit"), (LEAST, "--data"), (-1, "--data")])
def test_a_limit_of_open_files_may_be_too_low_and_there_may_be_none(
    limit: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "raise_limit", lambda: limit)
    with pytest.raises(Refused, match=told):
        serve.run(options())


@pytest.mark.parametrize(
    ("number", "what_to_do"), [(errno.EADDRINUSE, "another"), (errno.EMFILE, "ulimit"), (errno.ENFILE, "ulimit")]
)
def test_another_address_is_advised_where_that_may_help(number: int, what_to_do: str) -> None:
    assert what_to_do in str(serve._cannot_listen("--listen", "127.0.0.1:9", OSError(number, os.strerror(number))))


def test_a_bad_setting_is_told_with_where_it_was_given_whatever_its_name_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "raise_limit", lambda: LEAST)
    file = tmp_path / "server.properties"
    file.write_text("num.partitions.here=1\n")
    data = str(tmp_path / "data")
    with pytest.raises(Refused, match=r"--settings .*server\.properties: num\.partitions\.here"):
        serve.run(options(data=data, settings=str(file), set=["num.partitions=3"]))
    file.write_text("num.partitions=3\n")
    with pytest.raises(Refused, match=r"--set num\.partitions\.here"):
        serve.run(options(data=data, settings=str(file), set=["num.partitions.here=1"]))


@pytest.mark.parametrize("unknown", ["word", "--option", "-o"])
def test_what_a_command_does_not_take_is_named(unknown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--data", "", unknown])
    assert ended.value.code == 2
    assert f"fencepost serve: it takes no {unknown!r}" in capsys.readouterr().err


@pytest.mark.parametrize("fails", [False, True])
def test_metrics_are_those_of_the_node_and_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    told: list[object] = []
    exporter = SimpleNamespace(tell_of=told.append, close=lambda: told.append("closed"))

    async def until_signalled(broker: Broker, *_: object) -> int:
        await broker.stop()
        if fails:
            raise ZeroDivisionError
        return 7

    monkeypatch.setattr(serve, "_exporter", lambda *_: exporter)
    monkeypatch.setattr(serve, "_until_signalled", until_signalled)
    broker, signals = Broker(data=tmp_path), cast(Any, SimpleNamespace(when_one_comes=lambda _: None))
    serving = serve._serve(broker, options(data=str(tmp_path)), Endpoint.of("127.0.0.1:9"), None, signals)
    if fails:
        with pytest.raises(ZeroDivisionError):
            asyncio.run(serving)
    else:
        assert asyncio.run(serving) == 7
    assert told == [broker, "closed"]
