"""What an admin is asked on a node, one thing after the other, and what it is answered: the same on every node.

Names begin with a word of the caller's, and what a node makes up itself (ids, times, sizes) is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.client import (
    Admin,
    BrokerError,
    ConfigChange,
    ErrorCode,
    FeatureDescription,
    ListedOffset,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    PartlyRefusedError,
    TopicPartition,
)

Clients = Callable[..., Any]


class Script:
    """Asks, and writes down.  `admin`, `producer`, `consumer`: make clients of the node, with options."""

    def __init__(self, word: str, admin: Admin, producer: Clients, consumer: Clients) -> None:
        self.word, self.admin, self.producer, self.consumer = word, admin, producer, consumer
        self.topic, self.group = f"{word}-t", f"{word}-g"
        self.told: list[tuple[str, Any]] = []

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def note(self, what: str, answer: Any) -> None:
        self.told.append((what, answer))

    async def refused(self, what: str, call: Awaitable[Any]) -> None:
        """Note the codes of what is refused."""
        try:
            self.note(what, await call)
        except PartlyRefusedError as error:
            codes = {
                str(item).replace(self.word, "W"): ErrorCode(each.code).name for item, each in error.refused.items()
            }
            self.note(what, (codes, len(error.done)))
        except BrokerError as error:
            self.note(what, ErrorCode(error.code).name)

    async def all(self) -> list[tuple[str, Any]]:
        """The whole of it; what was answered, each with what it is about."""
        await self.topics()
        await self.configs()
        await self.records()
        await self.groups()
        await self.live_group()
        await self.cluster()
        await self.transactions()
        await self.the_end()
        return self.told

    async def topics(self) -> None:
        admin = self.admin
        await admin.create_topics(
            [
                NewTopic(self.topic, 2, 1, {"retention.ms": "86400000"}),
                NewTopic(f"{self.word}-u", replicas={0: [0], 1: [0], 2: [0]}),
            ]
        )
        await self.refused("again", admin.create_topics([NewTopic(self.topic, 1), NewTopic(f"{self.word}-v", 1)]))
        await self.refused("not really", admin.create_topics([NewTopic(f"{self.word}-w", 1)], validate_only=True))
        await self.refused("no name", admin.create_topics([NewTopic("a/b", 1)]))
        await self.refused("no partitions", admin.create_topic(f"{self.word}-x", partitions=0))
        await admin.create_topics([NewTopic(self.topic, 1)], exist_ok=True)
        self.note(
            "names",
            [name for name in await admin.topics() if name.startswith(self.word)]
            == [f"{self.word}-{letter}" for letter in "tuv"],
        )
        described = await admin.describe_topics([self.topic, f"{self.word}-u"])
        for topic in described.values():
            assert topic.topic_id.int and not topic.is_internal
            parts = [
                (
                    part.partition,
                    part.leader is not None,
                    len(part.replicas),
                    len(part.in_sync_replicas),
                    part.offline_replicas,
                )
                for part in topic.partitions
            ]
            self.note("described", parts)
        assert (await admin.describe_topics())[self.topic] == described[self.topic]
        await self.refused("unknown", admin.describe_topics([self.topic, f"{self.word}-none"]))
        await admin.create_partitions(self.topic, 3)
        await self.refused("fewer", admin.create_partitions(self.topic, 2))
        await self.refused("not grown", admin.create_partitions(self.topic, 9, validate_only=True))
        self.note("partitions", await admin.partitions(self.topic))
        await self.refused("grown", admin.create_partitions(f"{self.word}-none", 2))

    async def configs(self) -> None:
        admin = self.admin

        async def told(*names: str, policy: str = "delete") -> None:
            """What is said of these settings, as soon as the change that made `cleanup.policy` this one is known."""
            entries = (await admin.describe_topic_configs([self.topic]))[self.topic]
            while entries["cleanup.policy"].value != policy:
                await asyncio.sleep(0.05)
                entries = (await admin.describe_topic_configs([self.topic]))[self.topic]
            for name in names:
                found = entries[name]
                # What the node itself is started with is no matter here.
                synonyms = [each.value for each in found.synonyms if each.source == "DYNAMIC_TOPIC_CONFIG"]
                kind = (found.type, found.is_read_only, found.is_sensitive)
                self.note(name, (found.value, found.source, synonyms, kind))

        await told("retention.ms", "cleanup.policy")
        change = ConfigChange(set={"max.message.bytes": "2000000"}, append={"cleanup.policy": "compact"})
        await admin.alter_topic_config(self.topic, change, validate_only=True)
        await told("max.message.bytes")
        await admin.alter_topic_config(self.topic, change)
        await told("max.message.bytes", "cleanup.policy", "retention.ms", policy="delete,compact")
        await admin.alter_topic_config(
            self.topic, ConfigChange(delete=["max.message.bytes"], subtract={"cleanup.policy": "compact"})
        )
        await told("cleanup.policy")
        for name, change in {
            "no number": ConfigChange(set={"retention.ms": "soon"}),
            "no setting": ConfigChange(set={"no.such": "1"}),
            "no list": ConfigChange(append={"retention.ms": "1"}),
        }.items():
            await self.refused(name, admin.alter_topic_config(self.topic, change))
        await self.refused("none", admin.alter_topic_config(f"{self.word}-none", ConfigChange(delete=["retention.ms"])))
        await self.refused("not there", admin.describe_topic_configs([self.topic, f"{self.word}-none"]))
        broker = (await admin.describe_cluster()).brokers[0].broker_id
        entries = (await admin.describe_broker_configs([broker]))[broker]
        found = entries["group.min.session.timeout.ms"]
        self.note("of the broker", (found.value, found.type))

    async def records(self) -> None:
        admin, at = self.admin, self.at
        async with self.producer() as writer:
            for number in range(10):
                given = {"partition": 0, "timestamp": 1_700_000_000_000 + 1000 * (number if number != 7 else 20)}
                await (await writer.send(self.topic, b"%d" % number, **given))
        for spec in (
            OffsetSpec.EARLIEST,
            OffsetSpec.LATEST,
            OffsetSpec.MAX_TIMESTAMP,
            1_700_000_002_500,
            1_800_000_000_000,
        ):
            self.note(f"offset {spec}", list((await admin.list_offsets({at(0): spec, at(1): spec})).values()))
        self.note("deleted", list((await admin.delete_records({at(0): 4, at(1): -1})).values()))
        self.note("begins", list((await admin.list_offsets({at(0): OffsetSpec.EARLIEST})).values()))
        await self.refused("behind the end", admin.delete_records({at(0): 99, at(1): 0}))
        await self.refused("no partition", admin.delete_records({at(0): 4, at(7): 0}))
        await self.refused("no offset", admin.list_offsets({at(7): 0}))

    async def groups(self) -> None:
        admin, at, group = self.admin, self.at, self.group
        await admin.alter_group_offsets(group, {at(0): OffsetAndMetadata(5, "why"), at(1): 0})
        self.note("offsets", list((await admin.list_group_offsets(group)).values()))
        self.note("one", list((await admin.list_group_offsets(group, [at(0), at(2)], require_stable=True)).values()))
        self.note("of nobody", await admin.list_group_offsets(f"{group}-none"))
        await self.refused("no such partition", admin.alter_group_offsets(group, {at(0): 6, at(9): 1}))
        await admin.delete_group_offsets(group, [at(1)])
        self.note("left", list((await admin.list_group_offsets(group)).items()) == [(at(0), OffsetAndMetadata(6))])
        await self.refused("no group", admin.delete_group_offsets(f"{group}-none", [at(1)]))
        listed = await admin.list_groups(states=["Empty"])
        self.note("listed", (listed[group].state, listed[group].type, listed[group].protocol_type))
        self.note("stable", group in await admin.list_groups(states=["Stable"], types=["classic"]))
        found = (await admin.describe_groups([group]))[group]
        self.note("empty", (found.state, found.protocol_type, found.assignor, found.members))
        await self.refused("describe none", admin.describe_groups([group, f"{group}-none"]))

    async def live_group(self) -> None:
        admin, at, group = self.admin, self.at, self.group
        async with self.consumer(
            self.topic, group_id=group, group_instance_id="the-instance", client_id="reader", session_timeout_ms=6000
        ) as reader:
            while len(reader.assignment()) < 3:
                await reader.poll(100)
            found = (await admin.describe_groups([group]))[group]
            member = found.members[0]
            shown = [(each.topic == self.topic, each.partition) for each in member.partitions]
            self.note("live", (found.state, found.protocol_type, found.assignor, len(found.members)))
            self.note(
                "member", (member.client_id, member.group_instance_id, shown, bool(member.member_id), bool(member.host))
            )
            await self.refused("alter live", admin.alter_group_offsets(group, {at(0): 1}))
            await self.refused("delete live", admin.delete_groups([group, f"{group}-none"]))
            await self.refused("delete offsets live", admin.delete_group_offsets(group, [at(0)]))

    async def cluster(self) -> None:
        found = await self.admin.describe_cluster()
        self.note(
            "cluster", (bool(found.cluster_id), found.controller is not None, len(found.brokers), found.brokers[0].rack)
        )
        directories = await self.admin.describe_log_dirs()
        (directory,) = directories[found.brokers[0].broker_id]
        replicas = {at.partition: info for at, info in directory.replicas.items() if at.topic == self.topic}
        assert directory.path and (directory.total_bytes is None) == (directory.usable_bytes is None)
        self.note(
            "directory", (directory.error, {n: (i.size > 0, i.offset_lag, i.is_future) for n, i in replicas.items()})
        )
        features = await self.admin.describe_features()
        self.note("feature", features["transaction.version"])
        await self.refused("no level", self.admin.update_feature("transaction.version", 9))
        await self.refused("no feature", self.admin.update_feature("no.feature", 1))

    async def transactions(self) -> None:
        admin, at, name = self.admin, self.at, f"{self.word}-id"
        async with self.producer(transactional_id=name, transaction_timeout_ms=50_000) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send(self.topic, b"open", partition=2))
            described = await admin.describe_transactions([name, f"{name}-none"])
            known = described[name]
            assert known is not None and described[f"{name}-none"] is None
            self.note("open", (known.state, known.timeout_ms, known.partitions == [at(2)]))
            (state,) = (await admin.describe_producers([at(2)]))[at(2)]
            assert (state.producer_id, state.producer_epoch) == (known.producer_id, known.producer_epoch)
            self.note("producer", (state.last_sequence, state.transaction_start_offset, state.coordinator_epoch))
            for isolation in ("read_committed", "read_uncommitted"):
                (end,) = (await admin.list_offsets({at(2): OffsetSpec.LATEST}, isolation_level=isolation)).values()
                self.note(isolation, end and end.offset)
            ours = f"{self.word}.*"
            self.note("ongoing", name in await admin.list_transactions(["Ongoing"], pattern=ours))
            self.note("by id", list(await admin.list_transactions(producer_ids=[known.producer_id])) == [name])
            self.note("long", await admin.list_transactions(running_longer_than_ms=3_600_000, pattern=ours))
            self.note("hanging", await admin.find_hanging_transactions([self.topic]))
            await writer.abort_transaction()
        while (known := await admin.describe_transaction(name)) is None or known.state != "CompleteAbort":  # noqa: ASYNC110 - on a real node
            await asyncio.sleep(0.05)
        self.note("ended", known.partitions)
        await self.refused("no producers", admin.describe_producers([at(9)]))

    async def the_end(self) -> None:
        names = [f"{self.word}-{letter}" for letter in "tuv"]
        while (await self.admin.describe_groups([self.group]))[self.group].state != "Empty":
            await self.leave()
        await self.admin.delete_groups([self.group])
        await self.refused("group gone", self.admin.delete_groups([self.group]))
        await self.refused("deleted", self.admin.delete_topics([*names, f"{self.word}-none"]))
        await self.refused("gone", self.admin.delete_topics(names[:1]))

    async def leave(self) -> None:
        """A static member leaves by its time-out."""
        await asyncio.sleep(1)


_OFFSET = {"timestamp": -1, "leader_epoch": 0}
#: What an Apache Kafka 4.3.1 says, and a node of ours.
ANSWERS: list[tuple[str, Any]] = [
    ("again", ({"W-t": "TOPIC_ALREADY_EXISTS"}, 1)),
    ("not really", None),
    ("no name", "INVALID_TOPIC_EXCEPTION"),
    ("no partitions", "INVALID_PARTITIONS"),
    ("names", True),
    ("described", [(0, True, 1, 1, []), (1, True, 1, 1, [])]),
    ("described", [(0, True, 1, 1, []), (1, True, 1, 1, []), (2, True, 1, 1, [])]),
    ("unknown", ({"W-none": "UNKNOWN_TOPIC_OR_PARTITION"}, 1)),
    ("fewer", "INVALID_PARTITIONS"),
    ("not grown", None),
    ("partitions", 3),
    ("grown", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("retention.ms", ("86400000", "DYNAMIC_TOPIC_CONFIG", ["86400000"], ("LONG", False, False))),
    ("cleanup.policy", ("delete", "DEFAULT_CONFIG", [], ("LIST", False, False))),
    ("max.message.bytes", ("1048588", "DEFAULT_CONFIG", [], ("INT", False, False))),
    ("max.message.bytes", ("2000000", "DYNAMIC_TOPIC_CONFIG", ["2000000"], ("INT", False, False))),
    ("cleanup.policy", ("delete,compact", "DYNAMIC_TOPIC_CONFIG", ["delete,compact"], ("LIST", False, False))),
    ("retention.ms", ("86400000", "DYNAMIC_TOPIC_CONFIG", ["86400000"], ("LONG", False, False))),
    ("cleanup.policy", ("delete", "DYNAMIC_TOPIC_CONFIG", ["delete"], ("LIST", False, False))),
    ("no number", "INVALID_CONFIG"),
    ("no setting", "INVALID_CONFIG"),
    ("no list", "INVALID_CONFIG"),
    ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("not there", ({"W-none": "UNKNOWN_TOPIC_OR_PARTITION"}, 1)),
    ("of the broker", ("6000", "INT")),
    ("offset -2", [ListedOffset(0, **_OFFSET), ListedOffset(0, **_OFFSET)]),
    ("offset -1", [ListedOffset(10, **_OFFSET), ListedOffset(0, **_OFFSET)]),
    ("offset -3", [ListedOffset(7, 1_700_000_020_000, 0), None]),
    ("offset 1700000002500", [ListedOffset(3, 1_700_000_003_000, 0), None]),
    ("offset 1800000000000", [None, None]),
    ("deleted", [4, 0]),
    ("begins", [ListedOffset(4, **_OFFSET)]),
    ("behind the end", ({"W-t-0": "OFFSET_OUT_OF_RANGE"}, 1)),
    ("no partition", ({"W-t-7": "UNKNOWN_TOPIC_OR_PARTITION"}, 1)),
    ("no offset", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("offsets", [OffsetAndMetadata(5, "why"), OffsetAndMetadata(0)]),
    ("one", [OffsetAndMetadata(5, "why"), None]),
    ("of nobody", {}),
    ("no such partition", ({"W-t-9": "UNKNOWN_TOPIC_OR_PARTITION"}, 1)),
    ("left", True),
    ("no group", "GROUP_ID_NOT_FOUND"),
    ("listed", ("Empty", "classic", "")),
    ("stable", False),
    ("empty", ("Empty", "", "", [])),
    ("describe none", ({"W-g-none": "GROUP_ID_NOT_FOUND"}, 1)),
    ("live", ("Stable", "consumer", "range", 1)),
    ("member", ("reader", "the-instance", [(True, 0), (True, 1), (True, 2)], True, True)),
    ("alter live", "NON_EMPTY_GROUP"),
    ("delete live", ({"W-g": "NON_EMPTY_GROUP", "W-g-none": "GROUP_ID_NOT_FOUND"}, 0)),
    ("delete offsets live", "GROUP_SUBSCRIBED_TO_TOPIC"),
    ("cluster", (True, True, 1, None)),
    ("directory", (None, {0: (True, 0, False), 1: (False, 0, False), 2: (False, 0, False)})),
    ("feature", FeatureDescription(least_level=0, most_level=2, finalized_level=2)),
    ("no level", "INVALID_UPDATE_VERSION"),
    ("no feature", "INVALID_UPDATE_VERSION"),
    ("open", ("Ongoing", 50_000, True)),
    ("producer", (0, 0, -1)),
    ("read_committed", 0),
    ("read_uncommitted", 1),
    ("ongoing", True),
    ("by id", True),
    ("long", {}),
    ("hanging", []),
    ("ended", []),
    ("no producers", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("group gone", "GROUP_ID_NOT_FOUND"),
    ("deleted", ({"W-none": "UNKNOWN_TOPIC_OR_PARTITION"}, 3)),
    ("gone", "UNKNOWN_TOPIC_OR_PARTITION"),
]
