"""A fetch session as its reader keeps it (KIP-227): one node is told once which partitions are wanted, then only what
has changed, and leaves out of its answers whatever there is no news of.

    session id, epoch    what a request says with it
    0, -1                no session: before version 7
    0, 0                 begin a session with these partitions
    n, 0                 close session n and begin another one: nobody knows how far the node has come with n
    n, epoch >= 1        the partitions named are added or changed, those forgotten leave, the others stay
    n, -1                close session n

A request that is not answered may or may not have reached the node, so that from then on nobody knows what it takes to
be wanted.  Therefore a session goes on only from an answer: whatever is asked without one begins anew.

As Apache Kafka's FetchSessionHandler.  Nothing here reads a clock or a socket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.fetch_sessions import (
    BEGIN,
    CLOSE,
    NO_SESSION,
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    next_epoch,
)
from fencepost.protocol.messages.fetch import PartitionData
from fencepost.protocol.types import Offset, TopicPartition

#: The node does not have the session, or not as the request says: it is begun anew, and nothing is lost.
_SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Wanted(NamedTuple):
    """What a reader wants of one partition; all else that a request says of it is the same in all its requests."""

    topic_id: UUID
    """The topic's id; zero: not known."""
    offset: int
    """The offset of the first record to fetch."""
    leader_epoch: int = -1
    """The epoch of the record before that, as it was read (KIP-320); -1: not known."""


class SessionRequest(NamedTuple):
    """The partitions that one request names and forgets, and the session that it belongs to."""

    session_id: int
    epoch: int
    named: Mapping[TopicPartition, Wanted]
    forgotten: Sequence[tuple[TopicPartition, UUID]] = ()


class Ends(NamedTuple):
    """Where a log ends and begins, as a node answered last."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class Answer(NamedTuple):
    """An answer to a Fetch.  `partitions`: those with news; of the others that were asked for there is nothing new."""

    partitions: Mapping[TopicPartition, PartitionData]
    ends: Mapping[TopicPartition, Ends]
    """The newest known of every partition that was asked for; none of one that has an error."""


class FetchSession:
    """The session with one node.  For each request there is an `ask`, and an `answered` if its answer comes."""

    __slots__ = ("_by_id", "_ends", "_epoch", "_names", "_next_epoch", "_partitions", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        """The id of the session that the node may have for this reader."""
        self._next_epoch = BEGIN
        self._epoch = BEGIN
        """The session epoch of the last request."""
        self._by_id = False
        self._partitions: dict[TopicPartition, Wanted] = {}
        """The partitions of the session, as the node knows them if it has it."""
        self._names: dict[UUID, str] = {}
        """The names of the topics that are wanted, by id."""
        self._ends: dict[TopicPartition, Ends] = {}

    def ask(self, wanted: Mapping[TopicPartition, Wanted], version: int) -> SessionRequest:
        """The session and partitions of the next request, of this version: the node then reads `wanted` and no others.

        Since TOPIC_IDS_SINCE all of them have ids.
        """
        by_id = version >= TOPIC_IDS_SINCE
        epoch = self._next_epoch if by_id == self._by_id and version >= SESSIONS_SINCE else BEGIN
        self._epoch, self._next_epoch, self._by_id = epoch, BEGIN, by_id
        if epoch == BEGIN:
            self._partitions, self._names, self._ends = {}, {}, {}
        named, forgotten = self._changes(wanted)
        if forgotten:  # a reader of topics that come and go keeps no id for ever
            self._names.clear()
        if by_id:
            self._names.update((what.topic_id, at.topic) for at, what in (wanted if forgotten else named).items())
        self._partitions = dict(wanted)
        if version < SESSIONS_SINCE:
            self.session_id = NO_SESSION
            return SessionRequest(NO_SESSION, CLOSE, named)
        return SessionRequest(self.session_id, epoch, named, forgotten)

    def _changes(
        self, wanted: Mapping[TopicPartition, Wanted]
    ) -> tuple[dict[TopicPartition, Wanted], list[tuple[TopicPartition, UUID]]]:
        """The partitions to name, and those to forget, so that a node that knows the last request knows this one."""
        known = self._partitions
        named = {at: what for at, what in wanted.items() if known.get(at) != what}
        forgotten = [(at, was.topic_id) for at, was in known.items() if at not in wanted]
        if self._by_id:
            # By name a topic that was made anew takes the place of the former, and would be forgotten with it.
            former = ((at, known[at].topic_id, what.topic_id) for at, what in named.items() if at in known)
            forgotten += [(at, was) for at, was, now in former if was != now]
        for at, _ in forgotten:
            self._ends.pop(at, None)
        return named, forgotten

    def answered(self, response: Any) -> Answer | None:
        """Take the answer to the last request.  None: there is no such session any more, and all is to be asked again.

        Raises BrokerError if the node refuses the request for another reason, ProtocolError for what was not asked.
        Then too the next request begins anew.
        """
        error = ErrorCode(response.error_code)
        if error:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            if error in _SESSION_LOST and self._epoch != BEGIN:
                return None
            raise BrokerError(error, "the fetch was refused")
        former, told_id = self.session_id, response.session_id
        if self._epoch == BEGIN or told_id == NO_SESSION:
            self.session_id = told_id
        partitions = self._partitions_of(response)
        if self._epoch == BEGIN:
            # Whether a node that leaves something out will read it later nobody knows.
            if told_id != NO_SESSION and len(partitions) == len(self._partitions):
                self._next_epoch = 1
        elif told_id == former:
            self._next_epoch = next_epoch(self._epoch)
        return Answer(partitions, self._ends)

    def _partitions_of(self, response: Any) -> dict[TopicPartition, PartitionData]:
        partitions: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = self._names.get(topic.topic_id, "") if self._by_id else topic.topic
            for found in topic.partitions:
                at = TopicPartition(name, found.partition_index)
                asked = self._partitions.get(at)
                if asked is None or (self._by_id and asked.topic_id != topic.topic_id):
                    raise ProtocolError("it is about what was not asked")
                partitions[at] = found
                if found.error_code:
                    self._ends.pop(at, None)
                else:
                    self._ends[at] = Ends(
                        Offset(found.high_watermark), Offset(found.last_stable_offset), Offset(found.log_start_offset)
                    )
        return partitions

    def begin_anew(self) -> None:
        """Have the next request close the session and name all partitions: what the node knows is not certain."""
        self._next_epoch = BEGIN

    def end(self) -> SessionRequest | None:
        """The request that closes the session at the node; None: it has none of this reader."""
        session_id, self.session_id = self.session_id, NO_SESSION
        self._next_epoch = BEGIN
        return None if session_id == NO_SESSION else SessionRequest(session_id, CLOSE, {})
