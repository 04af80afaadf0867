"""One connection does not harm the node or the others: slow readers, failing handlers."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from group_talk import join_request
from wire import Client, batch, clients, fetch_request, new_topic, on_the_loop, produce, serving, values

from fencepost.broker import Broker
from fencepost.broker.authorizer import Operation, Resource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsRequest, MetadataRequest

client = clients()
HELLO = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
MEGABYTE = 1 << 20


def unsent(broker: Broker) -> int:
    """Bytes of responses that the node holds because clients do not take them."""
    return on_the_loop(
        broker,
        lambda: sum(
            connection._transport.get_write_buffer_size() + sum(map(len, connection._output))
            for connection in broker.connections
            if connection._transport is not None
        ),
    )


@pytest.mark.parametrize("pieces", [1, 100])
def test_a_client_that_does_not_read_is_not_answered_without_end(client: Client, pieces: int) -> None:
    """However it sends its requests: one answer more than the transport takes, and no further request is handled."""
    topic, slow = new_topic(client), Client(client.broker)
    assert produce(client, topic, batch("x" * (MEGABYTE - 200))).error_code == ErrorCode.NONE
    requests = [slow.frame(fetch_request(slow, topic)) for _ in range(100)]
    for number in range(pieces):
        share = len(requests) // pieces
        slow.send_bytes(b"".join(requests[number * share : (number + 1) * share]))
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    assert unsent(client.broker) < 4 * MEGABYTE
    for _ in range(100):
        (fetched,) = slow.receive().responses[0].partitions
        assert len(values(fetched)) == 1
    assert slow.ask(HELLO).error_code == ErrorCode.NONE
    slow.close()


class Breaks:
    """An authorizer with a bug."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        raise ZeroDivisionError(name)


@pytest.mark.parametrize(
    ("request_", "api"),
    [(MetadataRequest(topics=None), 3), (join_request(), 11)],
    ids=["a function", "a coroutine function"],
)
def test_a_handler_that_fails_ends_its_own_connection_only(
    request_: object, api: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Breaks()) as broker, caplog.at_level(logging.ERROR):
        client, other = Client(broker), Client(broker)
        on_the_loop(broker, lambda: broker.topics.create("t", 1))
        client.send(HELLO)
        client.send(request_)
        assert client.receive().error_code == ErrorCode.NONE, "what was answered before is sent"
        assert client.is_closed()
        assert other.ask(HELLO).error_code == ErrorCode.NONE
        other.close()
    (line,) = [record for record in caplog.records if record.name == "fencepost.broker.connection"]
    assert f"api {api} failed" in line.getMessage()
    assert line.exc_info is not None and line.exc_info[0] is ZeroDivisionError
