"""Who sent a request: one per connection, its version and client id set anew for each request."""

from __future__ import annotations

from fencepost.broker.authorizer import Authorizer, Operation, Resource


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
