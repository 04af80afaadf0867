"""Options of the source, with the names that Spark's own Kafka source gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.client.security import Security
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.bad_option import BadOption as BadOption
from fencepost.spark.positions import Positions
from fencepost.spark.security import KNOWN as SECURITY
from fencepost.spark.security import REFUSED, parse_security

EARLIEST: Final = -2
LATEST: Final = -1
_BY_NAME: Final = {"earliest": EARLIEST, "latest": LATEST}
#: option -> what it does, for the page docs/reference/spark_options.md
KNOWN: Final = {
    "kafka.bootstrap.servers": "`host:port`, or several with commas between. Must be given.",
    "kafka.isolation.level": "`read_committed` (default) or `read_uncommitted`.",
    "kafka.group.id": (
        "A group under which a stream commits its position after each micro-batch, for those who ask how far it is: "
        "where that fails, it is logged, and nothing else."
    ),
    "subscribe": "Topics, with commas between. One of subscribe, subscribePattern and assign must be given.",
    "subscribePattern": (
        "A regular expression that the whole name of a topic matches. Internal topics and `fencepost.progress` are "
        "left out."
    ),
    "assign": 'Partitions, as `{"topic": [0, 1]}`.',
    "startingOffsets": (
        'Where to begin: `earliest`, `latest`, or `{"topic": {"0": 23}}` with -2 for the first offset '
        "and -1 for the end, of every partition. Default: `latest` in a stream, `earliest` in a batch."
    ),
    "endingOffsets": "Where a batch ends, in the same way. Default: `latest`. A stream has none.",
    "startingTimestamp": "Instead of startingOffsets: milliseconds since 1970.",
    "endingTimestamp": "Instead of endingOffsets: milliseconds since 1970. A stream has none.",
    "maxOffsetsPerTrigger": (
        "The most offsets of one micro-batch, shared out in proportion to what waits. Default: no limit."
    ),
    "minPartitions": "The least number of parts that a read is cut into, where there is enough to read. Default: 1.",
    "includeHeaders": "Whether there is a column `headers`. Default: `false`.",
    "failOnDataLoss": "Whether a query fails when records that it still needed are gone. Default: `true`.",
    "applicationId": "Pins where a stream began: a query that starts anew under this id begins there again.",
}


Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Bound:
    """Where to begin or end: everywhere the same, or by partition."""

    otherwise: int
    """Of partitions that are not named."""
    by_partition: Offsets = field(default_factory=dict)
    timestamp: int | None = None
    """Milliseconds since 1970, instead of the others."""
    resumed: Positions | None = None
    """Where a committed micro-batch ended: a partition that it does not name came later."""
    option: str = ""

    def check(self, partitions: Sequence[TopicPartition]) -> None:
        """Raises BadOption unless these are the partitions that are named, if any are."""
        if not self.by_partition or self.resumed is not None:
            return
        for at in sorted({*partitions, *self.by_partition}):
            name = f"{at.topic}-{at.partition}"
            if at not in self.by_partition:
                raise BadOption(
                    f"{self.option} does not name {name}: name every partition, with -2 for its first offset and -1 "
                    "for its end"
                )
            if at not in partitions:
                raise BadOption(f"{self.option} names {name}, which is not read")
            if self.by_partition[at] < EARLIEST:
                raise BadOption(f"{self.option} has {name} at {self.by_partition[at]}: it must be -2 or more")


@dataclass(frozen=True)
class SourceOptions:
    """What to read."""

    bootstrap_servers: str
    topics: Sequence[str]
    pattern: str | None
    partitions: Sequence[TopicPartition] | None
    start: Bound
    end: Bound
    isolation: Isolation
    max_offsets_per_trigger: int | None
    min_partitions: int
    include_headers: bool
    fail_on_data_loss: bool
    application_id: str | None
    group_id: str | None
    security: Security


def parse(options: Mapping[str, str], streaming: bool) -> SourceOptions:
    """Raises BadOption."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)

    def get(name: str) -> str | None:
        return given.get(name.lower())

    servers = get("kafka.bootstrap.servers")
    if not servers:
        raise BadOption('give .option("kafka.bootstrap.servers", "host:port")')
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if get(name)]
    if len(chosen) != 1:
        raise BadOption(f"give exactly one of subscribe, subscribePattern and assign (there are: {chosen or 'none'})")
    pattern = get("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern={pattern}: no regular expression: {error}") from None
    isolation = get("kafka.isolation.level") or "read_committed"
    if isolation not in ("read_committed", "read_uncommitted"):
        raise BadOption(f"kafka.isolation.level={isolation}: it must be read_committed or read_uncommitted")
    for name in ("endingOffsets", "endingTimestamp") if streaming else ():
        if get(name) is not None:
            raise BadOption(f"{name} is for a batch: a stream ends where its query is stopped")
    assigned = get("assign")
    most = get("maxOffsetsPerTrigger")
    return SourceOptions(
        bootstrap_servers=servers,
        topics=[name.strip() for name in (get("subscribe") or "").split(",") if name.strip()],
        pattern=pattern,
        partitions=None if assigned is None else sorted(parse_partitions("assign", assigned)),
        start=_bound("startingOffsets", get, "latest" if streaming else "earliest", "startingTimestamp"),
        end=_bound("endingOffsets", get, "latest", "endingTimestamp"),
        isolation=Isolation.READ_COMMITTED if isolation == "read_committed" else Isolation.READ_UNCOMMITTED,
        max_offsets_per_trigger=None if most is None else _number("maxOffsetsPerTrigger", most, 1),
        min_partitions=_number("minPartitions", get("minPartitions") or "1", 1),
        include_headers=_flag("includeHeaders", get("includeHeaders") or "false"),
        fail_on_data_loss=_flag("failOnDataLoss", get("failOnDataLoss") or "true"),
        application_id=get("applicationId"),
        group_id=get("kafka.group.id"),
        security=parse_security(given),
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*KNOWN, *SECURITY, *REFUSED)} | {"path"}
    for name in given:
        if name not in known:
            raise BadOption(f"option {name} is not known; there are {', '.join((*KNOWN, *SECURITY))}")


def _bound(name: str, get: object, default: str, timestamp_name: str) -> Bound:
    assert callable(get)
    stamp = get(timestamp_name)
    text = get(name) or default
    otherwise = _BY_NAME["latest" if name == "endingOffsets" else "earliest"]
    if stamp is not None:
        return Bound(otherwise, timestamp=_number(timestamp_name, stamp), option=timestamp_name)
    if text in _BY_NAME:
        return Bound(_BY_NAME[text], option=name)
    positions = parse_positions(name, text)
    return Bound(otherwise, positions.offsets, resumed=positions if positions.cluster_id else None, option=name)


def _number(name: str, text: str, least: int = 0) -> int:
    if not text.isdigit():
        raise BadOption(f"{name}={text}: it must be a number")
    if int(text) < least:
        raise BadOption(f"{name}={text}: it must be {least} or more")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadOption(f"{name}={text}: it must be true or false")
    return text.lower() == "true"


def parse_partitions(name: str, text: str) -> list[TopicPartition]:
    """{"topic": [0, 1]}.  Raises BadOption."""
    try:
        return [TopicPartition(topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers]
    except (ValueError, TypeError, AttributeError):
        raise BadOption(f'{name}={text}: it must be JSON like {{"topic": [0, 1]}}') from None


def parse_positions(name: str, text: str) -> Positions:
    """{"topic": {"0": 23, "1": -2}}; -2 is the first offset, -1 the end.  Raises BadOption."""
    try:
        positions = Positions.decode(json.loads(text))
        if not positions.offsets:
            raise ValueError("there is none")
        return positions
    except (ValueError, TypeError, AttributeError):
        raise BadOption(f'{name}={text}: it must be earliest, latest, or JSON like {{"topic": {{"0": 23}}}}') from None
