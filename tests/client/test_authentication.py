"""Clients log in by every mechanism, again before a session ends, and say what to do where they are not let in.

On virtual time, in front of the real broker.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.client.sasl.servers import PASSWORD, USERNAME, PlainServer, Refused, Server
from tests.client.secured import MECHANISMS, TOKEN, Front
from tests.client.test_deadlines import be_silent
from tests.client.test_producer import shown, simulate

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.client import Admin, AuthenticationError, Consumer, Producer, TopicPartition
from fencepost.client.authentication import Login
from fencepost.client.errors import ClientError, DeliveryError, TimedOutError
from fencepost.client.security import Security
from fencepost.simulation.world import PORT, World

SECURED = 9093
SERVERS = f"127.0.0.1:{SECURED}"
AT = TopicPartition("t", 0)
WRONG = "not her secret"
PASSWORDS = {"sasl_plain_username": USERNAME, "sasl_plain_password": PASSWORD}


async def token() -> str:
    return TOKEN


def settings(mechanism: str, **changed: Any) -> dict[str, Any]:
    own: dict[str, Any] = {"sasl_oauth_token_provider": token} if mechanism == "OAUTHBEARER" else PASSWORDS
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism} | own | changed


async def front(world: World, mechanisms: Mapping[str, Callable[[], Server]] | None = MECHANISMS, **more: Any) -> Front:
    async def connect(factory: Callable[[], asyncio.Protocol]) -> Any:
        return await world.network.connect(factory, "127.0.0.1", PORT)

    found = Front(connect, SECURED, mechanisms, **more)
    await world.network.listen(found, "127.0.0.1", SECURED, ConnectionQuotas(most=100, most_per_ip=100))
    return found


EVERY_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)


@EVERY_MECHANISM
@pytest.mark.parametrize("versions", [(0, 0), (0, 1), (0, 2)], ids=str)
def test_every_client_logs_in_by_every_mechanism(mechanism: str, versions: tuple[int, int]) -> None:
    async def scenario(world: World) -> None:
        there = await front(world, versions=versions)
        how = settings(mechanism)
        async with Admin(SERVERS, runtime=world.runtime("a"), **how) as admin:
            await admin.create_topic("made", partitions=1)
        async with Producer(SERVERS, transactional_id="id", runtime=world.runtime("p"), **how) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("made", b"1")
        async with Consumer(
            "made", bootstrap_servers=SERVERS, group_id="g", runtime=world.runtime("c"), **how
        ) as group:
            assert (await anext(group)).value == b"1"
            await group.commit()
        assert there.refusals == [] and there.logins >= 3

    simulate(scenario)


CALLS: dict[str, Callable[[World, dict[str, Any]], Awaitable[Any]]] = {
    "send": lambda world, how: _send(world, how),
    "init_transactions": lambda world, how: Producer(
        SERVERS, transactional_id="id", runtime=world.runtime("p"), **how
    ).init_transactions(),
    "poll": lambda world, how: Consumer("t", bootstrap_servers=SERVERS, runtime=world.runtime("c"), **how).poll(60_000),
    "poll in a group": lambda world, how: Consumer(
        "t", bootstrap_servers=SERVERS, group_id="g", runtime=world.runtime("c"), **how
    ).poll(60_000),
    "topics": lambda world, how: Admin(SERVERS, runtime=world.runtime("a"), **how).topics(),
    "create_topic": lambda world, how: Admin(SERVERS, runtime=world.runtime("a"), **how).create_topic("new"),
    "list_transactions": lambda world, how: Admin(SERVERS, runtime=world.runtime("a"), **how).list_transactions(),
}


async def _send(world: World, how: dict[str, Any]) -> None:
    async with Producer(SERVERS, runtime=world.runtime("p"), **how) as producer:
        await (await producer.send("t", b"", partition=0))


@pytest.mark.parametrize("call", CALLS)
def test_who_is_not_let_in_is_told_at_once_and_does_not_try_for_ever(call: str, caplog: Any) -> None:
    async def scenario(world: World) -> None:
        there = await front(world)
        begun = world.loop.time()
        with pytest.raises(AuthenticationError, match="refused user 'alice' by PLAIN") as refused:
            await CALLS[call](world, settings("PLAIN", sasl_plain_password=WRONG))
        assert "sasl_plain_password" in str(refused.value)
        assert world.loop.time() - begun < 1
        tries = len(there.refusals)
        assert tries <= 2
        await asyncio.sleep(30)
        assert len(there.refusals) - tries <= 1
        shown = "".join(traceback.format_exception(refused.value)) + caplog.text
        assert WRONG not in shown

    with caplog.at_level(logging.DEBUG):
        simulate(scenario)


def refused_with(how: dict[str, Any], mechanisms: Any = MECHANISMS, **more: Any) -> str:
    """What a client is told that is not let in."""
    told: list[str] = []

    async def scenario(world: World) -> None:
        await front(world, mechanisms, **more)
        with pytest.raises(AuthenticationError) as refused:
            await Admin(SERVERS, runtime=world.runtime("a"), **how).topics()
        told.append(str(refused.value))

    simulate(scenario)
    return told[0]


def test_the_sentence_names_what_to_do() -> None:
    async def expired() -> str:
        return "yesterdays.token"

    async def broken() -> str:
        raise LookupError("client_secret=hidden")

    async def empty() -> str:
        return ""

    only = {"PLAIN": MECHANISMS["PLAIN"]}
    bearer = "OAUTHBEARER"
    table = {
        "has not enabled sasl_mechanism SCRAM-SHA-256: it offers PLAIN": (settings("SCRAM-SHA-256"), only),
        "has no SASL at this port: set security_protocol to PLAINTEXT": (settings("PLAIN"), None),
        "(invalid_token: Authentication failed: the token is not valid): it may have expired": (
            settings(bearer, sasl_oauth_token_provider=expired),
            MECHANISMS,
        ),
        "sasl_oauth_token_provider raised LookupError": (
            settings(bearer, sasl_oauth_token_provider=broken),
            MECHANISMS,
        ),
        "returned a str that is no bearer token": (settings(bearer, sasl_oauth_token_provider=empty), MECHANISMS),
        "refused user 'bob' by SCRAM-SHA-512": (settings("SCRAM-SHA-512", sasl_plain_username="bob"), MECHANISMS),
    }
    for sentence, (how, mechanisms) in table.items():
        told = refused_with(how, mechanisms)
        assert sentence in told and "\n" not in told
        assert PASSWORD not in told and "hidden" not in told and "yesterdays.token" not in told


@pytest.mark.parametrize("request_timeout_ms", [2500, 60_000])
@pytest.mark.parametrize("call", CALLS)
def test_a_token_provider_that_takes_too_long_is_told_and_not_the_brokers(
    call: str, request_timeout_ms: int, caplog: Any
) -> None:
    async def slow() -> str:
        await asyncio.sleep(300)
        return TOKEN

    async def scenario(world: World) -> None:
        await front(world)
        how = settings("OAUTHBEARER", sasl_oauth_token_provider=slow, request_timeout_ms=request_timeout_ms)
        with pytest.raises((TimedOutError, DeliveryError), match="sasl_oauth_token_provider has not returned a token"):
            await CALLS[call](world, {**how, "max_block_ms": 5000})

    simulate(scenario)
    said = [record.message for record in caplog.records if "no broker has been reached" in record.message]
    assert said and all("sasl_oauth_token_provider has not returned a token yet" in each for each in said)


def test_brokers_that_nobody_reaches_are_told_though_a_token_was_waited_for_before() -> None:
    async def quick() -> str:
        await asyncio.sleep(0.01)
        return TOKEN

    async def scenario(world: World) -> None:
        await front(world)
        how = settings("OAUTHBEARER", sasl_oauth_token_provider=quick, max_block_ms=5000)
        async with Admin(SERVERS, runtime=world.runtime("a"), **how) as admin:
            await admin.topics()
            world.kill()
            with pytest.raises(TimedOutError) as told:
                await admin.topics()
        assert "token" not in str(told.value)

    simulate(scenario)


def test_a_token_provider_that_gives_what_is_to_be_awaited_is_told() -> None:
    async def forgets() -> Any:
        return token()

    told = refused_with(settings("OAUTHBEARER", sasl_oauth_token_provider=forgets))
    assert told == "sasl_oauth_token_provider gives a coroutine in place of a token: it has to await that itself"


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_broker_that_repeats_a_secret_is_not_quoted(mechanism: str) -> None:
    class Telltale:
        is_content = False

        def answer(self, message: bytes) -> bytes:
            raise Refused(f"wrong:\n{message!r}" + "!" * 1000)

    told = refused_with(
        settings(mechanism, **({"sasl_plain_password": WRONG} if mechanism == "PLAIN" else {})), {mechanism: Telltale}
    )
    assert "wrong: " in told and "***" in told and len(told) < 600 and "\n" not in told
    assert WRONG not in told and TOKEN not in told


def test_a_server_that_cannot_prove_who_it_is_gets_nothing() -> None:
    class Impostor:
        """Says yes to everybody, at once."""

        is_content = True

        def answer(self, message: bytes) -> bytes:  # noqa: ARG002
            return b""

    told = refused_with(settings("SCRAM-SHA-256"), {"SCRAM-SHA-256": Impostor})
    assert "is not trusted after SCRAM-SHA-256" in told


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("wants SASL", r"its port is one for SASL, and the security protocol must say so \(given up after 1\d\d\d ms"),
        ("is silent", "did not answer within 500 ms"),
    ],
)
def test_what_may_pass_is_tried_until_time_is_up_and_named_then(kind: str, hint: str) -> None:
    async def scenario(world: World) -> None:
        servers, how = SERVERS, dict[str, Any]()
        if kind == "is silent":
            await be_silent(world)
            servers, how = "127.0.0.1:7", settings("PLAIN")
        else:
            await front(world)
        admin = Admin(servers, runtime=world.runtime("a"), max_block_ms=2000, request_timeout_ms=500, **how)
        with pytest.raises(TimedOutError, match=hint):
            await admin.topics()

    simulate(scenario)


class Cutting:
    """Breaks off the connection at the given message of a login, so many times."""

    def __init__(self, at: int, times: int) -> None:
        self.at, self.left = at, times

    def server(self, mechanism: str, there: list[Front]) -> Server:
        real, cutting = MECHANISMS[mechanism](), self

        class Cut:
            is_content = False
            seen = 0

            def answer(self, message: bytes) -> bytes:
                self.seen += 1
                if cutting.left and self.seen == cutting.at:
                    cutting.left -= 1
                    for connection in list(there[0].open):
                        connection.hang_up("cut")
                answer = real.answer(message)
                self.is_content = real.is_content
                return answer

        return Cut()


@pytest.mark.parametrize("at", [1, 2])
def test_a_connection_that_is_cut_off_in_the_middle_of_a_login_is_made_anew(at: int) -> None:
    async def scenario(world: World) -> None:
        cutting, there = Cutting(at, times=3), list[Front]()
        there.append(await front(world, {"SCRAM-SHA-256": lambda: cutting.server("SCRAM-SHA-256", there)}))
        async with Admin(SERVERS, runtime=world.runtime("a"), **settings("SCRAM-SHA-256")) as admin:
            assert "t" in await admin.topics()
        assert there[0].refusals == ["cut"] * 3

    simulate(scenario)


def test_a_password_that_no_longer_holds_is_told_and_one_that_holds_again_goes_on() -> None:
    async def scenario(world: World) -> None:
        passwords = {USERNAME: PASSWORD}
        there = await front(world, {"PLAIN": lambda: PlainServer(passwords)}, session_ms=10_000)
        async with Producer(SERVERS, runtime=world.runtime("p"), **settings("PLAIN")) as producer:
            assert (await (await producer.send("t", b"0", partition=0))).offset == 0
            passwords[USERNAME] = "changed"
            await asyncio.sleep(11)
            begun = world.loop.time()
            sending = await producer.send("t", b"1", partition=0)
            with pytest.raises((AuthenticationError, DeliveryError)) as refused:
                await sending
            assert isinstance(refused.value, AuthenticationError)
            assert world.loop.time() - begun < 5
            passwords[USERNAME] = PASSWORD
            await asyncio.sleep(5)
            assert (await (await producer.send("t", b"2", partition=0))).offset >= 1
        assert there.logins >= 2

    simulate(scenario)


def test_a_record_for_a_node_that_lets_nobody_in_any_more_fails_at_once() -> None:
    """Its topic and leader are known; only the connection is gone."""

    async def scenario(world: World) -> None:
        passwords = {USERNAME: PASSWORD}
        there = await front(world, {"PLAIN": lambda: PlainServer(passwords)})
        async with Producer(SERVERS, runtime=world.runtime("p"), **settings("PLAIN")) as producer:
            await (await producer.send("t", b"0", partition=0))
            passwords[USERNAME] = "changed"
            for connection in list(there.open):
                connection.hang_up("cut")
            await asyncio.sleep(1)
            begun = world.loop.time()
            with pytest.raises(AuthenticationError):
                await (await producer.send("t", b"1", partition=0))
            assert world.loop.time() - begun < 1

    simulate(scenario)


def test_a_refused_login_is_not_repeated_with_every_record() -> None:
    """Accounts are locked after some wrong passwords."""

    async def scenario(world: World) -> None:
        passwords = {USERNAME: PASSWORD}
        there = await front(world, {"PLAIN": lambda: PlainServer(passwords)})
        async with Producer(SERVERS, runtime=world.runtime("p"), **settings("PLAIN")) as producer:
            await (await producer.send("t", b"0", partition=0))
            passwords[USERNAME] = "changed"
            for connection in list(there.open):
                connection.hang_up("cut")
            there.refusals.clear()
            begun = world.loop.time()
            while world.loop.time() - begun < 5:
                with pytest.raises(AuthenticationError, match="refused user 'alice'"):
                    await (await producer.send("t", b"1", partition=0))
                await asyncio.sleep(0.01)
            assert 2 <= len(there.refusals) <= 7
            passwords[USERNAME] = PASSWORD
            await asyncio.sleep(1)
            await (await producer.send("t", b"2", partition=0))

    simulate(scenario)


def test_a_commit_that_meets_a_refusal_is_called_again() -> None:
    async def scenario(world: World) -> None:
        passwords = {USERNAME: PASSWORD}
        there = await front(world, {"PLAIN": lambda: PlainServer(passwords)})
        async with Producer(
            SERVERS, transactional_id="id", runtime=world.runtime("p"), **settings("PLAIN")
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("t", b"0", partition=0))
            passwords[USERNAME] = "changed"
            for connection in list(there.open):
                connection.hang_up("cut")
            with pytest.raises(AuthenticationError, match=r"call commit_transaction\(\) again"):
                await producer.commit_transaction()
            passwords[USERNAME] = PASSWORD
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("t", b"1", partition=0)
        assert await shown(world) == [b"0", b"1"]

    simulate(scenario)


@pytest.mark.parametrize("raised", [OSError, ValueError])
def test_a_token_provider_that_raised_is_not_waited_for(raised: type[Exception]) -> None:
    """What is late after that has another reason, which is to be told."""

    async def scenario(world: World) -> None:
        async def failing() -> str:
            told.append(login.held_up())
            raise raised

        told: list[str] = []
        login = Login(Security(**settings("OAUTHBEARER", sasl_oauth_token_provider=failing)), world.runtime("p"))
        with pytest.raises(ClientError, match="sasl_oauth_token_provider raised"):
            await login.exchange()
        assert [*told, login.held_up()] == ["sasl_oauth_token_provider has not returned a token yet", ""]

    simulate(scenario)
