"""One connection: frames in, requests to their handlers, responses out in the order of the requests.

A response waits for the responses before it, and for the lsn that it depends on.  Requests are handled as soon as they
are read, so many of them share one sync.  Everything that became ready in one step leaves in one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from fencepost.broker.network import refusals
from fencepost.broker.network.error_responses import reply_to_failed, unsupported_version
from fencepost.broker.network.frame_buffer import SMALL, FrameBuffer
from fencepost.broker.network.limits import (
    A_FEW_AT_A_TIME,
    LARGE_REQUEST,
    MOST_HELD,
    MOST_KEPT,
    MOST_WAITING,
    ONE_AT_A_TIME,
    PIECE,
    Reservation,
)
from fencepost.broker.network.outgoing import Outgoing, Slot
from fencepost.broker.network.registry import CLOSE, NO_ANSWER, SERVED, Later, Reply, Served, independent
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.node_log import get_logger
from fencepost.protocol.codec import (
    API_VERSIONS,
    RequestHeader,
    begin_response,
    decode_request,
    decode_request_in_steps,
    encode_response,
    read_request_header,
)
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.messages import FLEXIBLE
from fencepost.protocol.types import Lsn
from fencepost.runtime import Work

if TYPE_CHECKING:
    from fencepost.broker.node import Node

logger = get_logger(__name__)


class Connection(asyncio.BufferedProtocol):
    """A client's connection to this node: reads its requests, has them handled, and writes the responses in order."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._time = asyncio.get_running_loop().time  # To ask for the loop each time is a call of the system.
        self._transport: asyncio.Transport | None = None
        self.peer, self._address = Peer(node.authorizer, ""), ""
        self._context = RequestContext(self.peer, -1, None)  # Of the newest request; the next one like it has the same.
        self._frames = FrameBuffer(node.largest_request)
        self._memory = Reservation(node.request_memory, self._memory_came)  # Of the frame at hand, if it is large.
        self.under_way: dict[asyncio.Task[None], bool] = {}  # Whether one goes on without its client, as a write does.
        self._out = Outgoing(node.answer_memory)
        self._active = True
        """Whether something came or went since `tidy` looked last."""
        self._idle_since = 0.0
        self._reading = True
        """`_may_go_on` as of the last change of what that looks at: requests are read, and handled."""
        self._stopped = False  # The frame at hand waits for its turn, or for memory.
        self._handling = self._in_line = False  # In line, others are served first and nothing is read.
        self._in_turn: asyncio.Task[None] | None = None  # What every later request waits for.

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if peer else "unknown"
        self.peer.host = f"/{self._address}"
        self._node.connections[self] = None
        if not self._node.connection_quotas.opened(self._address):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._node.connections.pop(self, None)
        self._node.connection_quotas.closed(self._address)
        self._memory.end()
        self._node.shares.forget(self._my_turn)
        self._node.disconnections.lost(self.peer)
        for task, goes_on in list(self.under_way.items()):
            if not goes_on:
                task.cancel()
        self._out.clear()

    def close(self) -> None:
        """End the connection; the answers that are ready are still sent."""
        self._out.send(self._transport)
        if self._transport is not None:
            self._out.send_all(self._transport)
            self._transport.close()

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._out.is_writable = False
        self._throttle()

    def resume_writing(self) -> None:
        self._out.is_writable = self._active = True
        self._out.send(self._transport)
        self._throttle()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.filled(nbytes)
        self._active = True
        self._go_on()

    # Frames

    def _go_on(self) -> None:
        """Handle what has been read, for as long as the client takes its responses and others need not wait."""
        if self._node.shares.begin(self._my_turn, self._time()):
            self._handle()
        else:
            self._stand_in_line()

    def _stand_in_line(self) -> None:
        self._in_line = True
        self._throttle()

    def _my_turn(self) -> None:
        self._in_line = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._reading = self._may_go_on
        self._handle()
        if self._reading:
            transport.resume_reading()

    def _handle(self) -> None:
        self._handling = True
        try:
            self._serve()
        except Exception:
            self._broken()
        finally:
            self._handling = False
        self._out.send(self._transport)

    def _serve(self) -> None:
        """Handle the requests that have come, until there is no whole one, no memory or no time left for the next."""
        frames = self._frames
        while self._reading:
            try:
                frame = frames.take()
            except ProtocolError as error:
                self._refuse(str(error))
                return
            if frame is None:
                if frames.needed > SMALL and not self._memory.grow(frames.needed):
                    self._stop()
                return
            if self._out.slots and int.from_bytes(frame[:2], "big") in ONE_AT_A_TIME:
                frames.put_back(frame)
                self._stop()
                return
            self._request(frame)
            if self._memory.held and self._in_turn is None:
                self._release_request()
            if self._out.unsent > PIECE:
                self._out.send(self._transport)
            if self._is_closing:
                return
            if not self._node.shares.goes_on(self._my_turn, self._time()):
                self._stand_in_line()

    def _memory_came(self) -> None:
        self._stopped = False
        self._throttle()

    def _release_request(self) -> None:
        if self._memory.release() and (self._node.request_memory.is_short or self._frames.size > MOST_KEPT):
            self._frames.shrink()

    def _stop(self) -> None:
        """Handle and read nothing more until memory, an answer that has left, or a turn lets this connection go on."""
        self._stopped = True
        self._throttle()

    def tidy(self, now: float, longest_idle: float) -> None:
        """Called now and then: give back memory that is not used, and end what nobody has used for so many seconds."""
        if self._reading and self._memory.is_kept_from_others(self._frames.held):
            self._refuse("its request hardly comes on, and others wait for the memory that it has")
        if self._out.is_kept_from_others():
            logger.warning("closing the connection from %s: it hardly takes its answers", self.peer.host)
            self.abort()
        if self._active:
            self._active, self._idle_since = False, now
            return
        self._frames.shrink()
        is_idle = 0 <= longest_idle <= now - self._idle_since
        if is_idle and self._is_closing:
            self.abort()  # its client takes nothing of what it was still to get
        elif is_idle:
            logger.info("closing the connection from %s: nothing came for %d s", self.peer.host, longest_idle)
            self.close()

    def _refuse(self, why: str) -> None:
        logger.warning("closing the connection from %s: %s", self.peer.host, why)
        self._frames.drop()
        self.close()

    def _broken(self) -> None:
        """Code outside of any handler raised: this connection is aborted, the others go on."""
        logger.exception("closing the connection from %s: it could not be served", self.peer.host)
        self.abort()

    # Requests

    def _request(self, frame: memoryview) -> None:
        try:
            header = read_request_header(frame, FLEXIBLE)
            served = SERVED.get(header.api_key)
            if served is None or not served.first <= header.api_version <= served.newest(self._node.settings):
                self._unsupported(header)
                return
            if len(frame) > LARGE_REQUEST:
                self._large_request(frame, header, served)
                return
            request = decode_request(served.request, frame, header.api_version, header.body_start)
        except ProtocolError as error:
            self._refuse(str(error))
            return
        self._handle_request(request, len(frame), header, served)

    def _large_request(self, frame: memoryview, header: RequestHeader, served: Served) -> None:
        """Decode a request of very many items in steps; nothing is read into its buffer until that is done."""
        rest = decode_request_in_steps(served.request, frame, header.api_version, header.body_start)
        try:
            next(rest)
        except StopIteration as done:
            self._handle_request(done.value, len(frame), header, served)
        else:
            self._keep_turn(self._begin(self._decode_rest(rest, len(frame), header, served)))

    async def _decode_rest(self, rest: Work[Any], size: int, header: RequestHeader, served: Served) -> None:
        try:
            request = await self._node.slices.run(rest)
        except ProtocolError as error:
            self._refuse(str(error))
            return
        if self._is_closing:
            return
        try:
            self._handle_request(request, size, header, served)
        except Exception:
            self._broken()

    def _handle_request(self, request: Any, size: int, header: RequestHeader, served: Served) -> None:
        api_key, version, _, client_id, _ = header
        self._node.counters.requests[api_key] += 1
        context = self._context
        if context.version != version or context.client_id != client_id:
            context = self._context = RequestContext(self.peer, version, client_id)
        try:
            reply = served.handler(request, context, self._node)
        except Exception:
            reply = reply_to_failed(request, header, self.peer.host, self._node.storage.failure)
        if not isinstance(reply, Reply):
            task = self._begin(self._wait(reply, self._out.new_slot(size), header, request, context), served.in_turn)
            if served.in_turn:
                self._keep_turn(task)
            self._throttle()
        else:
            rest = self._answer(reply, None, header, request, context)
            if rest is not None:
                self._begin(self._encode_rest(rest, self._out.new_slot(0), reply.lsn, header, request))
                self._throttle()

    def _keep_turn(self, task: asyncio.Task[None]) -> None:
        """Hold back later requests of this connection until this task is done."""
        self._in_turn = task
        task.add_done_callback(self._turn_over)
        self._throttle()

    def _begin(self, work: Coroutine[Any, Any, None], goes_on: bool = False) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.under_way[task] = goes_on
        task.add_done_callback(self.under_way.pop)
        task.add_done_callback(self._node.answer_memory.leave)
        return task

    async def _wait(
        self, later: Later, slot: Slot, header: RequestHeader, request: Any, context: RequestContext
    ) -> None:
        try:
            reply = await later
        except Exception:
            reply = reply_to_failed(request, header, self.peer.host, self._node.storage.failure)
        try:
            rest = self._answer(reply, slot, header, request, context)
        except Exception:
            self._broken()
        else:
            if rest is not None:
                await self._encode_rest(rest, slot, reply.lsn, header, request)

    async def _encode_rest(
        self, rest: Work[bytearray], slot: Slot, lsn: Lsn, header: RequestHeader, request: Any
    ) -> None:
        """Encode the rest of a long response in steps, and send it."""
        if header.api_key in A_FEW_AT_A_TIME:
            await self._node.answer_memory.place()
        try:
            data: bytes | bytearray = await self._node.slices.run(rest)
        except Exception:
            data = self._error_instead(request, header)
        try:
            self._put(data, slot, lsn)
        except Exception:
            self._broken()

    def _error_instead(self, request: Any, header: RequestHeader) -> bytes:
        """An error response, where a response could not be encoded; empty where the connection ends."""
        instead = reply_to_failed(request, header, self.peer.host, self._node.storage.failure)
        if instead is CLOSE:
            self.close()
            return b""
        return encode_response(instead.response, header.api_version, header.correlation_id)

    def _turn_over(self, task: asyncio.Task[None]) -> None:
        if self._in_turn is task:  # else what it decoded has the turn now
            self._in_turn = None
            self._release_request()
            self._throttle()

    def _answer(
        self, reply: Reply, slot: Slot | None, header: RequestHeader, request: Any, context: RequestContext
    ) -> Work[bytearray] | None:
        """Put a response into its place, and send what is ready; of a long one, what is left to encode before that."""
        if reply is CLOSE:
            self.close()
            return None
        response, lsn = reply
        try:
            if response is not None:
                refusals.report(request, response, context)
            data = b"" if reply is NO_ANSWER else begin_response(response, header.api_version, header.correlation_id)
        except Exception:
            data = self._error_instead(request, header)
        if not isinstance(data, bytes):
            return data
        self._put(data, slot, lsn)
        return None

    def _put(self, data: bytes | bytearray, slot: Slot | None, lsn: Lsn) -> None:
        durability = self._node.storage.durability
        if self._transport is None or self._out.put(data, slot, lsn, durability.lsn):
            return
        durability.when(lsn, self._ready)
        self._throttle()

    def _unsupported(self, header: RequestHeader) -> None:
        """ApiVersions of the future gets the answer that every client can read; anything else ends the connection."""
        if header.api_key != API_VERSIONS:
            self._refuse(f"api {header.api_key} version {header.api_version} is not served here")
            return
        answer = unsupported_version(SERVED[API_VERSIONS].first, SERVED[API_VERSIONS].last)
        self._answer(independent(answer), None, header._replace(api_version=0), None, self._context)

    # Responses

    def _ready(self) -> None:
        """Send what has become ready at the front of the order, if anything has."""
        self._active = True
        self._out.take_ready(self._node.storage.durability.lsn)
        if self._stopped and not self._out.slots and not self._memory.is_waiting:
            self._stopped = False
        if not self._handling:
            self._out.send(self._transport)
        if not self._reading:
            self._throttle()

    @property
    def _may_go_on(self) -> bool:
        return (
            self._out.is_writable
            and not self._stopped
            and not self._in_line
            and self._in_turn is None
            and self._out.held < MOST_HELD
            and len(self._out.slots) < MOST_WAITING
        )

    def _throttle(self) -> None:
        """Read on only while the client takes its responses."""
        may_read = self._may_go_on
        if may_read != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = may_read
            if may_read:
                self._transport.resume_reading()
                if not self._handling:
                    self._go_on()
            else:
                self._transport.pause_reading()
