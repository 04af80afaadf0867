"""The leaders of partitions and the connections to them; missing ones are looked up and made in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection
from fencepost.client.deadline import Deadline
from fencepost.client.errors import ClientError, ConnectionLostError, TimedOutError, UnreachableError
from fencepost.protocol.types import TopicPartition

#: Seconds until it is looked again after nobody answered, and after a refusal.
_PAUSE: Final = 0.02
_PAUSE_OF_THE_REFUSED: Final = 0.5


class Routes:
    """Gives the leaders and connections that are known, and begins to get those that are not.

    `again` is called with a number of seconds after which it is worth asking again, `hindered` and `refused` with a
    node or the name of a topic, and why nothing can be sent there: now, or for good.  `creates_topics`: a topic that is
    not there may be made by being asked for, where the cluster does that.
    """

    def __init__(
        self,
        cluster: Cluster,
        again: Callable[[float], None],
        hindered: Callable[[object, str], None],
        refused: Callable[[object, ClientError], None],
        creates_topics: bool = True,
    ) -> None:
        self._cluster = cluster
        self._again = again
        self._hindered = hindered
        self._refused = refused
        self._creates_topics = creates_topics
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._preparing: dict[object, None] = {}
        self._looking: dict[object, Deadline] = {}
        """The deadlines of the topics that are looked for."""

    def leader(self, at: TopicPartition) -> int | None:
        """The node that leads a partition; None: it is not known, and looked up from now on."""
        topic = self._cluster.topics.get(at.topic)
        if (leader := self.known(at)) is not None:
            return leader
        if topic is None and at.topic not in self._preparing:
            deadline = self._cluster.deadline(f"looking for the leader of {at.topic}-{at.partition}")
            self._looking[at.topic] = deadline
            self._prepare(at.topic, partial(self._cluster.topic, at.topic, deadline, self._creates_topics))
        elif topic is not None:
            self._prepare(at.topic, partial(self._cluster.look_again, at.topic))
        return None

    def why_not_led(self, at: TopicPartition) -> str:
        """Why no leader of a partition is known, for a message; empty if one is."""
        if at.topic in self._looking:
            return f"no leader was found: {self._looking[at.topic].last_met}"
        return "" if at.topic not in self._cluster.topics or self.known(at) is not None else "nobody leads it"

    def known(self, at: TopicPartition) -> int | None:
        """The node that leads a partition; None if it is not known, and nothing is looked up."""
        topic = self._cluster.topics.get(at.topic)
        leader = -1 if topic is None else topic.leaders.get(at.partition, -1)
        return leader if leader in self._cluster.nodes else None

    def connection(self, node: int) -> Connection | None:
        """The connection to a node; None: there is none, and it is made from now on."""
        connection = self._cluster.ready_connection(node)
        if connection is None:
            self._prepare(node, partial(self._cluster.connection, node))
        return connection

    def _prepare(self, what: object, work: Callable[[], Awaitable[object]]) -> None:
        """Get a connection or metadata, once at a time."""
        if what in self._preparing:
            return
        self._preparing[what] = None
        task = asyncio.get_running_loop().create_task(self._prepared(what, work))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _prepared(self, what: object, work: Callable[[], Awaitable[object]]) -> None:
        pause = 0.0
        try:
            await work()
        except (ConnectionLostError, UnreachableError, TimedOutError) as error:
            self._hindered(what, str(error))
            # The leader may have moved; ask anew whoever answers, as long as the records have time.
            self._cluster.topics.clear()
            pause = _PAUSE
        except ClientError as error:
            self._refused(what, error)
            pause = _PAUSE_OF_THE_REFUSED
        finally:
            self._preparing.pop(what, None)
            self._looking.pop(what, None)
        self._again(pause)

    def close(self) -> None:
        """Cancel all lookups and connections that are under way."""
        for task in list(self._tasks):
            task.cancel()
