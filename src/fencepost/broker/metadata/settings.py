"""Broker and topic settings, with Apache Kafka's names, defaults and ranges.

One table says what there is; everything else (parsing, errors, DescribeConfigs) is read from it.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from fencepost.log.settings import LogSettings
from fencepost.protocol.compression import USUAL_LEVELS, Compression
from fencepost.protocol.types import Milliseconds

Value = int | bool | str | float

_INT = 2**31 - 1
_LONG = 2**63 - 1
_LARGEST = sys.float_info.max
LARGEST_COUNT: Final = 10_000
"""Partitions that a topic may have."""
_INTEGER = re.compile(r"[+-]?[0-9]+")


class BadSetting(ValueError):
    """A setting that nobody knows, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its kind (int, bool, float, str, list of str), default, and the range or choices of its values."""

    kind: type
    default: Value
    low: float = 0
    high: float = _INT
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression for each item of a list."""
    topic: str | None = None
    """Name of the topic setting that this is the default of."""

    def parse(self, name: str, text: str) -> Value:
        """The value that a text stands for.  Raises BadSetting if the setting, called `name` there, cannot have it."""
        given = text.strip()
        if self.kind is bool:
            if given.lower() not in ("true", "false"):
                raise BadSetting(f"{name}={text}: it must be true or false")
            return given.lower() == "true"
        items = [item.strip() for item in given.split(",")] if self.kind is list and given else [given]
        if self.choices and given and not set(items) <= set(self.choices):
            raise BadSetting(f"{name}={text}: it must be one of {', '.join(self.choices)}")
        if self.kind is list:
            if self.pattern and given and not all(re.fullmatch(self.pattern, item) for item in items):
                raise BadSetting(f"{name}={text}: every item must look like {self.pattern}")
            return ",".join(dict.fromkeys(items))
        return given if self.kind is str else self._number(name, given)

    def _number(self, name: str, given: str) -> int | float:
        if self.kind is int and not _INTEGER.fullmatch(given):
            raise BadSetting(f"{name}={given}: it must be a whole number")
        try:
            number: int | float = self.kind(given)
        except ValueError:
            raise BadSetting(f"{name}={given}: it must be a number") from None
        if not self.low <= number <= self.high:  # nor is "nan"
            raise BadSetting(f"{name}={given}: it must be between {self.low} and {self.high}")
        return number


def _int(default: int, low: int = 0, high: int = _INT, topic: str | None = None) -> Setting:
    return Setting(int, default, low, high, topic=topic)


def _bool(default: bool, topic: str | None = None) -> Setting:
    return Setting(bool, default, topic=topic)


_DAY: Final = 24 * 3600 * 1000
_CLEANUP = ("delete", "compact")
_TIMESTAMPS = ("CreateTime", "LogAppendTime")
_COMPRESSION: Final[Mapping[str, Compression | None]] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_GZIP_LEVELS = ("-1", *map(str, range(1, 10)))

BROKER: Final[dict[str, Setting]] = {
    "add.partitions.to.txn.retry.backoff.max.ms": _int(100),
    "add.partitions.to.txn.retry.backoff.ms": _int(20, 1),
    "auto.create.topics.enable": _bool(True),
    "compression.gzip.level": Setting(int, -1, -1, choices=_GZIP_LEVELS, topic="compression.gzip.level"),
    "compression.lz4.level": _int(9, 1, 17, topic="compression.lz4.level"),
    "compression.type": Setting(str, "producer", choices=tuple(_COMPRESSION), topic="compression.type"),
    "compression.zstd.level": _int(3, -131_072, 22, topic="compression.zstd.level"),
    "connections.max.idle.ms": _int(600_000, -_LONG, _LONG),
    "default.replication.factor": _int(1, 1, 1),
    "delete.topic.enable": _bool(True),
    "fetch.max.bytes": _int(55 * 1024 * 1024, 1024),
    "group.initial.rebalance.delay.ms": _int(3000),
    "group.max.session.timeout.ms": _int(1_800_000),
    "group.max.size": _int(_INT, 1),
    "group.min.session.timeout.ms": _int(6000),
    "log.cleaner.backoff.ms": _int(15_000, 0, _LONG),
    "log.cleaner.dedupe.buffer.size": _int(128 * 1024 * 1024, 1, _LONG),
    "log.cleaner.delete.retention.ms": _int(_DAY, 0, _LONG, "delete.retention.ms"),
    "log.cleaner.enable": _bool(True),
    "log.cleaner.io.buffer.load.factor": Setting(float, 0.9, 0, 1),
    "log.cleaner.io.max.bytes.per.second": Setting(float, _LARGEST, 1, _LARGEST),
    "log.cleaner.max.compaction.lag.ms": _int(_LONG, 1, _LONG, "max.compaction.lag.ms"),
    "log.cleaner.min.cleanable.ratio": Setting(float, 0.5, 0, 1, topic="min.cleanable.dirty.ratio"),
    "log.cleaner.min.compaction.lag.ms": _int(0, 0, _LONG, "min.compaction.lag.ms"),
    "log.cleanup.policy": Setting(list, "delete", choices=_CLEANUP, topic="cleanup.policy"),
    "log.index.interval.bytes": _int(4096, 0, topic="index.interval.bytes"),
    "log.message.timestamp.after.max.ms": _int(3_600_000, 0, _LONG, "message.timestamp.after.max.ms"),
    "log.message.timestamp.before.max.ms": _int(_LONG, 0, _LONG, "message.timestamp.before.max.ms"),
    "log.message.timestamp.type": Setting(str, "CreateTime", choices=_TIMESTAMPS, topic="message.timestamp.type"),
    "log.record.check.max.bytes": _int(1024),
    "log.record.check.max.records": _int(16),
    "log.retention.bytes": _int(-1, -_LONG, _LONG, "retention.bytes"),
    "log.retention.check.interval.ms": _int(300_000, 1, _LONG),
    "log.retention.ms": _int(7 * _DAY, -1, _LONG, "retention.ms"),
    "log.roll.ms": _int(7 * _DAY, 1, _LONG, "segment.ms"),
    "log.segment.bytes": _int(1024**3, 1024 * 1024, topic="segment.bytes"),
    "log.segment.delete.delay.ms": _int(60_000, 0, _LONG, topic="file.delete.delay.ms"),
    "max.connection.creation.rate": _int(_INT),
    "max.connections": _int(_INT),
    "max.connections.per.ip": _int(_INT),
    "max.connections.per.ip.overrides": Setting(list, "", pattern=r"[0-9a-fA-F.:]+:[0-9]{1,9}"),
    "max.incremental.fetch.session.cache.slots": _int(1000),
    "max.request.partition.size.limit": _int(2000, 1),
    "message.max.bytes": _int(1024 * 1024 + 12, 0, topic="max.message.bytes"),
    "min.incremental.fetch.session.eviction.ms": _int(120_000),
    "min.insync.replicas": _int(1, 1, topic="min.insync.replicas"),
    "node.id": _int(0),
    "num.partitions": _int(1, 1, LARGEST_COUNT),
    "offset.metadata.max.bytes": _int(4096),
    "offsets.retention.check.interval.ms": _int(600_000, 1, _LONG),
    "offsets.retention.minutes": _int(10_080, 1),
    "offsets.topic.num.partitions": _int(50, 1, LARGEST_COUNT),
    "producer.id.expiration.check.interval.ms": _int(600_000, 1),
    "producer.id.expiration.ms": _int(_DAY, 1),
    "queued.max.request.bytes": _int(-1, -_LONG, _LONG),
    "request.timeout.ms": _int(30_000, 1),
    "socket.request.max.bytes": _int(100 * 1024 * 1024, 1024),
    "transaction.abort.on.disconnect": _bool(False),
    "transaction.abort.on.disconnect.grace.ms": _int(1000),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _int(1_000, 1),
    "transaction.max.timeout.ms": _int(900_000, 1),
    "transaction.partition.verification.enable": _bool(True),
    "transaction.remove.expired.transaction.cleanup.interval.ms": _int(3_600_000, 1),
    "transaction.state.log.num.partitions": _int(50, 1, LARGEST_COUNT),
    "transaction.two.phase.commit.enable": _bool(False),
    "transactional.id.expiration.ms": _int(7 * _DAY, 1),
}

TOPIC: Final[dict[str, Setting]] = {setting.topic: setting for setting in BROKER.values() if setting.topic is not None}

#: topic setting -> broker setting that is its default
TOPIC_DEFAULTS: Final[dict[str, str]] = {
    setting.topic: name for name, setting in BROKER.items() if setting.topic is not None
}

_REPLICA = r"\*|[0-9]+:[0-9]+"

#: Topic settings that Apache Kafka has, that clients send, and that change nothing on one node with one copy, and the
#: broker's setting that each is named after in synonyms, if it has one.
INERT_TOPIC: Final[dict[str, tuple[Setting, str | None]]] = {
    "flush.messages": (_int(_LONG, 1, _LONG), "log.flush.interval.messages"),
    "flush.ms": (_int(_LONG, 0, _LONG), None),
    "follower.replication.throttled.replicas": (Setting(list, "", pattern=_REPLICA), None),
    "leader.replication.throttled.replicas": (Setting(list, "", pattern=_REPLICA), None),
    "preallocate": (_bool(False), "log.preallocate"),
    "segment.index.bytes": (_int(10 * 1024 * 1024, 4), "log.index.size.max.bytes"),
    "segment.jitter.ms": (_int(0, 0, _LONG), None),
    "unclean.leader.election.enable": (_bool(False), "unclean.leader.election.enable"),
}


#: Where Apache Kafka takes a time in other units: setting, the one in milliseconds, milliseconds of one.  Of several
#: that are given the finest counts.
IN_OTHER_UNITS: Final = (
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
)


def _in_milliseconds(given: Mapping[str, object]) -> dict[str, object]:
    """The settings with each time in milliseconds.  Raises BadSetting."""
    rest = dict(given)
    for name, finest, unit in IN_OTHER_UNITS:
        if name in rest:
            count = _int(0, -1 if finest == "log.retention.ms" else 1).parse(name, str(rest.pop(name)))
            assert isinstance(count, int)
            rest.setdefault(finest, count * unit if count >= 0 else -1)
    return rest


class Settings(Mapping[str, Value]):
    """The settings of one broker: given ones over the defaults.  Raises BadSetting."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.given: dict[str, Value] = {}
        for name, value in _in_milliseconds(given or {}).items():
            setting = BROKER.get(name)
            if setting is None:
                raise BadSetting(f"{name} is not a broker setting{_did_you_mean(name, BROKER)}")
            self.given[name] = setting.parse(name, str(value))
        overrides = str(self["max.connections.per.ip.overrides"])
        for address in [item.rpartition(":")[0] for item in overrides.split(",")] if overrides else []:
            try:
                ip_address(address)
            except ValueError:
                raise BadSetting(f"max.connections.per.ip.overrides={overrides}: {address} is no address") from None
        if self["max.connections.per.ip"] == 0 and not self["max.connections.per.ip.overrides"]:
            raise BadSetting(
                "max.connections.per.ip=0: nobody could connect; say in max.connections.per.ip.overrides who may"
            )

    def __getitem__(self, name: str) -> Value:
        return self.given.get(name, BROKER[name].default)

    def __iter__(self) -> Iterator[str]:
        return iter(BROKER)

    def __len__(self) -> int:
        return len(BROKER)

    def number(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), f"{name} is a number"
        return value

    def log_settings(self, topic: Mapping[str, str] | None = None) -> LogSettings:
        """The settings of a log: a topic's over those of the broker.  Raises BadSetting for a bad one of the topic."""

        def get(name: str) -> Any:
            if topic is not None and name in topic:
                return TOPIC[name].parse(name, topic[name])
            return self[TOPIC_DEFAULTS[name]]

        compression = _COMPRESSION[get("compression.type")]
        return LogSettings(
            segment_bytes=get("segment.bytes"),
            segment_ms=get("segment.ms"),
            retention_ms=get("retention.ms"),
            retention_bytes=get("retention.bytes"),
            index_interval_bytes=get("index.interval.bytes"),
            max_message_bytes=get("max.message.bytes"),
            compression=compression,
            compression_level=get(f"compression.{compression.name.lower()}.level")
            if compression in USUAL_LEVELS
            else None,
            message_timestamp_type=get("message.timestamp.type"),
            timestamp_before_max_ms=get("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=get("message.timestamp.after.max.ms"),
            cleanup_policy=get("cleanup.policy"),
            file_delete_delay_ms=get("file.delete.delay.ms"),
            delete_retention_ms=get("delete.retention.ms"),
            min_cleanable_dirty_ratio=get("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=get("min.compaction.lag.ms"),
            max_compaction_lag_ms=get("max.compaction.lag.ms"),
            producer_id_expiration_ms=Milliseconds(self.number("producer.id.expiration.ms")),
            check_max_records=self.number("log.record.check.max.records"),
            check_max_bytes=self.number("log.record.check.max.bytes"),
            verification_enabled=bool(self["transaction.partition.verification.enable"]),
        )


def check_topic_settings(given: Mapping[str, str | None]) -> None:
    """Raises BadSetting for the first setting of a topic that nobody knows or whose value it cannot have.

    Or for two that contradict each other, where both are given.
    """
    for name, value in given.items():
        if value is None:
            raise BadSetting(f"{name}: a topic setting has a value")
        setting = topic_setting(name)
        if setting is None:
            raise BadSetting(f"{name} is not a topic setting{_did_you_mean(name, {**TOPIC, **INERT_TOPIC})}")
        setting.parse(name, value)
    least, most = (given.get(f"{which}.compaction.lag.ms") for which in ("min", "max"))
    if least is not None and most is not None and int(least) > int(most):
        raise BadSetting(f"min.compaction.lag.ms={least}: it must not be more than max.compaction.lag.ms={most}")


def topic_setting(name: str) -> Setting | None:
    """The topic setting of that name; None if there is none."""
    if name in INERT_TOPIC:
        return INERT_TOPIC[name][0]
    return TOPIC.get(name)


def _did_you_mean(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
