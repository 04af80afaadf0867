"""Settings as DescribeConfigs tells them: of which type they are, and where a value comes from, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

import pytest

from fencepost.broker.metadata.configuration import (
    DEFAULT_SOURCE,
    STATIC_BROKER_SOURCE,
    TOPIC_SOURCE,
    Entry,
    described_broker,
    described_topic,
)
from fencepost.broker.metadata.settings import Settings

#: ConfigDef.Type of Apache Kafka, by its number on the wire -> settings of topics
TOPICS: Final = {
    1: "preallocate unclean.leader.election.enable",
    2: "compression.type message.timestamp.type",
    3: "compression.gzip.level compression.lz4.level compression.zstd.level index.interval.bytes max.message.bytes "
    "min.insync.replicas segment.bytes segment.index.bytes",
    5: "delete.retention.ms file.delete.delay.ms flush.messages flush.ms max.compaction.lag.ms "
    "message.timestamp.after.max.ms message.timestamp.before.max.ms min.compaction.lag.ms retention.bytes retention.ms "
    "segment.jitter.ms segment.ms",
    6: "min.cleanable.dirty.ratio",
    7: "cleanup.policy follower.replication.throttled.replicas leader.replication.throttled.replicas",
}
#: The same -> some settings of brokers.
BROKERS: Final = {
    1: "auto.create.topics.enable delete.topic.enable transaction.two.phase.commit.enable",
    2: "compression.type log.message.timestamp.type",
    3: "fetch.max.bytes log.segment.bytes max.connections message.max.bytes node.id num.partitions request.timeout.ms "
    "socket.request.max.bytes transaction.max.timeout.ms transactional.id.expiration.ms",
    5: "connections.max.idle.ms log.cleaner.dedupe.buffer.size log.retention.bytes log.retention.ms log.roll.ms "
    "queued.max.request.bytes",
    6: "log.cleaner.io.max.bytes.per.second log.cleaner.min.cleanable.ratio",
    7: "log.cleanup.policy",
}


def by_type(entries: list[Entry]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for entry in entries:
        found.setdefault(entry.kind, set()).add(entry.name)
    return found


def test_each_setting_is_told_with_its_type() -> None:
    assert by_type(described_topic({}, Settings({}))) == {kind: set(names.split()) for kind, names in TOPICS.items()}
    of_broker = by_type(described_broker(Settings({})))
    for kind, names in BROKERS.items():
        assert set(names.split()) <= of_broker[kind]


@pytest.mark.parametrize(
    ("name", "of_broker", "default"),
    [
        ("retention.ms", "log.retention.ms", None),
        ("segment.ms", "log.roll.ms", None),
        ("segment.bytes", "log.segment.bytes", "1073741824"),
        ("max.message.bytes", "message.max.bytes", "1048588"),
    ],
)
def test_a_value_comes_from_the_topic_then_from_the_broker_then_from_a_default_of_the_same_unit(
    name: str, of_broker: str, default: str | None
) -> None:
    ends = [] if default is None else [(of_broker, default, DEFAULT_SOURCE)]
    for given, set_ in (({name: "+1100000"}, {of_broker: "1200000"}), ({}, {of_broker: "1200000"}), ({}, {})):
        entry = next(each for each in described_topic(given, Settings(dict(set_))) if each.name == name)
        synonyms = [(name, "+1100000", TOPIC_SOURCE)] * bool(given)
        synonyms += [(of_broker, "1200000", STATIC_BROKER_SOURCE)] * bool(set_)
        assert list(entry.synonyms) == synonyms + ends
        assert entry.source == (TOPIC_SOURCE if given else STATIC_BROKER_SOURCE if set_ else DEFAULT_SOURCE)
        assert (entry.value == "1100000") is bool(given), "as it is understood, and not as it was written"
        assert not entry.read_only


def test_what_a_broker_was_started_with_is_told_before_its_default_and_cannot_be_changed() -> None:
    given = {entry.name: entry for entry in described_broker(Settings({"num.partitions": "5"}))}
    entry = given["num.partitions"]
    assert (entry.value, entry.source, entry.read_only) == ("5", STATIC_BROKER_SOURCE, True)
    assert [synonym.value for synonym in entry.synonyms] == ["5", "1"]
    other = given["max.connections"]
    assert (other.source, len(other.synonyms), other.synonyms[0].source) == (DEFAULT_SOURCE, 1, DEFAULT_SOURCE)
