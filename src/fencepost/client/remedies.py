"""What to do about each error code that a broker may answer: pure functions beside a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from fencepost.protocol.errors import ErrorCode as E


class Remedy(Enum):
    """The kinds of things to do about an error (KIP-1050)."""

    RETRY = "retry"
    """The same call may succeed later."""
    ABORT = "abort"
    """Abort the transaction, then go on with the same producer."""
    REBUILD = "rebuild"
    """Close this client, make a new one, and go on from what is committed."""
    STOP = "stop"
    """The same call will not succeed: the program, a setting, a right or the cluster must change first."""


class Advice(NamedTuple):
    """What to do about an error: its kind, and a sentence for a person."""

    remedy: Remedy
    what_next: str


_AGAIN: Final = "Call again after a pause: the cluster is changing, or busy"
_RIGHT: Final = "Have the right for it given to this user, or use another one"
_BETWEEN: Final = "Brokers say so to each other, not to clients: look into the broker's log"
_UNUSED: Final = "No client of Fencepost asks for what is answered so: look who shares its connection"

#: what helps -> what to do -> the codes that it helps against
_TABLE: Final[Mapping[Remedy, Mapping[str, tuple[E, ...]]]] = {
    Remedy.RETRY: {
        _AGAIN: (
            *(E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT, E.REPLICA_NOT_AVAILABLE),
            *(E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR),
            *(E.NOT_CONTROLLER, E.CONCURRENT_TRANSACTIONS, E.FETCH_SESSION_ID_NOT_FOUND, E.LISTENER_NOT_FOUND),
            *(E.INVALID_FETCH_SESSION_EPOCH, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH, E.OFFSET_NOT_AVAILABLE),
            *(E.PREFERRED_LEADER_NOT_AVAILABLE, E.ELIGIBLE_LEADERS_NOT_AVAILABLE, E.UNSTABLE_OFFSET_COMMIT),
            *(E.FETCH_SESSION_TOPIC_ID_ERROR, E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED, E.BROKER_NOT_AVAILABLE),
            *(E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED),
            *(E.REASSIGNMENT_IN_PROGRESS, E.NEW_LEADER_ELECTED),
        ),
        "Check the name and the number of partitions, and make the topic if it is missing": (
            *(E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID),
        ),
        "Call again; if it stays, look into the log of the broker for its disk": (
            *(E.CORRUPT_MESSAGE, E.KAFKA_STORAGE_ERROR),
        ),
        "Call again when enough replicas are back, or lower min.insync.replicas of the topic": (
            *(E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        ),
        "Call again later, or have the quota raised": (E.THROTTLING_QUOTA_EXCEEDED,),
        "Nothing needs to be done: the leader is the one that is wanted": (E.ELECTION_NOT_NEEDED,),
    },
    Remedy.ABORT: {
        "Abort the transaction, then go on with the same producer": (
            *(E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.INVALID_PRODUCER_EPOCH, E.UNKNOWN_PRODUCER_ID),
            *(E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.OPERATION_NOT_ATTEMPTED),
        ),
    },
    Remedy.REBUILD: {
        "Close this consumer and make a new one: the group has gone on without it": (
            *(E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH),
        ),
        "Close this producer and make a new one": (
            *(E.INVALID_PRODUCER_ID_MAPPING, E.TRANSACTION_COORDINATOR_FENCED, E.DUPLICATE_SEQUENCE_NUMBER),
        ),
        "Close this client and make a new one: its bootstrap_servers lead to the cluster of today": (
            *(E.REBOOTSTRAP_REQUIRED, E.INCONSISTENT_CLUSTER_ID),
        ),
    },
    Remedy.STOP: {
        _RIGHT: (
            *(E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED),
            *(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ),
        "Check the settings of SASL and TLS": (
            *(E.SASL_AUTHENTICATION_FAILED, E.UNSUPPORTED_SASL_MECHANISM, E.ILLEGAL_SASL_STATE, E.SECURITY_DISABLED),
            *(E.UNACCEPTABLE_CREDENTIAL, E.PRINCIPAL_DESERIALIZATION_FAILURE),
        ),
        "Another one with the same transactional_id has taken over: this one is to end": (E.PRODUCER_FENCED,),
        "Give each consumer a group_instance_id of its own": (E.FENCED_INSTANCE_ID, E.UNRELEASED_INSTANCE_ID),
        "Look into the broker's log for what went wrong there": (E.UNKNOWN_SERVER_ERROR,),
        "Seek to an offset that is still there": (
            *(E.OFFSET_OUT_OF_RANGE, E.OFFSET_MOVED_TO_TIERED_STORAGE, E.POSITION_OUT_OF_RANGE),
        ),
        "Make the records smaller, or raise max.message.bytes of the topic": (
            *(E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE),
        ),
        "Make what is kept with the offset smaller, or raise offset.metadata.max.bytes": (
            *(E.OFFSET_METADATA_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        ),
        "Correct what the call was given: the broker says what it does not take": (
            *(E.INVALID_FETCH_SIZE, E.INVALID_TOPIC_EXCEPTION, E.INVALID_REQUIRED_ACKS, E.INVALID_TIMESTAMP),
            *(E.INVALID_PARTITIONS, E.INVALID_REPLICATION_FACTOR, E.INVALID_REPLICA_ASSIGNMENT, E.INVALID_CONFIG),
            *(E.INVALID_REQUEST, E.INVALID_RECORD, E.INVALID_GROUP_ID, E.INVALID_REGULAR_EXPRESSION),
            *(E.POLICY_VIOLATION, E.INVALID_PRINCIPAL_TYPE, E.DUPLICATE_RESOURCE, E.RESOURCE_NOT_FOUND),
        ),
        "Choose session_timeout_ms between group.min.session.timeout.ms and group.max.session.timeout.ms": (
            E.INVALID_SESSION_TIMEOUT,
        ),
        "Choose transaction_timeout_ms of at most transaction.max.timeout.ms": (E.INVALID_TRANSACTION_TIMEOUT,),
        "Give all members of the group a partition_assignment_strategy in common": (E.INCONSISTENT_GROUP_PROTOCOL,),
        "Choose a group_remote_assignor that the broker has (group.consumer.assignors)": (E.UNSUPPORTED_ASSIGNOR,),
        "Use a newer broker, or leave out what it does not know": (
            *(E.UNSUPPORTED_VERSION, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_COMPRESSION_TYPE),
            *(E.MISMATCHED_ENDPOINT_TYPE, E.UNSUPPORTED_ENDPOINT_TYPE),
        ),
        "It is there already: use it, or choose another name": (E.TOPIC_ALREADY_EXISTS,),
        "Stop the members of the group first (one that was killed is a member until its session ends)": (
            E.NON_EMPTY_GROUP,
            E.GROUP_SUBSCRIBED_TO_TOPIC,
        ),
        "Check the name: the cluster has none that is called so": (E.GROUP_ID_NOT_FOUND, E.TRANSACTIONAL_ID_NOT_FOUND),
        "Let fewer consumers into the group, or raise group.max.size (group.consumer.max.size)": (
            E.GROUP_MAX_SIZE_REACHED,
        ),
        "Set delete.topic.enable of the broker to delete topics": (E.TOPIC_DELETION_DISABLED,),
        "Choose a level that every broker supports": (E.FEATURE_UPDATE_FAILED, E.INVALID_UPDATE_VERSION),
        "Check the path: the broker has no such directory": (E.LOG_DIR_NOT_FOUND,),
        _UNUSED: (
            *(E.DELEGATION_TOKEN_AUTH_DISABLED, E.DELEGATION_TOKEN_NOT_FOUND, E.DELEGATION_TOKEN_OWNER_MISMATCH),
            *(E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, E.DELEGATION_TOKEN_EXPIRED, E.NO_REASSIGNMENT_IN_PROGRESS),
            *(E.UNKNOWN_SUBSCRIPTION_ID, E.TELEMETRY_TOO_LARGE, E.INVALID_RECORD_STATE, E.STREAMS_INVALID_TOPOLOGY),
            *(E.STREAMS_INVALID_TOPOLOGY_EPOCH, E.STREAMS_TOPOLOGY_FENCED, E.UNKNOWN_CONTROLLER_ID),
        ),
        _BETWEEN: (
            *(E.STALE_CONTROLLER_EPOCH, E.STALE_BROKER_EPOCH, E.INCONSISTENT_VOTER_SET, E.SNAPSHOT_NOT_FOUND),
            *(
                E.DUPLICATE_BROKER_REGISTRATION,
                E.BROKER_ID_NOT_REGISTERED,
                E.INELIGIBLE_REPLICA,
                E.INVALID_REGISTRATION,
            ),
            *(E.FENCED_STATE_EPOCH, E.INVALID_VOTER_KEY, E.DUPLICATE_VOTER, E.VOTER_NOT_FOUND),
        ),
    },
}

#: For every code but NONE.
ADVICE: Final[Mapping[E, Advice]] = {
    code: Advice(remedy, what_next)
    for remedy, by_advice in _TABLE.items()
    for what_next, codes in by_advice.items()
    for code in codes
}


def advice_on(code: int) -> Advice:
    """What to do about an error code; one of a newer broker counts as UNKNOWN_SERVER_ERROR."""
    return ADVICE.get(E(code), ADVICE[E.UNKNOWN_SERVER_ERROR])
