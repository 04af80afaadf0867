"""The messages of errors by which a coordinator refuses a member; pure functions."""

from __future__ import annotations

from typing import Final

from fencepost.client.consumer_group.heartbeats import Standing
from fencepost.client.errors import BrokerError, ClientError, UnsupportedByBrokerError
from fencepost.protocol.errors import ErrorCode

#: error -> which setting or what of the member it is about
_ABOUT: Final = {
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group_remote_assignor={now.server_assignor!r} is not one of its assignors",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has as many members as group.consumer.max.size allows",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "{now.regex!r} is no regular expression of RE2/J",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "of its topics {topics} one may not be described by this user",
}


def refusal(error: ClientError | ErrorCode, now: Standing, message: str | None = None) -> ClientError:
    """The error that the caller of a refused member meets; `message`: the coordinator's own."""
    if error is ErrorCode.UNSUPPORTED_VERSION or isinstance(error, UnsupportedByBrokerError):
        return UnsupportedByBrokerError(
            f'group_protocol="consumer" of group {now.group_id!r} needs a broker that serves ConsumerGroupHeartbeat '
            "(KIP-848), as Apache Kafka does since 4.0 with group.coordinator.rebalance.protocols=classic,consumer: "
            'leave the setting at "classic", or use such a broker'
        )
    if isinstance(error, ClientError):
        return error
    about = _ABOUT.get(error, "").format(now=now, topics=", ".join(now.topics))
    said = ": ".join(filter(None, (about, message)))
    return BrokerError(error, f"group {now.group_id!r} cannot be joined{f': {said}' if said else ''}")


def trouble(error: ErrorCode, message: str | None, now: Standing) -> str:
    """Why a heartbeat has to be repeated, for the log and the error of a time-out."""
    if error is ErrorCode.UNRELEASED_INSTANCE_ID:
        return (
            f"another member has group_instance_id {now.group_instance_id!r}, until it leaves or its session ends "
            f"({error.name})"
        )
    return f"the coordinator answered {error.name}{f': {message}' if message else ''}"
