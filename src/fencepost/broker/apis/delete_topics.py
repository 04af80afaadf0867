"""DeleteTopics (20): delete topics.

v4    flexible
v5    error messages
v6    topics may be named by id
"""

from __future__ import annotations

from collections import Counter

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.together import TOGETHER
from fencepost.broker.metadata.topic import Topic
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from fencepost.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from fencepost.protocol.types import ZERO_UUID
from fencepost.runtime import Work


@serves(DeleteTopicsRequest, in_turn=True)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext, node: Node) -> Reply:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    responses, withdrawn = await node.slices.run(_withdraw_all(asked, context, node))
    if withdrawn:
        removing = node.topics.remove(withdrawn, node.forget, node.slices)
        if node.groups.is_loading:  # it takes as long as that
            node.topics.remove_later(removing)
        else:
            await removing
    return independent(DeleteTopicsResponse(responses=responses))


def _withdraw_all(
    asked: list[DeleteTopicState], context: RequestContext, node: Node
) -> Work[tuple[list[DeletableTopicResult], list[Topic]]]:
    """The result for each topic, and the topics that were withdrawn: nobody finds them any more."""
    named: dict[object, DeleteTopicState] = {}
    times: Counter[object] = Counter()
    for topic in asked:
        name = _named(topic, node)
        named[name] = topic
        times[name] += 1
        yield
    responses: list[DeletableTopicResult] = []
    withdrawn: list[Topic] = []
    found: dict[Topic, DeletableTopicResult] = {}
    for number, (name, topic) in enumerate(named.items(), 1):
        if times[name] == 1 and (topic.name is None or topic.topic_id == ZERO_UUID):
            responses.append(_checked(topic, context, node, found))
        else:
            message = "a topic is named once, by its name or by its id"
            responses.append(_answer(topic, None, ErrorCode.INVALID_REQUEST, message))
        if number % TOGETHER == 0 or number == len(named):
            withdrawn += yield from _withdraw(found, node)
            found = {}
            yield
    return responses, withdrawn


def _named(asked: DeleteTopicState, node: Node) -> object:
    """The id of the topic that is meant; of one that is not there the name, if that was given."""
    if asked.name is None:
        return asked.topic_id
    topic = node.topics.by_name.get(asked.name)
    return asked.name if topic is None else topic.topic_id


def _answer(
    asked: DeleteTopicState, topic: Topic | None, error: ErrorCode, message: str | None
) -> DeletableTopicResult:
    """The result for one topic, with the name and the id of `topic`; None: with those that the request gave."""
    name, topic_id = (asked.name, asked.topic_id) if topic is None else (topic.name, topic.topic_id)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)


def _withdraw(found: dict[Topic, DeletableTopicResult], node: Node) -> Work[list[Topic]]:
    """Withdraw the topics found; those of them that nobody finds any more.  The others' results say why not."""
    refusals = yield from node.topics.withdraw_together(list(found))
    for topic, answer in found.items():
        refused = refusals.get(topic.name)
        if refused is not None:
            answer.error_code, answer.error_message = refused.error, str(refused)
    return [topic for topic in found if topic.name not in refusals]


def _checked(
    asked: DeleteTopicState, context: RequestContext, node: Node, found: dict[Topic, DeletableTopicResult]
) -> DeletableTopicResult:
    """The result for one topic; where it is to be deleted it is put into `found`, too."""
    topics = node.topics
    topic = topics.by_id.get(asked.topic_id) if asked.name is None else topics.by_name.get(asked.name)
    name = asked.name if topic is None else topic.name
    if name is not None and not context.may(Operation.DELETE, Resource.TOPIC, name):
        # Whoever may not see the topic is told nothing that was not asked with.
        seen = topic if context.may(Operation.DESCRIBE, Resource.TOPIC, name) else None
        return _answer(asked, seen, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    error, message = ErrorCode.NONE, None
    if topic is None:
        error = _unknown(asked)
    elif not node.settings["delete.topic.enable"]:
        error, message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
    elif topic.is_internal:
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own and cannot be deleted"
    else:
        found[topic] = _answer(asked, topic, error, message)
        return found[topic]
    return _answer(asked, topic, error, message)


def _unknown(asked: DeleteTopicState) -> ErrorCode:
    if asked.name is not None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_REQUEST if asked.topic_id == ZERO_UUID else ErrorCode.UNKNOWN_TOPIC_ID
