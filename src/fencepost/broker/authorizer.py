"""Who may do what, with Apache Kafka's operations and resources.  Without an authorizer everything is allowed."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Operation(Enum):
    """An operation on a resource that a caller may have the right to; the values are Apache Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class Resource(Enum):
    """The kinds of resources that a caller needs rights to; the values are those of Apache Kafka's ResourceType."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


CLUSTER_NAME = "kafka-cluster"

_TOPIC = (3, 4, 5, 6, 7, 8, 10, 11)
_GROUP = (3, 6, 8, 10, 11)
_CLUSTER = (5, 7, 8, 9, 10, 11, 12)
#: What answers tell of when they are asked which operations are allowed.
TOLD_OPERATIONS = {
    Resource.TOPIC: tuple(map(Operation, _TOPIC)),
    Resource.GROUP: tuple(map(Operation, _GROUP)),
    Resource.CLUSTER: tuple(map(Operation, _CLUSTER)),
}


class Authorizer(Protocol):
    """Decides who may do what; it is asked for every resource of every request, so it must be quick."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool: ...


class AllowEverything:
    """Lets everybody do everything, as Apache Kafka does where no authorizer is configured."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return True
