"""Our clients on an Apache Kafka with TLS and SASL: every listener and mechanism, and every way not to be let in."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.apache_kafka import ApacheKafka
from tests.client.sasl.servers import PASSWORD
from tests.client.secured import CERTIFICATES
from tests.compare.nodes.secured_kafka import MECHANISMS, SESSION_MS, secured_kafka, settings, token

from fencepost.client import Admin, AuthenticationError, Consumer, Producer, SecurityOptions
from fencepost.client.authentication import Login, Session
from fencepost.client.connection import Connection
from fencepost.client.errors import TimedOutError

pytestmark = pytest.mark.compare

WAYS = [
    ("SSL", ""),
    *((protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with secured_kafka() as found:
        yield found


async def write_and_read(address: str, how: SecurityOptions) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    async with Admin(address, **how) as admin:
        await admin.create_topic(topic, partitions=1)
    async with Producer(address, transactional_id=topic, **how) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"v" * 100_000)
    async with Consumer(topic, bootstrap_servers=address, group_id=topic, **how) as consumer:
        assert (await anext(consumer)).value == b"v" * 100_000
        await consumer.commit()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_every_client_is_let_in_by_every_listener_and_mechanism(
    protocol: str, mechanism: str, kafka: ApacheKafka
) -> None:
    asyncio.run(write_and_read(kafka.addresses[protocol], settings(protocol, mechanism)))


TLS: SecurityOptions = {"security_protocol": "SSL", "ssl_cafile": CERTIFICATES / "ca.pem"}


def expired() -> str:
    return token(-60)


#: what is wrong -> the listener, the client's settings, and what it is told
REFUSED: dict[str, tuple[str, SecurityOptions, str]] = {
    "another authority": (
        "SASL_SSL",
        {**settings("SASL_SSL"), "ssl_cafile": CERTIFICATES / "other-ca.pem"},
        "is not trusted .*ssl_cafile",
    ),
    "no certificate": ("SSL", TLS, "ssl_certfile"),
    "a stranger's certificate": ("SSL", {**TLS, "ssl_certfile": CERTIFICATES / "stranger.pem"}, "ssl_certfile"),
    **{
        f"wrong password, {mechanism}": (
            "SASL_SSL",
            {**settings("SASL_SSL", mechanism), "sasl_plain_password": "wrong"},
            f"refused user 'alice' by {mechanism} .*sasl_plain_password",
        )
        for mechanism in MECHANISMS
        if mechanism != "OAUTHBEARER"
    },
    "expired token": (
        "SASL_SSL",
        {**settings("SASL_SSL", "OAUTHBEARER"), "sasl_oauth_token_provider": expired},
        "refused the token .*invalid_token.*may have expired",
    ),
    "mechanism that is not enabled": (
        "ONLYPLAIN",
        settings("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        "has not enabled sasl_mechanism SCRAM-SHA-512: it offers PLAIN",
    ),
    "SASL at a port without": (
        "PLAINTEXT",
        settings("SASL_PLAINTEXT"),
        "has no SASL at this port: set security_protocol to PLAINTEXT",
    ),
    "no TLS at a port with TLS": ("SASL_SSL", settings("SASL_PLAINTEXT"), "speaks TLS: set security_protocol"),
    "nothing at a port with TLS": ("SSL", {}, "speaks TLS: set security_protocol"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_who_is_not_let_in_is_told_at_once_and_what_to_do(what: str, kafka: ApacheKafka) -> None:
    listener, how, sentence = REFUSED[what]

    async def ask() -> None:
        address = kafka.addresses.get(listener, kafka.bootstrap)
        async with asyncio.timeout(10), Admin(address, max_block_ms=8000, **how) as admin:
            with pytest.raises(AuthenticationError, match=sentence) as refused:
                await admin.topics()
        print(f"{what}: {refused.value}")
        assert PASSWORD not in str(refused.value)

    asyncio.run(ask())


#: What cannot be told from a broker that is going away.
TRIED_AGAIN: dict[str, tuple[str, SecurityOptions, str]] = {
    "TLS at a port without": ("PLAINTEXT", TLS, "in the TLS handshake: .*security_protocol"),
    "no SASL at a port with SASL": ("SASL_PLAINTEXT", {}, "its port is one for SASL"),
}


@pytest.mark.parametrize("what", TRIED_AGAIN)
def test_what_could_pass_is_tried_until_time_is_up(what: str, kafka: ApacheKafka) -> None:
    listener, how, sentence = TRIED_AGAIN[what]

    async def ask() -> None:
        async with Admin(kafka.addresses.get(listener, kafka.bootstrap), max_block_ms=2000, **how) as admin:
            with pytest.raises(TimedOutError, match=sentence):
                await admin.topics()

    asyncio.run(ask())


def test_sessions_are_renewed_under_load_and_nothing_is_lost_doubled_or_out_of_order(
    kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For more than two sessions, by three mechanisms at once; and the broker never ends a connection."""
    logins: Counter[str] = Counter()
    lost: list[str] = []
    carry_out, connection_lost = Login.carry_out, Connection.connection_lost

    async def counted(self: Login, exchange: Any, address: str, ask: Any) -> Session:
        logins[type(exchange).__name__] += 1
        return await carry_out(self, exchange, address, ask)

    def noted(self: Connection, exc: Exception | None) -> None:
        if self._transport is not None:
            lost.append(str(exc))
        connection_lost(self, exc)

    monkeypatch.setattr(Login, "carry_out", counted)
    monkeypatch.setattr(Connection, "connection_lost", noted)
    ways = [("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "OAUTHBEARER")]

    async def one(protocol: str, mechanism: str) -> None:
        how, address = settings(protocol, mechanism), kafka.addresses[protocol]
        topic, loop = f"renewed-{mechanism.lower()}", asyncio.get_running_loop()
        async with Admin(address, **how) as admin:
            await admin.create_topic(topic, partitions=1)
        end = loop.time() + SESSION_MS / 1000 * 2 + 10
        sent: list[bytes] = []
        found: list[bytes] = []

        async def write(producer: Producer) -> None:
            while loop.time() < end:
                for _ in range(5):
                    await producer.send(topic, b"%d" % len(sent))
                    sent.append(b"%d" % len(sent))
                await asyncio.sleep(0.02)
            await producer.flush()

        async def read(consumer: Consumer) -> None:
            while loop.time() < end or len(found) < len(sent):
                found.extend(record.value or b"" for record in await consumer.poll(500))

        async with (
            Producer(address, **how) as producer,
            Consumer(topic, bootstrap_servers=address, group_id=topic, **how) as consumer,
        ):
            await asyncio.gather(write(producer), read(consumer))
            found.extend(record.value or b"" for record in await consumer.poll(1000))
        assert found == sent and len(sent) > 5000

    async def all_of_them() -> None:
        await asyncio.gather(*(one(*way) for way in ways))

    asyncio.run(all_of_them())
    assert lost == []
    # An admin's, a producer's and two or three of a group's consumer; all but the admin's twice again.
    assert all(count >= 1 + 3 * 3 for count in logins.values()) and len(logins) == 3, logins
