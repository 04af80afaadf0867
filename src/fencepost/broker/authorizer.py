"""Who may do what, with Apache Kafka's operations and resources.  Without an authorizer everything is allowed."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Operation(Enum):
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"
    TWO_PHASE_COMMIT = "TWO_PHASE_COMMIT"


class Resource(Enum):
    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


CLUSTER_NAME = "kafka-cluster"


class Authorizer(Protocol):
    """Decides; it is asked for every resource of every request, so it must be quick."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool: ...


class AllowEverything:
    """What Apache Kafka does when no authorizer is configured."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return True
