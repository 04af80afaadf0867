"""A request to a node without any connection: what its handler replies, once that may leave the node."""

from __future__ import annotations

from typing import Any

from fencepost.broker import Broker
from fencepost.broker.authorizer import AllowEverything
from fencepost.broker.network.registry import SERVED, Reply
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.protocol.codec import encode_request


async def ask(broker: Broker, request: Any, version: int) -> Any:
    """The response, when everything that it depends on is durable."""
    context = RequestContext(Peer(AllowEverything(), "/here"), version, "c")
    reply = SERVED[request.__schema__.api].handler(request, context, broker.node)
    if not isinstance(reply, Reply):
        reply = await reply
    await broker.node.storage.durability.wait(reply.lsn)
    return reply.response


def frame(request: Any, version: int) -> bytes:
    """A request as it goes over the wire."""
    return encode_request(request, version, 1, "c")
