"""The topics of the cluster: their ids, partition counts and settings, durable in the metadata store."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TypeAlias

from fencepost.broker.compaction import journal_settings
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.metadata.together import TOGETHER, by_halves, changed, or_raised
from fencepost.broker.metadata.topic import (
    DELETED,
    PREFIX,
    NewTopic,
    Topic,
    deleted_topic,
    deletion,
    described_topic,
    stored_topic,
)
from fencepost.broker.metadata.topic_rules import (
    INTERNAL,
    INTERNAL_SETTINGS,
    TopicRefused,
    check_growth,
    check_name,
    check_new_count,
    checked,
    nothing_left,
    taken,
    unforgotten,
    usable,
)
from fencepost.log.disk import DiskFull, NothingLeft
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.log.settings import LogSettings
from fencepost.log.storage import Storage
from fencepost.node_log import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import FIRST_LEADER_EPOCH, TRANSACTION_STATE, LeaderEpoch
from fencepost.runtime import Slices, Work, at_once

logger = get_logger(__name__)

Forget: TypeAlias = Callable[[Collection[str]], Work[bool]]
"""Has others forget deleted topics of these names; whether that could be written down.  May be called again."""


class Topics:
    """All topics, in memory and in the store.

    The store decides: a topic is made, grown or deleted when it is written there, and what is missing of its partitions
    is made by the next start.  Making and removing them may take long, so it is done in slices; a topic is shown when
    all of it is there, and nobody finds it any more before the first file of it goes.
    """

    def __init__(
        self,
        store: MetadataStore,
        storage: Storage,
        settings: Settings,
        chance: random.Random,
        leader_epoch: LeaderEpoch = FIRST_LEADER_EPOCH,
    ) -> None:
        self._store = store
        self._leader_epoch = leader_epoch
        self._storage = storage
        self._settings = settings
        self._random = chance
        self._removing: dict[asyncio.Task[None], None] = {}
        """What `remove` does for nobody who waits."""
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}
        self._coming: dict[str, asyncio.Future[None]] = {}
        """Names of topics that are being made, and the end of that."""
        self._going: dict[str, asyncio.Future[None]] = {}
        """Names of deleted topics of which something is left, and the end of that."""
        self._unforgotten: dict[str, Forget] = {}
        """Names of deleted topics that others could not forget yet (a full disk): they do before the next is made."""
        self._buried: dict[str, tuple[bytes | None, int]] = {}
        """Changes that are written with the next one: deleted topics that need not be known any more."""

    def load(self) -> None:
        """Open every topic that the store knows.  Raises MetadataDamaged, before anything is opened."""
        self._storage.deleted = dict(deleted_topic(*item) for item in self._store.list(DELETED).items())
        for topic in [stored_topic(*item) for item in self._store.list(PREFIX).items()]:
            topic.settings = usable(topic.name, topic.settings)
            at_once(self._make(topic))
        # Where there is a topic of that name again, nothing was left of the deleted one before that was made.
        for name, _ in self._storage.deleted.values():
            if name not in self.by_name:
                self._going[name] = _future()

    @property
    def half_deleted(self) -> list[str]:
        """Names of topics whose deletion may not have been finished when the node ended; asked at the start."""
        return list(self._going)

    def deletions_finished(self, names: Sequence[str], forget: Forget | None = None) -> None:
        """Note that these deleted topics are gone, with the store's next write; or how groups can yet `forget` them."""
        if forget is None:
            self._buried |= {f"{DELETED}{topic_id}": (None, 1) for topic_id in self._storage.deleted}
        else:
            self._unforgotten |= dict.fromkeys(names, forget)
        for name in names:
            self._going.pop(name).set_result(None)

    def _make(self, topic: Topic) -> Work[None]:
        """Make, or open, the partitions that a topic has not got yet, and show them.  Raises NothingLeft."""
        log_settings = self._log_settings(topic.name, topic.settings)
        topic.coming = []
        for index in range(len(topic.partitions), topic.count):
            topic.coming.append(
                self._storage.create_partition(
                    topic.name, topic.topic_id, index, log_settings, self._leader_epoch, shown=False
                )
            )
            yield
        self._set(topic, topic.coming)  # they may have changed meanwhile
        self._storage.show(topic.coming)
        topic.partitions += topic.coming
        topic.coming = []
        self.by_name[topic.name] = self.by_id[topic.topic_id] = topic

    def _log_settings(self, name: str, given: Mapping[str, str]) -> LogSettings:
        found = self._settings.log_settings(given)
        return journal_settings(found, given) if name in INTERNAL else found

    def check_new(self, name: str, count: int, settings: Mapping[str, str]) -> None:
        """Raises TopicRefused if such a topic cannot be made."""
        self.check_name(name)
        checked(settings)
        check_new_count(name, count)

    def check_name(self, name: str) -> None:
        """Raises TopicRefused if a new topic cannot be called that."""
        check_name(name, (self.by_name, self._coming))

    def new_id(self) -> uuid.UUID:
        """An id that no topic has."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    async def create(self, name: str, count: int, settings: Mapping[str, str], slices: Slices) -> Topic:
        """Make a topic, durably.  Raises TopicRefused."""
        return or_raised((await self.create_together([NewTopic(name, count, settings)], slices))[name])

    async def create_together(self, wanted: Sequence[NewTopic], slices: Slices) -> dict[str, Topic | TopicRefused]:
        """Make topics of different names, durably, with one write: `TOGETHER` at most; what became of each.

        Those of which something is left come after the others, which do not wait for that, with a write of their own.
        """
        found: dict[str, Topic | TopicRefused] = {}
        coming: dict[str, asyncio.Future[None]] = {}
        now, later = list[NewTopic](), list[NewTopic]()
        try:
            for new in wanted:
                try:
                    self.check_new(*new)
                    self._coming[new.name] = coming[new.name] = _future()
                    (later if self._is_left(new.name) else now).append(new)
                except TopicRefused as refused:
                    found[new.name] = refused
                await slices.pause()
            found |= await slices.run(self._creations(now))
            for new in later:
                if not await self._nothing_left(new.name, slices):
                    found[new.name] = unforgotten(new.name)
            found |= await slices.run(self._creations([new for new in later if new.name not in found]))
            if self._storage.flush_to_os:
                # Of an earlier topic of its name the commit log may know what is removed; no record waits for it here.
                await self._storage.durability.wait(self._storage.last_appended)
            return found
        finally:
            for name, future in coming.items():
                if self._coming.get(name) is future:
                    self._let_go(name)

    def _let_go(self, name: str) -> None:
        self._coming.pop(name).set_result(None)

    def _is_left(self, name: str) -> bool:
        return name in self._going or name in self._unforgotten

    async def _nothing_left(self, name: str, slices: Slices) -> bool:
        """Wait until nothing is left of a deleted topic of this name; false if something stays."""
        if name in self._going:
            await asyncio.shield(self._going[name])
        if name in self._unforgotten:
            if not await slices.run(self._unforgotten[name]([name])):
                return False
            await self._storage.durability.wait(self._storage.lsn)
            del self._unforgotten[name]
        return True

    async def made(self, name: str) -> None:
        """Wait while somebody makes a topic of this name."""
        if name in self._coming:
            await asyncio.shield(self._coming[name])

    def create_at_once(self, name: str, count: int, settings: Mapping[str, str] | None = None) -> Topic:
        """Make a topic in one step, which must be small and not deleted just now.  Raises TopicRefused."""
        self.check_new(name, count, settings or {})
        assert not self._is_left(name), "what is left of a deleted topic goes before the next of its name comes"
        return at_once(self._creation(NewTopic(name, count, settings or {})))

    def _check_places(self, name: str, indexes: Iterable[int]) -> Work[None]:
        """Raises TopicRefused where somebody else's files are: no partition may take them for its own."""
        for index in indexes:
            found = self._storage.in_the_way(name, index)
            if found is not None:
                raise taken(found)
            yield

    def _check_room(self, name: str, count: int) -> None:
        """Raises TopicRefused, before anything is written, if there is no space for so many partitions."""
        if not self._storage.space.has_room_for(count):
            raise nothing_left(name, DiskFull())

    def _creation(self, new: NewTopic) -> Work[Topic]:
        return or_raised((yield from self._creations([new]))[new.name])

    def _creations(self, wanted: Sequence[NewTopic]) -> Work[dict[str, Topic | TopicRefused]]:
        found: dict[str, Topic | TopicRefused] = {}
        topics, partitions = [], 0
        for name, count, settings in wanted:
            try:
                yield from self._check_places(name, range(count))
                self._check_room(name, partitions + count)
                topics.append(Topic(name, self.new_id(), [], count, dict(settings), 1))
                partitions += count
            except TopicRefused as refused:
                found[name] = refused
        found |= yield from by_halves(topics, self._save_new)
        for topic in topics:
            if topic.name not in found:
                found[topic.name] = yield from self._made(topic)
                if topic.name in self._coming and not topic.is_internal:  # who takes that over lets it go
                    self._let_go(topic.name)
        return found

    def _save_new(self, topics: Sequence[Topic]) -> None:
        """Write new topics to the store.  Raises TopicRefused where it has one of these names, or no room."""
        described = {each.name: (described_topic(each.topic_id, each.count, each.settings), 0) for each in topics}
        if not self._save(described):
            raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topics[0].name}' already exists.")

    def _made(self, topic: Topic) -> Work[Topic | TopicRefused]:
        """A topic with its partitions made; or, for lack of room, its refusal: then the topic is taken back."""
        try:
            yield from self._make(topic)
        except NothingLeft as full:
            self._buried = deletion(topic) | self._buried  # with the next change, if not now
            with suppress(NothingLeft):
                self._write({})
            self._remove_coming(topic)
            return nothing_left(topic.name, full)
        return topic

    def _remove_coming(self, topic: Topic) -> None:
        for partition in topic.coming:
            self._storage.delete_partition(partition)
        self._storage.deleted_durably()
        topic.coming = []

    async def ensure_internal(self, name: str, slices: Slices, take_over: Callable[[], Work[None]]) -> None:
        """Make an internal topic if it is not there yet, durably.  Raises TopicRefused.

        `take_over` is begun in the step in which the topic is shown, and done when this returns.  Not to be cancelled.
        """
        await self.made(name)
        if name in self.by_name:
            return
        new = NewTopic(name, self.internal_count(name), INTERNAL_SETTINGS[name])
        self.check_new(*new)

        def work() -> Work[None]:
            yield from self._creation(new)
            yield from take_over()

        self._coming[name] = _future()
        try:
            await slices.run(work())
        finally:
            self._let_go(name)

    def internal_count(self, name: str) -> int:
        """The number of partitions that an internal topic has, or is to get by the settings if it is not there yet."""
        known = self.by_name.get(name)
        if known is not None:
            return len(known.partitions)
        of_transactions = name == TRANSACTION_STATE
        return self._settings.number(
            "transaction.state.log.num.partitions" if of_transactions else "offsets.topic.num.partitions"
        )

    async def add_partitions(self, topic: Topic, count: int, slices: Slices) -> None:
        """Grow a topic to `count` partitions, durably.  Raises TopicRefused."""
        async with topic.growth:
            check_growth(topic.name, topic.count, count)
            await slices.run(self._growth(topic, count))

    def _growth(self, topic: Topic, count: int) -> Work[None]:
        have = topic.count
        yield from self._check_places(topic.name, range(have, count))
        self._check_room(topic.name, count - have)
        self._check_there(topic)
        self._replace(topic, count, topic.settings)
        try:
            for _ in self._make(topic):
                yield
                self._check_there(topic)
        except NothingLeft as full:
            self._remove_coming(topic)
            topic.count = have  # even if that cannot be written: it may be grown again
            self._replace(topic, have, topic.settings)
            raise nothing_left(topic.name, full) from full

    def _check_there(self, topic: Topic) -> None:
        if self.by_name.get(topic.name) is not topic:
            raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} was deleted meanwhile")

    def change_together(self, changes: Mapping[Topic, Mapping[str, str]]) -> Work[dict[str, TopicRefused]]:
        """Replace settings of topics, durably, with one write: `TOGETHER` at most; those that were refused, by name."""
        return changed(changes, self._save, lambda topic: self._set(topic, topic.partitions))

    def _set(self, topic: Topic, partitions: Iterable[Partition | OfflinePartition]) -> None:
        log_settings = self._log_settings(topic.name, topic.settings)
        for partition in partitions:
            partition.settings = log_settings

    def withdraw_together(self, topics: Sequence[Topic]) -> Work[dict[str, TopicRefused]]:
        """As `withdraw`, in its first step: `TOGETHER` at most; those that were refused, by name."""
        return by_halves(topics, lambda some: self.withdraw(*some))

    def withdraw(self, *topics: Topic) -> None:
        """Delete topics, durably: nobody finds them any more; the rest is for `remove`.  Raises TopicRefused."""
        name = topics[0].name
        there = all(self.by_name.get(each.name) is each for each in topics)  # others may have been served meanwhile
        try:
            written = there and self._write(dict(chain.from_iterable(deletion(topic).items() for topic in topics)))
        except NothingLeft as full:
            raise nothing_left(name, full) from full
        if not written:
            raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was changed meanwhile")
        for topic in topics:
            del self.by_name[topic.name], self.by_id[topic.topic_id]
            self._storage.hide(topic.partitions)
            self._going[topic.name] = _future()

    async def remove(self, topics: Sequence[Topic], forget: Forget, slices: Slices) -> None:
        """Remove the partitions of topics that were withdrawn, then have others forget them.

        Topics of their names can be made only when all of this is durable: a power loss would leave them what is the
        old ones'.
        """
        renamed, forgotten = await slices.run(self._removal(topics, forget))
        await self._storage.durability.wait(self._storage.lsn)
        for topic in topics:
            if not forgotten:
                self._unforgotten[topic.name] = forget
            elif topic in renamed:
                self._buried[f"{DELETED}{topic.topic_id}"] = (None, 1)
            self._going.pop(topic.name).set_result(None)

    def remove_later(self, removing: Coroutine[None, None, None]) -> None:
        """Have `remove` go on while nobody waits for it."""
        task = asyncio.ensure_future(removing)
        self._removing[task] = None
        task.add_done_callback(self._removing.pop)

    def _removal(self, topics: Sequence[Topic], forget: Forget) -> Work[tuple[set[Topic], bool]]:
        """Remove their partitions; the topics of which nothing is left under its own name, and if all are forgotten."""
        renamed = set()
        for topic in topics:
            whole = True
            for partition in topic.partitions + topic.coming:
                whole &= self._storage.delete_partition(partition)
                yield
            if whole:
                renamed.add(topic)
        self._storage.deleted_durably()
        return renamed, (yield from forget([topic.name for topic in topics]))

    def _write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        buried = dict(islice(self._buried.items(), TOGETHER))
        written = self._store.write({**buried, **changes})
        if written:
            self._buried = dict(islice(self._buried.items(), len(buried), None))
        return written

    def _replace(self, topic: Topic, count: int, settings: Mapping[str, str]) -> None:
        if not self._save({topic.name: (described_topic(topic.topic_id, count, settings), topic.version)}):
            raise TopicRefused(ErrorCode.CONCURRENT_TRANSACTIONS, f"topic {topic.name!r} was changed meanwhile")
        topic.version += 1
        topic.count = count

    def _save(self, described: Mapping[str, tuple[bytes, int]]) -> bool:
        """Write topics to the store, by name; False if others changed one meanwhile.  Raises TopicRefused."""
        changes = {PREFIX + name: change for name, change in described.items()}
        try:
            while not changes.keys().isdisjoint(self._buried):  # it could not be made, nor that be written
                if not self._write({}):
                    break
            return self._write(changes)
        except NothingLeft as full:
            raise nothing_left(next(iter(described)), full) from full


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()
