"""Positions of a group as they are asked for and stored: what each error comes to, and what requests carry."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.errors import (
    BrokerError,
    ClientError,
    CommitFailedError,
    FencedInstanceIdError,
    UnsupportedByBrokerError,
)
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from fencepost.protocol.types import TopicPartition

WHO = ConsumerGroupMetadata("g", 4, "member", "instance")
FIRST, SECOND = TopicPartition("t", 5), TopicPartition("u", 6)
POSITIONS = {FIRST: OffsetAndMetadata(10, "why", 11), SECOND: OffsetAndMetadata(0)}
IDS = {FIRST: uuid.UUID(int=1), SECOND: uuid.UUID(int=2)}


class Patience:
    async def pause(self, because: object) -> None:
        """Nobody waits here."""

    async def within(self, work: Awaitable[Any]) -> Any:
        return await work


class Scene:
    """A member, and a coordinator that answers a commit with these errors, then with none."""

    has_epochs = is_cooperative = False

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.asked: list[Any] = []
        self.forgotten = 0
        self.refused: list[ConsumerGroupMetadata] = []
        self.requests = SimpleNamespace(
            group_id="g",
            ask=self.ask,
            forget_coordinator=self.forget,
            cluster=SimpleNamespace(deadline=lambda *_: Patience()),
        )
        self.offsets = GroupOffsets(cast(Any, self))

    def metadata(self) -> ConsumerGroupMetadata:
        return WHO

    def as_of_now(self, _: ConsumerGroupMetadata) -> None:
        """The place is lost."""

    def forget(self) -> None:
        self.forgotten += 1

    def check_fenced(self, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceIdError("x")

    def commit_was_refused(self, member: ConsumerGroupMetadata) -> None:
        self.refused.append(member)

    async def ask(self, request: Any, *_: object, **__: object) -> Any:
        self.asked.append(request)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=error if topic.name == "u" else 0
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    def commit(self) -> ClientError | None:
        """What is raised."""
        try:
            asyncio.run(self.offsets.commit(POSITIONS, IDS))
        except ClientError as error:
            return error
        return None


E = ErrorCode
#: The group has gone on without us.
LOST = {
    *(E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS),
    *(E.FENCED_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH, E.GROUP_ID_NOT_FOUND),
}


@pytest.mark.parametrize("error", [error for error in ErrorCode if error])
def test_what_the_error_of_a_position_comes_to(error: ErrorCode) -> None:
    scene = Scene(error)
    raised = scene.commit()
    tries, is_lost = 1, error in LOST
    if error is E.UNKNOWN_TOPIC_ID:  # it was made anew, and has no positions of ours
        assert raised is None
    elif error is E.FENCED_INSTANCE_ID:
        assert type(raised) is FencedInstanceIdError
    elif is_lost:
        assert type(raised) is CommitFailedError
    elif error.retriable and error is not E.UNKNOWN_TOPIC_OR_PARTITION:
        assert raised is None
        tries = 2
    else:
        assert isinstance(raised, BrokerError) and raised.code is error
    assert len(scene.asked) == tries
    assert scene.refused == [WHO] * is_lost
    assert scene.forgotten == (error in (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE))


def test_a_commit_carries_all_that_it_is_about() -> None:
    scene = Scene()
    assert scene.commit() is None
    parts = [
        OffsetCommitRequestPartition(
            partition_index=5, committed_offset=10, committed_leader_epoch=11, committed_metadata="why"
        ),
        OffsetCommitRequestPartition(
            partition_index=6, committed_offset=0, committed_leader_epoch=-1, committed_metadata=""
        ),
    ]
    topics = [
        OffsetCommitRequestTopic(name=at.topic, topic_id=topic_id, partitions=[part])
        for (at, topic_id), part in zip(IDS.items(), parts, strict=True)
    ]
    assert scene.asked == [
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=4,
            member_id="member",
            group_instance_id="instance",
            topics=topics,
        )
    ]


def test_positions_in_two_topics_of_one_name_are_of_one_each() -> None:
    scene, other = Scene(), TopicPartition("t", 7)
    asyncio.run(scene.offsets.commit(dict.fromkeys((FIRST, other), OffsetAndMetadata(1)), {**IDS, other: IDS[SECOND]}))
    (request,) = scene.asked
    assert [(topic.topic_id, [part.partition_index for part in topic.partitions]) for topic in request.topics] == [
        (IDS[FIRST], [5]),
        (IDS[SECOND], [7]),
    ]


@pytest.mark.parametrize(("known", "most"), [([FIRST, SECOND], None), ([FIRST], 9), ([SECOND], 9), ([], 9)])
def test_topics_are_named_by_their_ids_where_all_of_them_are_known(
    known: list[TopicPartition], most: int | None
) -> None:
    """A version has room for names, or for ids."""
    scene, asked = Scene(), list[object]()
    ask = scene.requests.ask

    async def noted(*given: Any, **how: Any) -> Any:
        asked.append(how["most"])
        return await ask(*given, **how)

    scene.requests.ask = noted
    asyncio.run(scene.offsets.commit(POSITIONS, {at: IDS[at] for at in known}))
    assert asked == [most]


@pytest.mark.parametrize("has_epochs", [False, True])
def test_positions_that_an_open_transaction_may_change_are_waited_for(has_epochs: bool) -> None:
    """Else what a transaction is about to commit is read again (KIP-447)."""
    unstable, asked = [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE], list[OffsetFetchRequest]()

    async def ask(request: OffsetFetchRequest, *_: object, **__: object) -> OffsetFetchResponse:
        asked.append(request)
        how: dict[str, Any] = {"partition_index": FIRST.partition, "metadata": None, "error_code": unstable.pop(0)}
        if has_epochs:
            topic = OffsetFetchResponseTopics(
                name="t", partitions=[OffsetFetchResponsePartitions(**how, committed_offset=7)]
            )
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
        flat = OffsetFetchResponseTopic(name="t", partitions=[OffsetFetchResponsePartition(**how, committed_offset=7)])
        return OffsetFetchResponse(topics=[flat])

    scene = Scene()
    scene.requests.ask, scene.has_epochs = ask, has_epochs
    assert asyncio.run(scene.offsets.committed([FIRST])) == {FIRST: OffsetAndMetadata(7)}
    assert [request.require_stable for request in asked] == [True, True]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.ILLEGAL_GENERATION])
def test_what_is_sent_at_once_is_what_would_be_asked_for_and_is_judged_alike(error: ErrorCode) -> None:
    """As everywhere, a topic that was made anew has nothing to be stored, which is no error."""
    scene, sent = Scene(error, error), list[Any]()

    def request(message: Any, version: int) -> asyncio.Future[Any]:
        sent.append((message, version))
        return asyncio.ensure_future(scene.ask(message))

    ready = SimpleNamespace(version_of=lambda _, most, least: (most, least), request=request)
    scene.requests.ready = lambda: ready

    async def is_stored() -> bool:
        answer = scene.offsets.begin(POSITIONS, IDS, WHO)
        assert answer is not None
        return scene.offsets.is_stored(await answer)

    assert asyncio.run(is_stored()) == (scene.commit() is None) == (error is not ErrorCode.ILLEGAL_GENERATION)
    assert sent == [(scene.asked[-1], (None, 0))]


@pytest.mark.parametrize("is_reached", [False, True])
def test_nothing_is_sent_at_once_where_nobody_is_reached_or_it_cannot_be_asked(is_reached: bool) -> None:
    """Whoever asks in the usual way waits, or is told why."""

    def refuse(*_: object) -> int:
        raise UnsupportedByBrokerError("it does not serve that")

    scene = Scene()
    scene.requests.ready = lambda: SimpleNamespace(version_of=refuse) if is_reached else None
    assert scene.offsets.begin(POSITIONS, IDS, WHO) is None
