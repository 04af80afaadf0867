"""Who sent a request: one per connection, its version and client id set anew for each request."""

from __future__ import annotations

from typing import Final

from fencepost.broker.authorizer import TOLD_OPERATIONS, Authorizer, Operation, Resource

NOT_ASKED: Final = -(2**31)
"""In place of the authorized operations where nobody asked for them."""


class Caller:
    """The other end of a connection, as handlers see it."""

    __slots__ = ("authorizer", "client_id", "host", "principal", "software", "version")

    def __init__(self, authorizer: Authorizer, host: str) -> None:
        self.authorizer = authorizer
        self.host = host
        self.principal = "User:ANONYMOUS"
        self.version = 0
        """API version of the request at hand.  A handler that waits must read it before."""
        self.client_id: str | None = None
        self.software = ""
        """What ApiVersions v3 and later said it is; see `older_clients`."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.authorizer.allows(self.principal, self.host, operation, resource, name)

    def authorized_operations(self, resource: Resource, name: str) -> int:
        """The operations that the caller may do, a bit for each by its number (KIP-430)."""
        return sum(1 << op.value for op in TOLD_OPERATIONS[resource] if self.may(op, resource, name))
