"""Nodes with their real fetch sessions, and one reader whose requests and answers may be lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from uuid import UUID

from fencepost.broker.leader.fetch_sessions import Asked, FetchSessions, partitions_of
from fencepost.client.fetch_requests import FetchSettings, fetch_request
from fencepost.client.fetch_session import Answer, Ends, FetchSession, Wanted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.fetch_sessions import BEGIN, LAST_SESSION_EPOCH
from fencepost.protocol.messages import FetchRequest, FetchResponse
from fencepost.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import ZERO_UUID, Isolation, Milliseconds, Offset, TopicPartition

WITHOUT_SESSIONS, BY_NAME, BY_ID = 6, 12, 13
PARTITIONS = [TopicPartition(topic, number) for topic in "abc" for number in range(2)]
_SETTINGS = FetchSettings(0, 1, 1000, 100, Isolation.READ_UNCOMMITTED)


class Log:
    """A partition on whichever node leads it: as many records as its end is large."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.error = ErrorCode.NONE


class Node:
    """A node with its real sessions, over logs that all nodes have."""

    def __init__(self, number: int, world: World) -> None:
        self.number, self.world, self.version = number, world, BY_ID
        self.starts = self.now = 0
        self.start()

    def start(self) -> None:
        """Start (again): no session is left."""
        self.starts += 1
        self.sessions = FetchSessions(3, Milliseconds(5), random.Random(f"{self.number} {self.starts}"))
        self.unheard: set[int] = set()
        """Sessions that began without their reader's being told: they can only be evicted."""
        self.has_forgotten = True
        """Whether a session may have gone that its reader goes on with."""

    def evict(self) -> None:
        self.sessions._sessions.clear()
        self.has_forgotten = True

    def near_the_last_epoch(self, reader: FetchSession) -> None:
        """As after a year of requests."""
        session = self.sessions._sessions.get(reader.session_id)
        if session is not None and reader._next_epoch == session.epoch:
            session.epoch = reader._next_epoch = LAST_SESSION_EPOCH - 1

    def serve(self, request: FetchRequest, version: int, at_most: int) -> FetchResponse:
        """The answer, with records of so many partitions."""
        self.now += 1
        named = finish(partitions_of(request, version, Pace()))
        fetching = self.sessions.begin(request, named, version, Milliseconds(self.now))
        if isinstance(fetching, ErrorCode):
            return FetchResponse(error_code=fetching, session_id=0, responses=[])
        results = []
        for asked in fetching.partitions:
            found = self.read(asked, version >= BY_ID, at_most)
            at_most -= bool(found.records)
            results.append((asked, found))
        told = self.sessions.tell(fetching, results, Milliseconds(self.now))
        responses = [
            FetchableTopicResponse(topic=asked.topic or "", topic_id=asked.topic_id, partitions=[found])
            for asked, found in told.partitions
        ]
        return FetchResponse(error_code=told.error, session_id=told.session_id, responses=responses)

    def read(self, asked: Asked, by_id: bool, at_most: int) -> PartitionData:
        world, number = self.world, asked.key[1]
        name = world.names.get(asked.topic_id, "") if by_id else str(asked.key[0])
        asked.topic = name
        at, offset = TopicPartition(name, number), asked.wanted.fetch_offset
        if by_id and world.ids.get(name) != asked.topic_id:
            return failed(number, ErrorCode.UNKNOWN_TOPIC_ID)
        if world.leaders[at] != self.number:
            return failed(number, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = world.logs[at]
        if log.error:
            return failed(number, log.error)
        if not log.start <= offset <= log.end:
            return failed(number, ErrorCode.OFFSET_OUT_OF_RANGE)
        return PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=bytes([min(log.end - offset, 3)]) if at_most > 0 and log.end > offset else b"",
        )


def failed(number: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=number, error_code=code, high_watermark=-1, log_start_offset=-1, records=b"")


class World:
    """Two nodes, and one reader that asks both; `check`ed after each answer."""

    def __init__(self) -> None:
        self.logs = {at: Log() for at in PARTITIONS}
        self.leaders = dict.fromkeys(PARTITIONS, 0)
        self.ids = {topic: UUID(int=number + 1) for number, topic in enumerate("abc")}
        self.names = {topic_id: name for name, topic_id in self.ids.items()}
        self.nodes = [Node(number, self) for number in range(2)]
        # What the reader knows and wants.
        self.sessions = [FetchSession() for _ in self.nodes]
        self.known_ids, self.known_leaders = dict(self.ids), dict(self.leaders)
        self.positions = dict.fromkeys(PARTITIONS, 0)
        self.waiting: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.read: list[tuple[TopicPartition, UUID, int]] = []
        self.steps: Mapping[str, Callable[[TopicPartition, int], None]] = {
            "append": self.append,
            "trim": self.trim,
            "break": lambda at, _: setattr(self.logs[at], "error", ErrorCode.KAFKA_STORAGE_ERROR),
            "mend": lambda at, _: setattr(self.logs[at], "error", ErrorCode.NONE),
            "move": lambda at, n: self.leaders.__setitem__(at, n % 2),
            "make anew": self.make_anew,
            "refresh": lambda *_: self.refresh(),
            "forget ids": lambda at, _: self.known_ids.__setitem__(at.topic, ZERO_UUID),
            "take": lambda at, _: self.take(at),
            "pause": lambda at, _: self.paused.add(at),
            "resume": lambda at, _: self.paused.discard(at),
            "seek": lambda at, n: self.seek(at, n % 4),
            "restart": lambda _, n: self.nodes[n % 2].start(),
            "evict": lambda _, n: self.nodes[n % 2].evict(),
            "version": lambda _, n: setattr(self.nodes[n % 2], "version", (WITHOUT_SESSIONS, BY_NAME, BY_ID)[n % 3]),
            "wrap": lambda _, n: self.nodes[n % 2].near_the_last_epoch(self.sessions[n % 2]),
            "fetch": lambda _, n: self.fetch(n % 2, 1 + n % 3),
            "request lost": lambda _, n: self.lose_the_request(n % 2),
            "answer lost": lambda _, n: self.lose_the_answer(n % 2),
            "end": lambda _, n: self.end(n % 2),
        }

    # What happens to topics

    def append(self, at: TopicPartition, count: int) -> None:
        self.logs[at].end += 1 + count % 4

    def trim(self, at: TopicPartition, _: int) -> None:
        self.logs[at].start = self.logs[at].end

    def make_anew(self, at: TopicPartition, _: int) -> None:
        topic_id = UUID(int=len(self.names) + 1)
        self.ids[at.topic], self.names[topic_id] = topic_id, at.topic
        for each in PARTITIONS:
            if each.topic == at.topic:
                self.logs[each] = Log()

    # What the reader does

    def refresh(self) -> None:
        """Learn who leads what, and which topics are other ones: those are read from their beginning."""
        self.known_leaders = dict(self.leaders)
        for at in PARTITIONS:
            if self.known_ids[at.topic] != self.ids[at.topic]:
                self.seek(at, 0)
        self.known_ids = dict(self.ids)

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.positions[at] = offset
        self.waiting.pop(at, None)

    def take(self, at: TopicPartition) -> None:
        for _ in range(self.waiting.pop(at, 0)):
            self.read.append((at, self.known_ids[at.topic], self.positions[at]))
            self.positions[at] += 1

    def wanted(self, node: int) -> dict[TopicPartition, Wanted]:
        return {
            at: Wanted(self.known_ids[at.topic], self.positions[at])
            for at in PARTITIONS
            if self.known_leaders[at] == node and at not in self.waiting and at not in self.paused
        }

    def ask(self, node: int) -> tuple[dict[TopicPartition, Wanted], FetchRequest, int] | None:
        asked = self.wanted(node)
        if not asked:
            return None
        most = self.nodes[node].version
        version = most if all(topic_id.int for topic_id, _, _ in asked.values()) else min(most, BY_NAME)
        request = fetch_request(self.sessions[node].ask(asked, version), _SETTINGS, 0)
        return asked, request, version

    def lose_the_request(self, node: int) -> None:
        self.ask(node)

    def lose_the_answer(self, node: int) -> None:
        if (asked := self.ask(node)) is not None:
            before = set(self.nodes[node].sessions._sessions)
            self.nodes[node].serve(*asked[1:], at_most=3)
            self.nodes[node].unheard |= self.nodes[node].sessions._sessions.keys() - before

    def end(self, node: int) -> None:
        if (last := self.sessions[node].end()) is not None:
            self.nodes[node].serve(fetch_request(last, _SETTINGS, 0), self.nodes[node].version or BY_NAME, at_most=3)
            assert last.session_id not in self.nodes[node].sessions._sessions

    def fetch(self, node: int, at_most: int) -> None:
        while (asked := self.ask(node)) is not None:
            served = self.nodes[node].serve(*asked[1:], at_most)
            answer = self.sessions[node].answered(served)
            if answer is not None:
                break
            assert served.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert self.nodes[node].has_forgotten, "nobody is asked to go on with what it does not have"
            self.nodes[node].has_forgotten = False
        if asked is None or answer is None:
            return
        self.check_node(node, asked[0], asked[2])
        self.check_answer(node, asked[0], answer)
        for at, found in answer.partitions.items():
            if found.records:
                self.waiting[at] = found.records[0]

    # What must be

    def check_node(self, node: int, asked: dict[TopicPartition, Wanted], version: int) -> None:
        """What the node takes to be wanted is what is wanted."""
        session = self.nodes[node].sessions._sessions.get(self.sessions[node].session_id)
        if self.sessions[node]._next_epoch == BEGIN:
            return
        assert session is not None and session.epoch == self.sessions[node]._next_epoch
        assert {key: one.wanted.fetch_offset for key, one in session.partitions.items()} == {
            (topic_id.int if version >= BY_ID else at.topic, at.partition): offset
            for at, (topic_id, offset, _) in asked.items()
        }
        others = self.nodes[node].sessions._sessions.keys() - {session.session_id}
        assert others <= self.nodes[node].unheard, "a session that is known is closed"

    def check_answer(self, node: int, asked: dict[TopicPartition, Wanted], answer: Answer) -> None:
        """Of every partition it is known where its log ends and begins, whether it was told now or before."""
        by_id = self.sessions[node]._by_id
        assert answer.partitions.keys() <= asked.keys()
        for at, (topic_id, offset, _) in asked.items():
            log, found = self.logs[at], answer.partitions.get(at)
            is_the_same = not by_id or topic_id == self.ids[at.topic]
            readable = is_the_same and self.leaders[at] == node and not log.error
            if readable and log.start <= offset <= log.end:
                assert answer.ends[at] == Ends(Offset(log.end), Offset(log.end), Offset(log.start))
                assert found is None or not found.error_code
            else:
                assert found is not None and found.error_code and at not in answer.ends
