"""Produce (0): append record batches to partitions.

v0-2  older record formats: advertised because librdkafka looks for it, but refused
v3    transactional id, record batches of format 2
v7    zstd
v8    error messages
v9    flexible
v11   TRANSACTION_ABORTABLE may be answered (KIP-890 part 1)
v12   partitions are added to the transaction by the leader (KIP-890 part 2)
v13   topic ids
"""

from __future__ import annotations

from fencepost.broker.leader.produce_plan import ProducePlan, Topics, Write
from fencepost.broker.network import pacing
from fencepost.broker.network.pacing import HandlerSteps
from fencepost.broker.network.registry import CLOSE, NO_ANSWER, Later, Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.partition import Appended
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.steps import ITEM, Pace, Room, Steps


@serves(ProduceRequest, advertised_first=0, in_turn=True)
def produce(request: ProduceRequest, context: RequestContext, node: Node) -> Reply | Later:
    plan = ProducePlan(request, context, node)
    return pacing.begin(_steps(plan, request.acks, node.unfolding), node.slices, interrupted=plan.own)


def _steps(plan: ProducePlan, acks: int, room: Room) -> HandlerSteps[Reply]:
    pace = Pace(room=room)
    yield from plan.look_up(pace)
    if not plan.is_refused():
        yield from plan.verify()
        yield from plan.check(pace)
    complete = yield from plan.append(pace)
    if not complete:
        plan.tell_timed_out()
    if acks == 0:
        # The client hears of an error by the connection's end, since it reads no answer.
        return NO_ANSWER if complete else CLOSE
    response = yield from _response(plan.topics, pace)
    return Reply(response, plan.lsn(complete))


def _response(topics: Topics, pace: Pace) -> Steps[ProduceResponse]:
    responses = []
    for topic, writes in topics:
        if pace.is_used_up(ITEM):
            yield from pace.rest()
        parts = []
        for write in writes:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            parts.append(_one(write))
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    return ProduceResponse(responses=responses)


def _one(write: Write) -> PartitionProduceResponse:
    outcome = write.outcome
    if isinstance(outcome, Appended):
        return PartitionProduceResponse(
            index=write.at.partition,
            error_code=ErrorCode.NONE,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.log_append_time,
            log_start_offset=outcome.log_start_offset,
        )
    assert outcome is not None, "every partition of a request is answered"
    return PartitionProduceResponse(
        index=write.at.partition,
        error_code=outcome.error,
        base_offset=-1,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why)
            for number, why in outcome.record_errors
        ],
        error_message=outcome.message,
    )
