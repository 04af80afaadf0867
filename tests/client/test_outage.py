"""That nobody is reached is said in the log: after two seconds, once, and not of somebody who gave up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.admin.nodes import FIRST_PORT, SILENT, Everybody, Nodes, ScriptedConnection, play

from fencepost.client import Admin, AuthenticationError, TimedOutError, UnreachableError, cluster
from fencepost.client.outage import SAID_AFTER, SAID_AGAIN_AFTER


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Grows."""
    found: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(f"{record.levelname} {record.getMessage()}")

    logger = logging.getLogger("fencepost.client.outage")
    caplog.set_level(logging.INFO, logger.name)
    handler = Noting()
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def all_gone(nodes: Nodes) -> None:
    for node in range(3):
        nodes.network.take_down(FIRST_PORT + node)


async def give_up(admin: Admin) -> None:
    with pytest.raises(TimedOutError):
        await admin.topics()


@pytest.mark.parametrize("kind", ["refuses", "is silent"])
def test_it_is_said_once_while_the_call_goes_on_trying(kind: str, said: list[str], monkeypatch: Any) -> None:
    async def scenario(nodes: Nodes) -> None:
        if kind == "refuses":
            all_gone(nodes)
        else:
            monkeypatch.setattr(Nodes, "respond", lambda *_: SILENT)
        async with nodes.admin(max_block_ms=10_000, client_id="the client", request_timeout_ms=4000) as admin:
            trying = asyncio.ensure_future(give_up(admin))
            await asyncio.sleep(SAID_AFTER - 0.1)
            assert said == []
            await asyncio.sleep(0.2)
            (line,) = said
            assert line.startswith(
                f"WARNING client the client: no broker has been reached for 2 s, by bootstrap_servers "
                f"127.0.0.1:{FIRST_PORT}: "
            )
            assert "max_block_ms" in line
            await trying
            await give_up(admin)
        assert len(said) == 1

    play(scenario)


def test_its_end_is_said_and_the_next_one_not_before_a_minute(said: list[str]) -> None:
    async def scenario(nodes: Nodes) -> None:
        async with nodes.admin(max_block_ms=4000) as admin:
            for pause, lines in ((0.0, 2), (1.0, 2), (SAID_AGAIN_AFTER, 4)):
                await asyncio.sleep(pause)
                all_gone(nodes)
                await give_up(admin)
                await nodes.start()
                await admin.topics()
                assert len(said) == lines
        assert [line.split()[0] for line in said] == ["WARNING", "INFO"] * 2
        assert "reached again, after" in said[1]

    play(scenario)


def test_nothing_is_said_of_a_short_outage_nor_of_a_client_that_is_closed_or_was_given_up(said: list[str]) -> None:
    async def scenario(nodes: Nodes) -> None:
        all_gone(nodes)
        async with nodes.admin(max_block_ms=500) as admin:
            await give_up(admin)
            await asyncio.sleep(10)
        async with nodes.admin(max_block_ms=1500) as admin:
            await give_up(admin)
        await asyncio.sleep(10)
        async with nodes.admin(max_block_ms=4000) as admin:
            trying = asyncio.ensure_future(admin.topics())
            await asyncio.sleep(1)
            await nodes.start()
            await trying
            await asyncio.sleep(10)
        assert said == []

    play(scenario)


def test_a_broker_that_refuses_the_login_was_reached(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(0.3)
        raise AuthenticationError("wrong password")

    async def scenario(nodes: Nodes) -> None:
        monkeypatch.setattr(cluster, "open_connection", refused)
        async with nodes.admin() as admin:
            for _ in range(20):
                with pytest.raises(AuthenticationError):
                    await admin.topics()
        assert said == []

    play(scenario)


def test_nothing_is_said_when_somebody_else_reaches_a_broker_meanwhile(said: list[str]) -> None:
    """A producer that sends connects to leaders itself."""

    async def scenario(nodes: Nodes) -> None:
        looking = cluster.Cluster("127.0.0.1:1", client_id="x", runtime=nodes.runtime())
        looking.nodes = {0: ("127.0.0.1", FIRST_PORT)}
        nodes.network.take_down(FIRST_PORT)
        for _ in range(13):
            with pytest.raises(UnreachableError):
                await looking.any_connection()
            await asyncio.sleep(0.1)
        await nodes.network.listen(lambda: ScriptedConnection(nodes, 0), "", FIRST_PORT, Everybody())
        await looking.connection(0)
        await asyncio.sleep(2)
        assert said == []
        await looking.close()

    play(scenario)
