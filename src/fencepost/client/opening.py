"""Opening connections to brokers: of the addresses of a host the first one at which a broker answers is taken."""

from __future__ import annotations

import asyncio
import ssl

from fencepost.client import tls
from fencepost.client.authentication import Login
from fencepost.client.connection import Connection
from fencepost.client.errors import ClientError, ConnectionLostError
from fencepost.runtime import Network


class _NoBrokerError(ConnectionError):
    """What answers at an address is no broker, or none that can be used; `why`: the error to raise."""

    def __init__(self, why: ClientError) -> None:
        super().__init__(str(why))
        self.why = why


async def open_connection(
    network: Network,
    host: str,
    port: int,
    client_id: str,
    request_timeout_ms: int,
    *,
    context: ssl.SSLContext | None = None,
    login: Login | None = None,
) -> Connection:
    """A new connection, with TLS if there is a context, that has asked which APIs are served, and logged in by `login`.

    Another address of the host is tried where one is silent, or no broker; nobody else after a login is refused.
    Raises ConnectionLostError, AuthenticationError, UnsupportedByBrokerError.
    """
    where = f"{host}:{port}"

    async def begin(connection: Connection) -> None:
        connection.address = where
        try:
            await connection.ask_what_is_served()
        except ClientError as error:
            raise _NoBrokerError(error) from error

    try:
        async with asyncio.timeout(request_timeout_ms / 1000):
            _, connection = await network.connect(
                lambda: Connection(client_id, request_timeout_ms, login), host, port, context, begin
            )
            try:
                await connection.log_in()
            except BaseException:
                connection.close()
                raise
    except TimeoutError:
        if login is not None and (why := login.held_up()):
            raise ConnectionLostError(f"{where} is not logged in to within {request_timeout_ms} ms: {why}") from None
        raise ConnectionLostError(f"{where} did not answer within {request_timeout_ms} ms") from None
    except _NoBrokerError as error:
        raise error.why from None
    except ssl.SSLError as error:
        raise tls.refusal(where, error) from None
    except OSError as error:
        if context is not None and isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            raise tls.cut_off(where) from None
        raise ConnectionLostError(f"{where} cannot be reached: {error.strerror or error}") from None
    return connection
