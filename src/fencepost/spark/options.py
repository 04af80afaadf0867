"""Reads and checks the options of the source, by the table of them (`option_table`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.client.addresses import addresses_of
from fencepost.client.security import Security
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.admission import Offsets
from fencepost.spark.bad_option import BadOption as BadOption
from fencepost.spark.bad_option import shown
from fencepost.spark.option_table import REFUSED, SOURCE, of_other_kind, unknown
from fencepost.spark.positions import LARGEST, LARGEST_PARTITION, Positions
from fencepost.spark.security import KNOWN as SECURITY
from fencepost.spark.security import REFUSED as SECURITY_REFUSED
from fencepost.spark.security import parse_security

_BY_NAME: Final = {"earliest": EARLIEST, "latest": LATEST}
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
_DURATION: Final = re.compile(r"([0-9]{1,19})\s*(ms|s|m|min|h|d|)")
#: Unit -> milliseconds.
_UNITS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_NO_JSON: Final = (ValueError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Bound:
    """Where a source begins or ends to read: everywhere the same, or by partition."""

    otherwise: int
    """EARLIEST or LATEST: the offset in the partitions that are not named."""
    by_partition: Offsets = field(default_factory=dict)
    timestamp: int | None = None
    """A time for all partitions, in milliseconds since 1970, instead of offsets; None: there is none."""
    timestamps: Offsets = field(default_factory=dict)
    """The times by partition, in milliseconds since 1970; empty: there are none."""
    else_latest: bool = True
    """Whether a partition without a record of that time or later counts as at its end; else that is an error."""
    resumed: Positions | None = None
    """Positions at which a committed micro-batch ended; a partition that is not in them came later.  None: not so."""
    option: str = ""

    def time_of(self, at: TopicPartition) -> int:
        """The time that this bound, if it names times, has for a partition: in milliseconds since 1970."""
        return self.timestamps[at] if self.timestamp is None else self.timestamp

    def names_a_place(self, at: TopicPartition) -> bool:
        """Whether it names a time or an offset in a partition, and not only its beginning or its end."""
        return self.timestamp is not None or bool(self.timestamps) or self.by_partition.get(at, LATEST) >= 0

    def check(self, partitions: Sequence[TopicPartition]) -> None:
        """Raises BadOption if partitions are named and are not just these, or an offset or time is out of range."""
        named, least = (self.timestamps, 0) if self.timestamps else (self.by_partition, EARLIEST)
        if not named or self.resumed is not None:
            return
        how = "" if self.timestamps else ", with -2 for its first offset and -1 for its end"
        for at in sorted({*partitions, *named}):
            name = f"{at.topic}-{at.partition}"
            if at not in named:
                raise BadOption(f"{self.option} does not name {name}: name every partition{how}")
            if at not in partitions:
                raise BadOption(f"{self.option} names {name}, which is not read")
            if named[at] < least:
                raise BadOption(f"{self.option} has {name} at {named[at]}: it must be {least} or more")


def check_order(first: Bound, last: Bound, start: Offsets, end: Offsets) -> None:
    """Raises BadOption for a partition whose named start is behind its named end."""
    for at in sorted(start.keys() & end.keys()):
        if start[at] > end[at] and first.names_a_place(at) and last.names_a_place(at):
            raise BadOption(
                f"{at.topic}-{at.partition} begins at {start[at]} by {first.option}, and ends before it, at {end[at]}, "
                f"by {last.option}: nothing lies between"
            )


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source, checked: what to read, from where to where, and how."""

    bootstrap_servers: str
    topics: Sequence[str]
    pattern: str | None
    partitions: Sequence[TopicPartition] | None
    start: Bound
    end: Bound
    isolation: Isolation
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int | None
    include_headers: bool
    fail_on_data_loss: bool
    application_id: str | None
    group_id: str | None
    patience_ms: int
    """Milliseconds that a task waits for records before it fails."""
    audit: bool
    security: Security


def parse(options: Mapping[str, str], streaming: bool) -> SourceOptions:
    """The options of the source, from those that Spark was given.  Raises BadOption for one that cannot be used."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given, streaming)

    def get(name: str) -> str | None:
        return given.get(name.lower())

    def number(name: str, default: int | None = None) -> Any:
        text = get(name)
        return default if text is None else _number(name, text, 1)

    servers = get("kafka.bootstrap.servers")
    if not servers:
        raise BadOption('give .option("kafka.bootstrap.servers", "host:port")')
    try:
        addresses_of(servers)
    except ValueError as error:
        raise BadOption(f"kafka.{str(error).replace('bootstrap_servers', 'bootstrap.servers')}") from None
    audit = _one_of("schema", get("schema") or "kafka", "kafka", "audit") == "audit"
    assigned = get("assign")
    least, most = number("minOffsetsPerTrigger"), number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger={least}: it must not be above maxOffsetsPerTrigger={most}")
    return SourceOptions(
        bootstrap_servers=servers,
        topics=_topics(get),
        pattern=get("subscribePattern"),
        partitions=None if assigned is None else sorted(parse_partitions("assign", assigned)),
        start=_bound("starting", get, "latest" if streaming else "earliest", resumes=streaming),
        end=_bound("ending", get, "latest"),
        isolation=_isolation(get("kafka.isolation.level"), audit),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration("maxTriggerDelay", get("maxTriggerDelay") or "15m"),
        min_partitions=number("minPartitions", 1),
        max_records_per_partition=number("maxRecordsPerPartition"),
        include_headers=_flag("includeHeaders", get("includeHeaders") or "false"),
        fail_on_data_loss=_flag("failOnDataLoss", get("failOnDataLoss") or "true"),
        application_id=get("applicationId"),
        group_id=get("kafka.group.id"),
        patience_ms=number("kafkaConsumer.pollTimeoutMs", 60_000),
        audit=audit,
        security=parse_security(given),
    )


def _check_names(given: Mapping[str, str], streaming: bool) -> None:
    names = [*(option.name for option in SOURCE), *SECURITY]
    known = {name.lower() for name in (*names, *SECURITY_REFUSED)} | {"path"}
    refused = {name.lower(): (name, f"cannot be used: {why}") for name, why in REFUSED.items()}
    refused |= {name.lower(): (name, why) for name, why in of_other_kind(streaming).items()}
    of_source = {option.name.lower(): option.name for option in SOURCE}
    for name, value in given.items():
        if name in refused:
            raise BadOption(" ".join(refused[name]))
        if name not in known:
            raise unknown(name, names)
        if name in of_source and not value.strip():
            raise BadOption(f"{of_source[name]} is empty: give it a value, or leave it out")


def _topics(get: Callable[[str], str | None]) -> list[str]:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if get(name)]
    if len(chosen) != 1:
        raise BadOption(f"give exactly one of subscribe, subscribePattern and assign (there are: {chosen or 'none'})")
    pattern = get("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern={shown(pattern)}: no regular expression: {error}") from None
    given = get("subscribe") or ""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if given and not names:
        raise BadOption(f"subscribe={shown(given)}: it names no topic")
    return names


def _isolation(given: str | None, audit: bool) -> Isolation:
    if audit:
        if given is not None:
            raise BadOption("kafka.isolation.level cannot be used with schema=audit, which has everything in it")
        return Isolation.READ_UNCOMMITTED
    chosen = _one_of("kafka.isolation.level", given or "read_committed", "read_committed", "read_uncommitted")
    return Isolation.READ_COMMITTED if chosen == "read_committed" else Isolation.READ_UNCOMMITTED


def _bound(which: str, get: Callable[[str], str | None], default: str, resumes: bool = False) -> Bound:
    """The bound of `which`, starting or ending.  Times go before offsets, one for all before one for each.

    `resumes`: offsets may be where a committed micro-batch ended, and count as such if they say of which cluster.
    """
    name, by_time, stamp = f"{which}Offsets", f"{which}OffsetsByTimestamp", f"{which}Timestamp"
    strategy = _one_of(_STRATEGY, get(_STRATEGY) or "error", "error", "latest")
    else_latest = which == "ending" or strategy == "latest"
    otherwise = _BY_NAME["latest" if which == "ending" else "earliest"]
    given = get(stamp)
    if given is not None:
        return Bound(otherwise, timestamp=_number(stamp, given), else_latest=else_latest, option=stamp)
    given = get(by_time)
    if given is not None:
        times = parse_positions(by_time, given, "JSON").offsets
        return Bound(otherwise, timestamps=times, else_latest=else_latest, option=by_time)
    text = get(name) or default
    if text.lower() in _BY_NAME:
        return Bound(_BY_NAME[text.lower()], option=name)
    positions = parse_positions(name, text)
    resumed = positions if resumes and positions.cluster_id else None
    return Bound(otherwise, positions.offsets, resumed=resumed, option=name)


def _one_of(name: str, text: str, *values: str) -> str:
    if text.lower() not in values:
        raise BadOption(f"{name}={shown(text)}: it must be {' or '.join(values)}")
    return text.lower()


def _duration(name: str, text: str) -> int:
    """Milliseconds of a time such as `5m`.  Raises BadOption."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise BadOption(f"{name}={shown(text)}: it must be a number with ms, s, m, h or d, as 15m")
    return int(found[1]) * _UNITS[found[2]]


def _number(name: str, text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise BadOption(f"{name}={shown(text)}: it must be a number")
    if len(text.lstrip("0")) > len(str(LARGEST)) or int(text) > LARGEST:
        raise BadOption(f"{name}={shown(text)}: it must be {LARGEST} or less")
    if int(text) < least:
        raise BadOption(f"{name}={shown(text)}: it must be {least} or more")
    return int(text)


def _flag(name: str, text: str) -> bool:
    return _one_of(name, text, "true", "false") == "true"


def parse_partitions(name: str, text: str) -> list[TopicPartition]:
    """The partitions in JSON like {"topic": [0, 1]}, each once.  Raises BadOption for anything else, or for none."""
    try:
        named = json.loads(text, object_pairs_hook=_once)
        found = [TopicPartition(topic, number) for topic, numbers in named.items() for number in numbers]
        if not found or not all(type(at.partition) is int and 0 <= at.partition <= LARGEST_PARTITION for at in found):
            raise ValueError("there is none, or a number is not one of a partition")
        return list(dict.fromkeys(found))
    except _NO_JSON:
        raise BadOption(f'{name}={shown(text)}: it must be JSON like {{"topic": [0, 1]}}') from None


def parse_positions(name: str, text: str, what: str = "earliest, latest, or JSON") -> Positions:
    """The positions in JSON like {"topic": {"0": 23, "1": -2}}; -2 is the first offset, -1 the end.

    `what`: what the text may be, for the message.  Raises BadOption for anything else.
    """
    try:
        positions = Positions.decode(json.loads(text, object_pairs_hook=_once))
        if not positions.offsets:
            raise ValueError("there is none")
        return positions
    except _NO_JSON:
        raise BadOption(f'{name}={shown(text)}: it must be {what} like {{"topic": {{"0": 23}}}}') from None


def _once(named: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object.  Raises ValueError if it has a name twice, of which the last one would count."""
    fields = dict(named)
    if len(fields) != len(named):
        raise ValueError("a name is there twice")
    return fields
