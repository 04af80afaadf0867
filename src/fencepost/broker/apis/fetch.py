"""Fetch (1): read record batches from partitions.

v4    isolation level, aborted transactions, last stable offset
v5    log start offset
v7    sessions (KIP-227): `fetch_sessions` says what a request asks for and what of the results it is told
v9    the leader epoch that the reader knows
v11   rack
v12   flexible
v13   topic ids
v18   the high watermark that a follower knows

An answer has first what was read, in the order asked for, then the partitions that cannot be read at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from fencepost.broker.leader.fetch_plan import FetchPlan, Found, partition_error
from fencepost.broker.leader.fetch_sessions import partitions_of
from fencepost.broker.network.pacing import HandlerSteps, awaited, in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.fetch_sessions import TOPIC_IDS_SINCE
from fencepost.protocol.messages import FetchRequest, FetchResponse
from fencepost.protocol.messages.fetch import FetchableTopicResponse
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import Milliseconds

_DEADLINE: Final = -1
"""Stands where partitions have their numbers."""


@serves(FetchRequest)
@in_steps
def fetch(request: FetchRequest, context: RequestContext, node: Node) -> HandlerSteps[Reply]:
    now, pace = _now(), Pace()
    named = yield from partitions_of(request, context.version, pace)
    fetching = node.fetch_sessions.begin(request, named, context.version, now)
    if fetching is ErrorCode.UNKNOWN_SERVER_ERROR:
        return _nonsense(request, context)
    if isinstance(fetching, ErrorCode):
        return independent(FetchResponse(error_code=fetching, responses=[]))
    plan = FetchPlan(request, fetching, context, node)
    yield from plan.look_up(pace)
    if plan.nonsense or (plan.reads and request.isolation_level not in (0, 1)):
        return _nonsense(request, context)
    found = yield from plan.read(pace)
    if request.max_wait_ms > 0 and plan.reads and not found.astray and found.size < plan.min_bytes:
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        yield from _wait(plan, node, deadline, pace)
        found = yield from plan.read(pace)
        now = _now()
    return (yield from _answer(plan, found, node, now, pace))


def _now() -> Milliseconds:
    return Milliseconds(int(asyncio.get_running_loop().time() * 1000))


def _wait(plan: FetchPlan, node: Node, deadline: float, pace: Pace) -> HandlerSteps[None]:
    """Wait until there are min_bytes to read, or it is `deadline` (seconds, by the clock of the event loop)."""
    loop = asyncio.get_running_loop()
    changed: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    readable = partial(node.turns.call, wake)
    cancels: dict[int, Callable[[], object]] = {}
    try:
        over = yield from plan.watch(readable, cancels, pace)
        if not over:
            cancels[_DEADLINE] = node.deadlines.at(deadline, wake)
        while not over:
            yield from awaited(changed)
            changed = loop.create_future()
            over = loop.time() >= deadline or (yield from plan.enough(readable, cancels, pace))
    finally:
        for cancel in cancels.values():
            cancel()


def _answer(plan: FetchPlan, found: Found, node: Node, now: Milliseconds, pace: Pace) -> Steps[Reply]:
    news = node.fetch_sessions.tell(plan.fetching, found.results + plan.refused, now)
    responses: list[FetchableTopicResponse] = []
    last: object = None
    for asked, answer in news.partitions:
        if pace.is_used_up(1):
            yield from pace.rest()
        if asked.key[0] != last:
            last = asked.key[0]
            topic = FetchableTopicResponse(topic=asked.topic or "", topic_id=asked.topic_id, partitions=[])
            responses.append(topic)
        responses[-1].partitions.append(answer)
    return independent(FetchResponse(error_code=news.error, session_id=news.session_id, responses=responses))


def _nonsense(request: FetchRequest, context: RequestContext) -> Reply:
    """UNKNOWN_SERVER_ERROR for a request that cannot be meant, as one with an isolation level that does not exist."""
    error, responses = ErrorCode.UNKNOWN_SERVER_ERROR, []
    if context.version < TOPIC_IDS_SINCE:
        responses = [
            FetchableTopicResponse(
                topic=topic.topic, partitions=[partition_error(wanted, error, []) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    return independent(FetchResponse(error_code=error, session_id=request.session_id, responses=responses))
