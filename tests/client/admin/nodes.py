"""A cluster of several nodes that answer as a test says, on virtual time and a network in memory."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from fencepost.client import Admin
from fencepost.protocol.codec import decode_request, encode_response, read_request_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    REQUESTS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from fencepost.protocol.messages.api_versions import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey
from fencepost.protocol.messages.find_coordinator import Coordinator
from fencepost.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run
from fencepost.simulation.network import SimulatedNetwork

FLEXIBLE = {key: request.__schema__.flexible for key, request in REQUESTS.items()}
FIRST_PORT = 9000
BOOTSTRAP = f"127.0.0.1:{FIRST_PORT}"
TOPIC_ID = uuid.UUID(int=7)

Answer = Callable[["int", Any], Any]
"""From the node that is asked and the request: the answer, also `Late`, or `SILENT` or `CUT`."""
SILENT = object()
CUT = object()


class Late(NamedTuple):
    """An answer that comes so many seconds after the one before it."""

    seconds: float
    answer: Any


class Everybody:
    """May connect."""

    def room(self) -> int:
        return 1

    def wait_seconds(self, _: float) -> float:
        return 0.0

    def accepted(self, _: float) -> None:
        pass


class Nodes:
    """Nodes 0 to `count` - 1, who agree on what metadata says."""

    def __init__(self, loop: VirtualLoop, count: int = 3) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(random.Random(1))
        self.clock = VirtualClock(loop)
        self.alive = list(range(count))
        self.controller = 0
        self.leaders: dict[TopicPartition, int] = {}
        self.topic_errors: dict[str, ErrorCode] = {}
        self.coordinators: dict[str, int] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        """Of versions, of requests that are not served in all that there are."""
        self.level = 1
        """Of transaction.version."""
        self.finalized_features_epoch = 1
        self.answer: Answer = lambda _, request: AssertionError(request)
        self.asked: list[tuple[int, Any]] = []
        """What came beside metadata: the node, and the request."""
        self.looked_up = 0
        self.made_topics = False
        """By a look for one that there is not."""

    async def start(self) -> None:
        for node in self.alive:
            await self.network.listen(partial(ScriptedConnection, self, node), "", FIRST_PORT + node, Everybody())

    def stop(self, node: int) -> None:
        """It is gone, and the others know."""
        self.alive.remove(node)
        self.network.take_down(FIRST_PORT + node)

    def runtime(self) -> Runtime:
        return Runtime(self.clock, self.network, random.Random(2))

    def admin(self, **options: Any) -> Admin:
        return Admin(
            BOOTSTRAP, runtime=self.runtime(), **({"max_block_ms": 5000, "request_timeout_ms": 1000} | options)
        )

    def requests(self, kind: type) -> list[tuple[int, Any]]:
        return [(node, request) for node, request in self.asked if isinstance(request, kind)]

    def respond(self, node: int, request: Any) -> Any:
        match request:
            case ApiVersionsRequest():
                return self._versions()
            case MetadataRequest():
                self.looked_up += 1
                self.made_topics |= bool(request.topics) and request.allow_auto_topic_creation
                return self._metadata(request)
            case FindCoordinatorRequest():
                found = [
                    Coordinator(key=key, node_id=node, host="127.0.0.1", port=FIRST_PORT + node)
                    for key in request.coordinator_keys
                    for node in [self.coordinators.get(key, 0)]
                ]
                return FindCoordinatorResponse(coordinators=found)
        self.asked.append((node, request))
        return self.answer(node, request)

    def _versions(self) -> ApiVersionsResponse:
        served = []
        for key, request in REQUESTS.items():
            low, high = self.ranges.get(request.__name__.removesuffix("Request"), request.__schema__.versions)
            if low <= high:
                served.append(ApiVersion(api_key=key, min_version=low, max_version=high))
        return ApiVersionsResponse(
            error_code=0,
            api_keys=served,
            supported_features=[SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)],
            finalized_features=[FinalizedFeatureKey(name="transaction.version", max_version_level=self.level)],
            finalized_features_epoch=self.finalized_features_epoch,
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = {at.topic for at in self.leaders} | set(self.topic_errors)
        wanted = sorted(names) if request.topics is None else [topic.name or "" for topic in request.topics]
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=FIRST_PORT + node, rack=f"rack-{node}")
            for node in self.alive
        ]
        return MetadataResponse(
            brokers=brokers, cluster_id="the cluster", controller_id=self.controller, topics=[*map(self._topic, wanted)]
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(
                error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=at.partition,
                leader_id=leader,
                leader_epoch=3,
                replica_nodes=[0, 1],
                isr_nodes=[0],
            )
            for at, leader in self.leaders.items()
            if at.topic == name
        ]
        error = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(
            error_code=self.topic_errors.get(name, error), name=name, topic_id=TOPIC_ID, partitions=partitions
        )


class ScriptedConnection(asyncio.Protocol):
    """A node's end of a connection."""

    def __init__(self, nodes: Nodes, node: int) -> None:
        self._nodes, self._node = nodes, node
        self._transport: Any = None
        self._buffer = b""
        self._answered_at = 0.0
        """When the last answer leaves: they come in order."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) - 4 >= (size := int.from_bytes(self._buffer[:4], "big")):
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            header = read_request_header(frame, FLEXIBLE)
            request = decode_request(REQUESTS[header.api_key], frame, header.api_version, header.body_start)
            answer = self._nodes.respond(self._node, request)
            if answer is CUT:
                self._transport.abort()
                return
            if answer is SILENT:
                continue
            late, answer = answer if isinstance(answer, Late) else (0.0, answer)
            frame = encode_response(answer, header.api_version, header.correlation_id)
            now = self._nodes.loop.time()
            self._answered_at = max(self._answered_at, now) + late
            if self._answered_at > now:
                self._nodes.loop.call_at(self._answered_at, self._transport.write, frame)
            else:
                self._transport.write(frame)


def play(scenario: Callable[[Nodes], Awaitable[None]], count: int = 3) -> None:
    """Run a scenario with so many nodes, within 400 virtual seconds."""

    complaints: list[Any] = []

    async def main(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        nodes = Nodes(loop, count)
        await nodes.start()
        async with asyncio.timeout(400):
            await scenario(nodes)

    run(main)
    assert complaints == []
