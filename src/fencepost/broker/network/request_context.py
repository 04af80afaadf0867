"""Who sent a request: the other end of a connection, and what the request says of itself (Kafka's RequestContext)."""

from __future__ import annotations

from typing import Final

from fencepost.broker.authorizer import TOLD_OPERATIONS, Authorizer, Operation, Resource

NOT_ASKED: Final = -(2**31)
"""The value in place of authorized operations where nobody asked for them."""


class Peer:
    """The other end of a connection."""

    __slots__ = ("authorizer", "host", "principal", "software")

    def __init__(self, authorizer: Authorizer, host: str) -> None:
        self.authorizer = authorizer
        self.host = host
        self.principal = "User:ANONYMOUS"
        self.software = ""
        """The client's software as ApiVersions v3 and later names it; see `older_clients`."""


class RequestContext:
    """The sender of a request, as its handler sees it: never changed, so it may be kept while the request waits."""

    __slots__ = ("client_id", "peer", "version")

    def __init__(self, peer: Peer, version: int, client_id: str | None) -> None:
        self.peer: Final = peer
        self.version: Final = version
        """API version of the request."""
        self.client_id: Final = client_id

    @property
    def host(self) -> str:
        return self.peer.host

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        peer = self.peer
        return peer.authorizer.allows(peer.principal, peer.host, operation, resource, name)

    def authorized_operations(self, resource: Resource, name: str) -> int:
        """The operations that the caller may do, a bit for each by its number (KIP-430)."""
        return sum(1 << op.value for op in TOLD_OPERATIONS[resource] if self.may(op, resource, name))
