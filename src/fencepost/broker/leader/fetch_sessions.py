"""Fetch sessions (KIP-227): a reader names its partitions once, and is told only what is new about them.

    session id, epoch    what it means
    0, -1                no session: everything is asked for and answered (as before version 7)
    n, -1                close session n; else the same
    0, 0                 begin a session with these partitions, if there is room
    n, 0                 close session n and begin another one
    n, epoch >= 1        go on: the partitions named are added or changed, those forgotten leave, the others stay

An epoch is used once and the next one is expected then, so that no request is taken for another.  A session is read in
an order of its own: a partition that gave records goes to its end, so that a reader whose answers are always full
gets around to all of them.

Nothing here reads a log, a clock or a socket.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.fetch_sessions import (
    BEGIN,
    CLOSE,
    LAST_SESSION_EPOCH,
    NO_SESSION,
    TOPIC_IDS_SINCE,
    next_epoch,
)
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.messages.fetch import FetchPartition, PartitionData
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import LeaderEpoch, Milliseconds, Offset

_SHARD: Final = LAST_SESSION_EPOCH // 8
"""Apache Kafka spreads its sessions over eight caches, by ranges of their ids; outside of these it fails."""
LARGEST_ID: Final = 8 * _SHARD - 1
SMALLEST_ID: Final = 1 - _SHARD

Key = tuple[str | int, int]
"""A partition as a request names it: by the name of its topic, since version 13 by its id (as a number: it is compared
very often)."""


class Ends(Protocol):
    """The offsets and the leader epoch of a partition that a response may carry even without records."""

    high_watermark: Offset
    log_start_offset: Offset
    leader_epoch: LeaderEpoch


class Asked:
    """One partition that is to be read, and what its reader was last told of it."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "topic", "topic_id", "wanted")

    def __init__(self, key: Key, topic: str | None, topic_id: UUID, wanted: FetchPartition) -> None:
        self.key = key
        self.topic = topic
        """None until it is known which one has this id; it is asked for once, as in Apache Kafka."""
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_all(self, ends: Ends, bound: int) -> bool:
        """Whether a response need not name this partition: no record is to be read, and both offsets were sent before.

        `bound`: the offset that the reader may read up to.  `learns` says the same of a whole answer; this needs none,
        and most partitions of a session are so in most requests.
        """
        return (
            self.wanted.fetch_offset == bound
            and self.high_watermark == ends.high_watermark
            and self.log_start_offset == ends.log_start_offset
            and self.wanted.last_fetched_epoch in (-1, ends.leader_epoch)
        )

    def learns(self, found: PartitionData) -> bool:
        """Whether this is news to the reader, who knows it from now on."""
        known = self.high_watermark, self.log_start_offset
        # After an error these are -1: what follows it is news again.
        self.high_watermark, self.log_start_offset = found.high_watermark, found.log_start_offset
        return (
            bool(found.records)
            or known != (self.high_watermark, self.log_start_offset)
            or found.error_code != ErrorCode.NONE
            or found.diverging_epoch is not None
        )


Result = tuple[Asked, PartitionData]


@dataclass(slots=True)
class Session:
    """The partitions that one reader has asked for so far, in the order in which they are read next."""

    session_id: int
    by_id: bool
    partitions: dict[Key, Asked]
    created: int
    last_used: int
    epoch: int = 1
    """The epoch that the next request must have."""

    def update(self, asked: dict[Key, Asked], forgotten: Iterable[Key]) -> None:
        for key, new in asked.items():
            known = self.partitions.setdefault(key, new)
            known.wanted = new.wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def news(self, results: Iterable[Result]) -> list[Result]:
        """Those of the results that the reader does not know yet."""
        news = []
        for asked, found in results:
            if asked.learns(found):
                news.append((asked, found))
                if found.records and asked.key in self.partitions:
                    self.partitions[asked.key] = self.partitions.pop(asked.key)
        return news


class Fetching(NamedTuple):
    """The partitions that one request has to read, and the session that it belongs to (None: to none)."""

    partitions: list[Asked]
    by_id: bool
    begins: bool = False
    session: Session | None = None
    epoch: int = 0
    """The session's when this request came: if it has another one by the time of the answer, that one came too late."""


class SessionAnswer(NamedTuple):
    """The session's part of a response: its error, the session id (NO_SESSION: none) and the partitions to name."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[Result] = ()


class FetchSessions:
    """The sessions of one node, at most `slots`: who gets none is answered as without."""

    def __init__(self, slots: int, eviction_ms: Milliseconds, chance: random.Random) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random = chance
        self._sessions: dict[int, Session] = {}
        """The one not used for the longest time comes first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, asked: dict[Key, Asked], version: int, now: Milliseconds
    ) -> Fetching | ErrorCode:
        """The partitions that a request is to read, or the error of its session.  `asked`: its `partitions_of`."""
        if not SMALLEST_ID <= request.session_id <= LARGEST_ID:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (BEGIN, CLOSE):
            self._sessions.pop(request.session_id, None)
            return Fetching(list(asked.values()), by_id, request.session_epoch == BEGIN)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(asked, _forgotten(request, by_id))
        del self._sessions[session.session_id]
        if not session.partitions:
            return Fetching(list(asked.values()), by_id)
        self._sessions[session.session_id] = session
        session.last_used = now
        session.epoch = next_epoch(session.epoch)
        return Fetching(list(session.partitions.values()), by_id, session=session, epoch=session.epoch)

    def tell(self, fetching: Fetching, results: Sequence[Result], now: Milliseconds) -> SessionAnswer:
        """The part of `results` that the response carries: all, or in a session those that are news to the reader."""
        if fetching.begins:
            return SessionAnswer(ErrorCode.NONE, self._create(fetching.by_id, results, now), results)
        session = fetching.session
        if session is None:
            return SessionAnswer(ErrorCode.NONE, NO_SESSION, results)
        if session.epoch != fetching.epoch:
            return SessionAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id)
        return SessionAnswer(ErrorCode.NONE, session.session_id, session.news(results))

    def _create(self, by_id: bool, results: Sequence[Result], now: Milliseconds) -> int:
        """A session that begins with these partitions; its id, or NO_SESSION."""
        if len(self._sessions) >= self._slots and not self._evict(len(results), now):
            return NO_SESSION
        session_id = self._random.randint(1, LARGEST_ID)
        while session_id in self._sessions:
            session_id = self._random.randint(1, LARGEST_ID)
        for asked, found in results:
            asked.learns(found)
        partitions = {asked.key: asked for asked, _ in results}
        self._sessions[session_id] = Session(session_id, by_id, partitions, now, now)
        return session_id

    def _evict(self, size: int, now: Milliseconds) -> bool:
        """Make room for a session of so many partitions.

        At the cost of one that is long unused, else of one that is no longer new and has fewer partitions (KIP-227,
        "Session caching").
        """
        evicted = next(iter(self._sessions.values()), None)
        if evicted is not None and now - evicted.last_used <= self._eviction_ms:
            old = [one for one in self._sessions.values() if one.last_used - one.created > self._eviction_ms]
            evicted = min(old, key=lambda one: (len(one.partitions), one.session_id), default=None)
            if evicted is not None and len(evicted.partitions) >= size:
                return False
        if evicted is None:
            return False
        del self._sessions[evicted.session_id]
        return True


def partitions_of(request: FetchRequest, version: int, pace: Pace) -> Steps[dict[Key, Asked]]:
    """The partitions of a request.  Of one that is named twice the last word counts, and its first place."""
    found: dict[Key, Asked] = {}
    by_id = version >= TOPIC_IDS_SINCE
    for topic in request.topics:
        if pace.is_used_up(2):
            yield from pace.rest()
        named, name = (topic.topic_id.int, None) if by_id else (topic.topic, topic.topic)
        for wanted in topic.partitions:
            if pace.is_used_up(2):
                yield from pace.rest()
            key = named, wanted.partition
            found[key] = Asked(key, name, topic.topic_id, wanted)
    return found


def _forgotten(request: FetchRequest, by_id: bool) -> Iterable[Key]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id.int if by_id else topic.topic), index
