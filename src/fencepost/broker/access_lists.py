"""Access lists (Apache Kafka's ACLs): a node keeps none.

Who may do what is decided by the `Authorizer` that the node was given, if any, and that has no lists to be shown or
changed from outside.  So the three requests about them are answered as by Apache Kafka without an authorizer, which
clients know: MirrorMaker leaves access lists out, tools say that security features are disabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.network.request_context import RequestContext

Refusal = tuple[ErrorCode, str | None]
"""The error for a request about access lists, and a sentence for a person or None."""


def refusal(context: RequestContext, operation: Operation) -> Refusal:
    """The error of a request about access lists, with a message or None for CLUSTER_AUTHORIZATION_FAILED."""
    if not context.may(operation, Resource.CLUSTER, CLUSTER_NAME):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    return ErrorCode.SECURITY_DISABLED, "this node keeps no access lists"
