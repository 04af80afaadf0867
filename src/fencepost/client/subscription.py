"""The topics that a consumer reads: their partitions and ids, asked for again when they are old."""

from __future__ import annotations

import asyncio
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fencepost.client.cluster import Cluster, TopicView
from fencepost.client.errors import ConnectionLostError, MisuseError, UnreachableError
from fencepost.client.settings import check_topics
from fencepost.client.topic_lookups import those_there
from fencepost.protocol.types import TopicPartition


class SubscriptionPattern(NamedTuple):
    """A regular expression in the syntax of RE2/J, which the coordinator holds names of topics against (KIP-848)."""

    pattern: str


class Subscription:
    """Topics by name, or by a pattern that whole names fit.  Their metadata is refreshed after `max_age` seconds."""

    def __init__(self, cluster: Cluster, topics: Iterable[str], max_age: float) -> None:
        self.topics = list(topics)
        self._pattern: re.Pattern[str] | None = None
        self.regex: str | None = None
        """The pattern for the coordinator (RE2/J), whose assignment says which names fit; None: there is none."""
        self._cluster = cluster
        self._max_age = max_age
        self._since = -math.inf
        self._seen: frozenset[str] | None = None
        """The names of topics that the pattern was matched with last."""

    @property
    def is_chosen(self) -> bool:
        """Whether there are topics to read, or a pattern for them."""
        return bool(self.topics) or self._pattern is not None or self.regex is not None

    @property
    def _is_by_name(self) -> bool:
        return self._pattern is None and self.regex is None

    def choose(self, topics: Iterable[str], pattern: re.Pattern[str] | SubscriptionPattern | None) -> None:
        """Read these topics from now on, or those whose names fit."""
        self.topics, self._pattern, self.regex, self._seen = list(topics), None, None, None
        if isinstance(pattern, SubscriptionPattern):
            self.regex = pattern.pattern
        else:
            self._pattern = pattern
        self.has_changed()

    def may_have(self, topic: str) -> bool:
        """Whether this topic is to be read, or the coordinator decides about it."""
        return self.regex is not None or topic in self.topics

    def has_changed(self) -> bool:
        """Whether other topics fit the pattern than before; `topics` has them then."""
        if self._pattern is None or self._cluster.names is self._seen or self._cluster.names is None:
            return False
        self._seen = self._cluster.names
        before, self.topics = self.topics, sorted(filter(self._pattern.fullmatch, self._cluster.names))
        return self.topics != before

    async def look(self) -> None:
        """Find out which topics fit the pattern, if that was never done.

        Raises MisuseError if there are neither topics nor a pattern, BrokerError, TimedOutError.
        """
        if not self.is_chosen:
            raise MisuseError("there is nothing to read: give the consumer topics, or assign() partitions")
        deadline = self._cluster.deadline("looking up the topics that there are")
        while self._pattern is not None and self._cluster.names is None:
            try:
                await deadline.within(self._cluster.refresh(None))
            except (ConnectionLostError, UnreachableError) as error:
                await deadline.pause(error)
        self.has_changed()

    async def partitions(self) -> list[TopicPartition]:
        """All partitions of the topics that are read and are there.  Raises BrokerError, TimedOutError."""
        deadline = self._cluster.deadline("looking up topics")
        found = await those_there(self._cluster, self.topics, deadline, create=self._is_by_name)
        return [TopicPartition(name, number) for name, view in found.items() for number in view.leaders]

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, uuid.UUID]:
        """The ids of these topics, as they are now, without those that are not there.

        Raises BrokerError, TimedOutError.
        """
        names, deadline = list(topics), self._cluster.deadline("looking up topics")
        # One that fitted a pattern and was deleted is not made anew by that.
        found = await those_there(self._cluster, names, deadline, create=self._is_by_name, anew=True)
        self._since = asyncio.get_running_loop().time()
        return {name: view.topic_id for name, view in found.items()}

    def is_led(self, at: TopicPartition) -> bool:
        """Whether a partition has a leader, as far as is known."""
        return self._cluster.is_led(at)

    def views(
        self, topics: Sequence[str], missed: Sequence[str], refresh: Callable[[Sequence[str] | None], None]
    ) -> Mapping[str, TopicView]:
        """The known metadata of these topics; if it is old `refresh` is called, which brings the new one later.

        `missed`: those of them that are asked for until they are there.
        """
        missing = [name for name in missed if name not in self._cluster.topics]
        if missing and self._is_by_name:
            refresh(missing)
        now = asyncio.get_running_loop().time()
        if (topics or self._pattern) and now - self._since >= self._max_age:
            self._since = now
            refresh(topics if self._pattern is None else None)
        return {name: self._cluster.topics[name] for name in topics if name in self._cluster.topics}


def chosen(
    topics: Sequence[object], pattern: str | re.Pattern[str] | SubscriptionPattern | None
) -> re.Pattern[str] | SubscriptionPattern | None:
    """`pattern`, compiled; None: topics are read by name.

    Raises MisuseError if both are given, TypeError for what is no pattern, ValueError for no regular expression.
    """
    check_topics(topics)
    if pattern is None:
        return None
    if topics:
        raise MisuseError("subscribe() takes topics or a pattern, not both: leave one of them out")
    if isinstance(pattern, SubscriptionPattern):
        return pattern
    try:
        if isinstance(pattern if isinstance(pattern, str) else pattern.pattern, str):
            return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern={pattern!r}: it is no regular expression: {error}") from None
    except AttributeError:
        pass
    raise TypeError(f"pattern={pattern!r}: it must be a str, or a compiled pattern of one")
