"""TLS over real sockets, in front of a broker: who is let in, who is trusted, and what is said where it fails."""

from __future__ import annotations

import asyncio
import pickle
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Self

import pytest
from tests.client.sasl.servers import PASSWORD, USERNAME
from tests.client.secured import CERTIFICATES, TOKEN, Front, listening, server_tls

from fencepost.broker import Broker, running_broker
from fencepost.client import Admin, AuthenticationError, Consumer, Producer, SecurityOptions, blocking
from fencepost.client.errors import TimedOutError
from fencepost.client.security import Security

CA = CERTIFICATES / "ca.pem"
TLS: SecurityOptions = {"security_protocol": "SSL", "ssl_cafile": CA}
SASL: SecurityOptions = {
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": USERNAME,
    "sasl_plain_password": PASSWORD,
}
BOTH: SecurityOptions = {"security_protocol": "SASL_SSL", "ssl_cafile": CA, **SASL}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings | {"group.initial.rebalance.delay.ms": 0}, flush="os") as broker:
        yield broker


def with_front(
    broker: Broker, tls: ssl.SSLContext | None, scenario: Callable[[Front], Awaitable[None]], **more: Any
) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), listening(broker, tls, **more) as front:
            await scenario(front)

    asyncio.run(main())


def servers(front: Front, host: str = "127.0.0.1") -> str:
    return f"{host}:{front.port}"


PEM = {
    name: (CERTIFICATES / f"{name}.pem").read_text() for name in ("ca", "client", "client-certificate", "client-key")
}
OWN: dict[str, SecurityOptions] = {
    "one file": {"ssl_certfile": CERTIFICATES / "client.pem"},
    "two files, the key encrypted": {
        "ssl_certfile": CERTIFICATES / "client-certificate.pem",
        "ssl_keyfile": CERTIFICATES / "client-key.pem",
        "ssl_password": "opens-it",
    },
    "text": {"ssl_certdata": PEM["client"]},
    "text, the key encrypted": {
        "ssl_certdata": PEM["client-key"] + PEM["client-certificate"],
        "ssl_password": "opens-it",
    },
}


@pytest.mark.parametrize("own", OWN)
def test_both_sides_show_certificates_and_records_go_through(own: str, broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        how: SecurityOptions = {"security_protocol": "SSL", "ssl_cadata": PEM["ca"], **OWN[own]}
        topic = f"mutual-{own.replace(' ', '-').replace(',', '')}"
        value = b"v" * 900_000
        async with Admin(servers(front), **how) as admin:
            await admin.create_topic(topic, partitions=1)
        async with Producer(servers(front), transactional_id=topic, **how) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                for _ in range(3):
                    await producer.send(topic, value)
        async with Consumer(topic, bootstrap_servers=servers(front), group_id=topic, **how) as consumer:
            for _ in range(3):
                assert (await anext(consumer)).value == value
        assert front.refusals == []

    with_front(broker, server_tls(wants="ca"), scenario)


def test_the_blocking_clients_take_the_same_settings(broker: Broker) -> None:
    def write_and_read(address: str) -> None:
        with blocking.Admin(address, **BOTH) as admin:
            admin.create_topic("blocking", partitions=1)
        with blocking.Producer(address, **BOTH) as producer:
            producer.send("blocking", b"1").result()
        with blocking.Consumer("blocking", bootstrap_servers=address, **BOTH) as consumer:
            assert next(consumer).value == b"1"

    async def scenario(front: Front) -> None:
        await asyncio.to_thread(write_and_read, servers(front))
        assert front.logins >= 3

    with_front(broker, server_tls(), scenario, with_sasl=True)


def test_a_context_of_ones_own_is_taken_as_it_is(broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        context = ssl.create_default_context(cafile=CA)
        async with Admin(servers(front), security_protocol="SSL", ssl_context=context) as admin:
            await admin.topics()

    with_front(broker, server_tls(), scenario)


def test_a_token_may_come_from_a_function_that_is_not_asynchronous(broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        how: SecurityOptions = {"security_protocol": "SASL_SSL", "ssl_cafile": CA, "sasl_mechanism": "OAUTHBEARER"}
        how["sasl_oauth_token_provider"] = lambda: TOKEN
        async with Admin(servers(front), **how) as admin:
            await admin.topics()
        assert front.logins == 1

    with_front(broker, server_tls(), scenario, with_sasl=True)


def test_a_session_is_renewed_under_load_over_tls(broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        async with Admin(servers(front), **BOTH) as admin:
            await admin.create_topic("renewed", partitions=1)
        begun, sent = asyncio.get_running_loop().time(), list[Any]()
        async with Producer(servers(front), **BOTH) as producer:
            while front.renewals < 2 and asyncio.get_running_loop().time() - begun < 20:
                sent.append(await producer.send("renewed", b"%d" % len(sent)))
                await asyncio.sleep(0.002)
            assert [(await one).offset for one in sent] == list(range(len(sent)))
        assert front.renewals >= 2 and front.refusals == []

    with_front(broker, server_tls(), scenario, with_sasl=True, session_ms=1300)


class Blocking:
    """A broker's TLS by blocking sockets, in a thread: it tells by an alert why it ends a handshake, as Java's does.

    Given bytes it answers them to whatever it is sent.
    """

    def __init__(self, context: ssl.SSLContext | bytes) -> None:
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._socket.accept()
                with suppress(OSError):
                    self._talk(accepted)

    def _talk(self, accepted: socket.socket) -> None:
        with accepted:
            accepted.settimeout(5)
            if isinstance(self._context, bytes):
                accepted.recv(100_000)
                accepted.sendall(self._context)
            else:
                self._shake_hands(self._context, accepted)
            accepted.shutdown(socket.SHUT_WR)
            while accepted.recv(100_000):
                pass  # closed with something unread, the connection would lose what was said last

    @staticmethod
    def _shake_hands(context: ssl.SSLContext, accepted: socket.socket) -> None:
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = context.wrap_bio(came, goes, server_side=True)
        while True:
            try:
                secured.do_handshake()
                secured.read(1)
            except ssl.SSLWantReadError:
                accepted.sendall(goes.read())
                data = accepted.recv(100_000)
                if not data:
                    return
                came.write(data)
            except ssl.SSLError:
                accepted.sendall(goes.read())  # the alert
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


#: A fatal alert of TLS 1.2: internal_error.
ALERT = b"\x15\x03\x03\x00\x02\x02\x50"
STRANGER: SecurityOptions = {**TLS, "ssl_certfile": CERTIFICATES / "stranger.pem"}

#: what is wrong -> the server's context, the client's settings, and what it is told
REFUSED: dict[str, tuple[Callable[[], ssl.SSLContext | bytes], SecurityOptions, str]] = {
    "signed by somebody else": (
        server_tls,
        {"security_protocol": "SSL", "ssl_cafile": CERTIFICATES / "other-ca.pem"},
        "is not trusted .*ssl_cafile must have the certificate of who signed it",
    ),
    "not in the system's store": (server_tls, {"security_protocol": "SSL"}, "is not trusted .*ssl_cafile"),
    "for another name": (
        lambda: server_tls("elsewhere"),
        TLS,
        "is for another name: .*advertised.listeners.*ssl_check_hostname",
    ),
    "no longer valid": (
        lambda: server_tls("expired"),
        TLS,
        r"is not valid at this time \(certificate has expired\): have the broker given a new one",
    ),
    "TLS on a plain port": (
        lambda: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        TLS,
        "does not speak TLS: set security_protocol to PLAINTEXT",
    ),
    "plain on a TLS port": (lambda: ALERT, {}, "speaks TLS: set security_protocol to SSL or SASL_SSL"),
    "SASL without TLS on a TLS port": (
        lambda: ALERT,
        {"security_protocol": "SASL_PLAINTEXT", **SASL},
        "speaks TLS: set security_protocol to SSL or SASL_SSL",
    ),
    "none shown": (lambda: server_tls(wants="ca"), TLS, "wants a certificate of this client: set ssl_certfile"),
    "a stranger's shown": (
        lambda: server_tls(wants="ca"),
        STRANGER,
        "does not know who signed the certificate in ssl_certfile",
    ),
}


@pytest.mark.parametrize("others", [[], ["127.0.0.3"]], ids=["an address", "a name of two"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_accepted_is_told_at_once_and_named(
    what: str, others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, how, sentence = REFUSED[what]

    async def getaddrinfo(_: str, port: int, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (*others, "127.0.0.1")]

    async def ask(address: str) -> None:
        if others:
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
            address = address.replace("127.0.0.1", "localhost")
        async with Admin(address, max_block_ms=5000, **how) as admin:
            with pytest.raises(AuthenticationError, match=sentence) as refused:
                await admin.topics()
        assert "\n" not in str(refused.value) and address in str(refused.value)

    with Blocking(context()) as server:
        asyncio.run(ask(server.address))


def test_a_certificate_that_is_refused_without_a_word_is_named_when_time_is_up(broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        async with Admin(servers(front), max_block_ms=1000, **TLS) as admin:
            with pytest.raises(TimedOutError, match="ssl_certfile"):
                await admin.topics()

    with_front(broker, server_tls(wants="ca"), scenario)


def test_a_name_that_is_not_the_certificates_may_be_accepted(broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        how: SecurityOptions = {**TLS, "ssl_check_hostname": False}
        async with Admin(servers(front), **how) as admin:
            await admin.topics()

    with_front(broker, server_tls("elsewhere"), scenario)


def test_by_name_it_is_the_name_that_is_looked_for(broker: Broker) -> None:
    async def scenario(front: Front) -> None:
        async with Admin(servers(front, "localhost"), **TLS) as admin:
            await admin.topics()

    with_front(broker, server_tls(), scenario)


class _Silent(asyncio.Protocol):
    """Takes everything and answers nothing."""


class _Closing(asyncio.Protocol):
    """Hangs up at the first piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        self._transport.close()


@pytest.mark.parametrize(
    ("peer", "hint"),
    [
        (_Silent, "did not answer within 700 ms"),
        (_Closing, "closed the connection in the TLS handshake: .*security_protocol"),
    ],
)
def test_what_may_pass_is_tried_again_until_time_is_up(peer: type[asyncio.Protocol], hint: str) -> None:
    tries = list[object]()

    def accept() -> asyncio.Protocol:
        tries.append(None)
        return peer()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Admin(address, max_block_ms=1500, request_timeout_ms=700, **TLS) as admin:
            with pytest.raises(TimedOutError, match=hint):
                await admin.topics()

    asyncio.run(main())
    assert len(tries) > 1


def test_a_broker_that_comes_back_is_used_again(broker: Broker) -> None:
    async def main() -> None:
        async with listening(broker, server_tls(), with_sasl=True) as front, Admin(servers(front), **BOTH) as admin:
            known = await admin.topics()
            for connection in list(front.open):
                connection.hang_up("gone")
            assert await admin.topics() == known
            assert front.logins == 2

    asyncio.run(main())


def test_settings_go_to_other_processes_without_the_context() -> None:
    security = pickle.loads(pickle.dumps(Security(**BOTH)))
    assert security.tls().verify_mode is ssl.CERT_REQUIRED and security.password == PASSWORD
