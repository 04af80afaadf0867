"""Logging in again on a connection in use (KIP-368), and where tokens come from."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from typing import Any

import pytest
from tests.client.sasl.servers import PASSWORD, USERNAME, PlainServer, TokenServer
from tests.client.secured import TOKEN
from tests.client.test_authentication import SECURED, SERVERS, front, settings
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, Producer
from fencepost.client.authentication import Login
from fencepost.client.errors import AuthenticationError, ConnectionLostError
from fencepost.client.opening import open_connection
from fencepost.client.security import Security
from fencepost.protocol.messages import MetadataRequest
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.simulation.world import World

# Sessions that end

SESSION_MS = 60_000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_connection_in_use_logs_in_again_and_nothing_is_lost_doubled_or_out_of_order(mechanism: str) -> None:
    async def scenario(world: World) -> None:
        there = await front(world, session_ms=SESSION_MS)
        how = settings(mechanism)
        end = world.loop.time() + 200
        sent = list[bytes]()
        found = list[bytes]()

        async def write(producer: Producer) -> None:
            while world.loop.time() < end:
                for _ in range(3):
                    await producer.send("t", b"%d" % len(sent), partition=0)
                    sent.append(b"%d" % len(sent))
                await asyncio.sleep(0.1)
            await producer.flush()

        async def read(consumer: Consumer) -> None:
            while world.loop.time() < end or len(found) < len(sent):
                found.extend(record.value or b"" for record in await consumer.poll(500))

        async with (
            Producer(SERVERS, runtime=world.runtime("p"), **how) as producer,
            Consumer("t", bootstrap_servers=SERVERS, group_id="g", runtime=world.runtime("c"), **how) as consumer,
        ):
            await asyncio.gather(write(producer), read(consumer))
            assert found == sent and len(sent) > 5_000
            opened = there.logins
            assert there.refusals == [], "no connection was ended"
        assert there.renewals >= 3 * (opened - 1), "every connection that is in use does it"
        assert there.logins == opened

    simulate(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_requests_around_a_login_are_sent_once_each_and_in_their_order(seed: int) -> None:
    """At any moment: while the token is waited for, between the messages of the login, and after the session's end."""

    async def scenario(world: World) -> None:
        there = await front(world, session_ms=2000)
        chance = random.Random(seed)

        async def slow_token() -> str:
            await asyncio.sleep(chance.choice((0, 0.01, 0.3)))
            return TOKEN

        how = settings("OAUTHBEARER", sasl_oauth_token_provider=slow_token)
        if seed % 2:
            how = settings("SCRAM-SHA-256")
        runtime = world.runtime("c")
        login = Login(Security(**how), runtime)
        connection = await open_connection(runtime.network, "127.0.0.1", SECURED, "c", 30_000, login=login)
        assert there.requests == [1], "ApiVersions"
        waiting, held = list[asyncio.Future[Any]](), 0
        while len(waiting) < 1500:
            for _ in range(chance.randrange(4)):
                name = f"topic-{len(waiting)}"
                asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
                waiting.append(connection.request(asked, 12))
            held = max(held, connection.in_flight)
            await asyncio.sleep(chance.choice((0, 0.0002, 0.005, 0.005)) if chance.random() < 0.99 else 2.5)
        answers = await asyncio.gather(*waiting)
        assert [answer.topics[0].name for answer in answers] == [f"topic-{n}" for n in range(len(waiting))]
        assert there.requests == sorted(there.requests) and len(there.requests) == len(waiting) + 1
        assert there.renewals >= 3 and held >= 3
        assert (there.refusals, there.logins) == ([], 1)
        connection.close()

    simulate(scenario)


def test_requests_that_wait_for_a_login_end_with_the_connection() -> None:
    async def scenario(world: World) -> None:
        mechanisms = {"PLAIN": lambda: PlainServer({USERNAME: PASSWORD})}
        there = await front(world, mechanisms, session_ms=2000)
        runtime = world.runtime("c")
        login = Login(Security(**settings("PLAIN")), runtime)
        connection = await open_connection(runtime.network, "127.0.0.1", SECURED, "c", 3000, login=login)
        await asyncio.sleep(3)

        class Silent:
            is_content = False

            def answer(self, message: bytes) -> bytes:  # noqa: ARG002
                there.open[0]._transport.pause_reading()
                raise asyncio.CancelledError

        mechanisms["PLAIN"] = Silent  # type: ignore[assignment]
        waiting = [connection.request(MetadataRequest(topics=[]), 12) for _ in range(3)]
        assert connection.in_flight == 3
        begun = world.loop.time()
        for each in waiting:
            with pytest.raises(ConnectionLostError, match="did not answer in time"):
                await each
        assert world.loop.time() - begun < 4 and connection.in_flight == 0 and not connection.is_open

    simulate(scenario)


def test_requests_that_wait_for_a_token_that_does_not_come_end_in_their_time() -> None:
    async def scenario(world: World) -> None:
        await front(world, session_ms=2000)
        tokens = [TOKEN]

        async def a_token() -> str:
            if not tokens:
                await asyncio.sleep(1000)
            return tokens.pop()

        runtime = world.runtime("c")
        login = Login(Security(**settings("OAUTHBEARER", sasl_oauth_token_provider=a_token)), runtime)
        connection = await open_connection(runtime.network, "127.0.0.1", SECURED, "c", 3000, login=login)
        await asyncio.sleep(3)
        async with asyncio.timeout(4):
            with pytest.raises(ConnectionLostError, match="did not answer in time"):
                await connection.request(MetadataRequest(topics=[]), 12)

    simulate(scenario)


def test_no_token_is_waited_for_any_more_where_the_connection_has_ended() -> None:
    async def scenario(world: World) -> None:
        await front(world, session_ms=2000)
        tokens, gave_up = [TOKEN], list[bool]()

        async def a_token() -> str:
            if not tokens:
                try:
                    await asyncio.sleep(1000)
                finally:
                    gave_up.append(True)
            return tokens.pop()

        runtime = world.runtime("c")
        login = Login(Security(**settings("OAUTHBEARER", sasl_oauth_token_provider=a_token)), runtime)
        connection = await open_connection(runtime.network, "127.0.0.1", SECURED, "c", 3000, login=login)
        await asyncio.sleep(3)
        waiting = connection.request(MetadataRequest(topics=[]), 12)
        await asyncio.sleep(1)
        assert gave_up == []
        connection.close()
        with pytest.raises(ConnectionLostError):
            await waiting
        await asyncio.sleep(0)
        assert gave_up == [True]

    simulate(scenario)


def test_an_idle_connection_logs_in_again_when_it_is_used_again() -> None:
    async def scenario(world: World) -> None:
        there = await front(world, session_ms=10_000)
        async with Admin(SERVERS, runtime=world.runtime("a"), **settings("SCRAM-SHA-256")) as admin:
            for _ in range(5):
                assert "t" in await admin.topics()
                await asyncio.sleep(15)
        assert (there.logins, there.renewals, there.refusals) == (1, 4, [])

    simulate(scenario)


def test_a_session_without_an_end_is_not_renewed() -> None:
    async def scenario(world: World) -> None:
        there = await front(world)
        async with Admin(SERVERS, runtime=world.runtime("a"), **settings("PLAIN")) as admin:
            for _ in range(3):
                await admin.topics()
                await asyncio.sleep(100)
        assert (there.logins, there.renewals) == (1, 0)

    simulate(scenario)


@pytest.mark.parametrize("outage", [0.0, 3.0, 20.0])
def test_requests_go_on_while_a_new_token_is_waited_for(outage: float) -> None:
    """The provider is slow, and fails for some seconds: shorter than the rest of the session, or longer."""

    async def scenario(world: World) -> None:
        there = await front(world, session_ms=SESSION_MS)
        begun = world.loop.time()

        async def provide() -> str:
            now = world.loop.time() - begun
            if now > 40:
                await asyncio.sleep(2)
            if 40 < now < 60 * 0.85 + outage:
                raise ConnectionError("no token today")
            return TOKEN

        how = settings("OAUTHBEARER", sasl_oauth_token_provider=provide)
        async with Producer(SERVERS, runtime=world.runtime("p"), **how) as producer:
            waited = 0.0
            for number in range(1500):
                asked = world.loop.time()
                assert (await (await producer.send("t", b"%d" % number, partition=0))).offset == number
                waited = max(waited, world.loop.time() - asked)
                await asyncio.sleep(0.1)
        assert there.refusals == [], "no request comes after the session's end"
        if outage < 6:
            assert waited < 0.1, "nobody waits for the token"
        else:
            assert waited < outage, "only for as long as there is neither a session nor a token"

    simulate(scenario)


def test_that_there_is_no_token_for_now_is_not_said_for_each_try(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await front(world, session_ms=300_000)
        begun, tries = world.loop.time(), 0

        async def provide() -> str:
            nonlocal tries
            tries += 1
            if world.loop.time() > begun + 1:
                raise ConnectionError("no token today")
            return TOKEN

        how = settings("OAUTHBEARER", sasl_oauth_token_provider=provide)
        async with Producer(SERVERS, runtime=world.runtime("p"), **how) as producer:
            for _ in range(58):
                for _ in range(5):
                    await (await producer.send("t", b"", partition=0))
                    await asyncio.sleep(0.1)
                await asyncio.sleep(4.5)
        assert 4 < tries < 15, "nor is it tried for each request"

    simulate(scenario)
    assert len([message for message in caplog.messages if "cannot log in again yet" in message]) == 1


def test_a_token_fetch_that_is_cancelled_under_its_provider_is_made_again() -> None:
    """As one that the providers' calls share is, when the first of them is: at the first login, and at the next."""

    async def scenario(world: World) -> None:
        there = await front(world, session_ms=10_000)
        calls = list[float]()

        async def provide() -> str:
            calls.append(world.loop.time())
            if len(calls) in (1, 3):
                raise asyncio.CancelledError
            return TOKEN

        how = settings("OAUTHBEARER", sasl_oauth_token_provider=provide)
        async with Admin(SERVERS, runtime=world.runtime("a"), **how) as admin:
            for _ in range(30):
                asked = world.loop.time()
                assert "t" in await admin.topics()
                assert world.loop.time() - asked < 1
                await asyncio.sleep(0.5)
        assert len(calls) == 4 and (there.logins, there.renewals, there.refusals) == (1, 1, [])

    simulate(scenario)


def test_a_token_is_fetched_for_each_login() -> None:
    async def scenario(world: World) -> None:
        valid = ["one"]

        async def provide() -> str:
            return valid[0]

        there = await front(world, {"OAUTHBEARER": lambda: TokenServer(lambda sent: sent in valid)}, session_ms=10_000)
        how = settings("OAUTHBEARER", sasl_oauth_token_provider=provide)
        async with Admin(SERVERS, runtime=world.runtime("a"), **how) as admin:
            for name in ("one", "two", "three"):
                valid[0] = name
                await admin.topics()
                await asyncio.sleep(12)
        assert (there.logins, there.renewals, there.refusals) == (1, 2, [])

    simulate(scenario)


@pytest.mark.parametrize("mends", [False, True])
def test_no_connection_is_kept_on_which_there_was_no_token_to_log_in_with(mends: bool) -> None:
    async def scenario(world: World) -> None:
        there = await front(world)
        fails = 3

        def provider() -> str:
            nonlocal fails
            fails -= 1
            if fails > 0 or not mends:
                raise ConnectionError if mends else ValueError
            return TOKEN

        async def a_token() -> str:
            return provider()

        how = settings("OAUTHBEARER", sasl_oauth_token_provider=a_token)
        async with Admin(SERVERS, runtime=world.runtime("a"), **how) as admin:
            with nullcontext() if mends else pytest.raises(AuthenticationError):
                await admin.topics()
            await asyncio.sleep(1)
            assert len(there.open) == mends

    simulate(scenario)
