"""Every option of Spark's own `kafka` format, as data: what it means, what it may be, and what becomes of it here.

What is refused is refused by its name, in one sentence.  The page docs/reference/spark_options.md is made of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from fencepost.spark.bad_option import BadOption, shown

BATCH: Final = "batch"
STREAM: Final = "stream"
BOTH: Final = "batch, stream"
_NUMBER: Final = "a whole number from 1 on"
_SAME: Final = "the same"
_NOT_IN_SPARK: Final = "has no such option"
_JSON: Final = 'JSON like `{"topic": {"0": %s}}` that names every partition'


class Option(NamedTuple):
    """One option of the source."""

    name: str
    where: str
    """BATCH, STREAM or BOTH: the kind of query that it is for.  The other kind refuses it."""
    values: str
    meaning: str
    in_spark: str = _SAME
    """What Spark's own source does with it."""


#: of the source, beside those of TLS and SASL
SOURCE: Final = (
    Option("kafka.bootstrap.servers", BOTH, "`host:port`, or several with commas between", "Must be given."),
    Option("subscribe", BOTH, "names with commas between", "Topics. One of subscribe, subscribePattern and assign."),
    Option(
        *("subscribePattern", BOTH, "a regular expression, as Python has them"),
        "Topics whose whole name it matches. Internal topics and `fencepost.progress` are left out.",
        "as Java has them, and the name of a topic need only have a part that matches",
    ),
    Option("assign", BOTH, 'JSON like `{"topic": [0, 1]}`', "Partitions."),
    Option(
        *("startingOffsets", BOTH, f"`earliest`, `latest`, or {_JSON % '23'}, -2 for its first offset, -1 for its end"),
        "Where to begin. Default: `latest` in a stream, `earliest` in a batch.",
        "the same; a batch may not begin at the end",
    ),
    Option(
        *("endingOffsets", BATCH, "as startingOffsets", "Where a batch ends. Default: `latest`."),
        "the same; a batch may not end at the beginning",
    ),
    Option(
        *("startingTimestamp", BOTH, "milliseconds since 1970"),
        "Begin at the first record that is not older. Goes before the other two.",
    ),
    Option(
        *("startingOffsetsByTimestamp", BOTH, f"{_JSON % '1700000000000'}, in milliseconds since 1970"),
        "The same for each partition. Goes before startingOffsets.",
    ),
    Option(
        *("startingOffsetsByTimestampStrategy", BOTH, "`error` (default) or `latest`"),
        "What to do with a partition that has no record so young: fail, or begin at its end.",
    ),
    Option(
        *("endingTimestamp", BATCH, "milliseconds since 1970"),
        "End before the first record that is not older; where there is none, at the end. Goes before the other two.",
    ),
    Option(
        *("endingOffsetsByTimestamp", BATCH, f"{_JSON % '1700000000000'}, in milliseconds since 1970"),
        "The same for each partition. Goes before endingOffsets.",
    ),
    Option(
        *("maxOffsetsPerTrigger", STREAM, _NUMBER),
        "The most offsets of one micro-batch, shared out in proportion to what waits. Default: no limit.",
    ),
    Option(
        *("minOffsetsPerTrigger", STREAM, f"{_NUMBER}, not above maxOffsetsPerTrigger"),
        "A micro-batch waits until so many offsets are there, or maxTriggerDelay is over. The first one does not wait, "
        "nor does any with availableNow.",
        "the same, but for availableNow, where it may leave the last offsets unread",
    ),
    Option(
        *("maxTriggerDelay", STREAM, "a number with `ms`, `s`, `m`, `h` or `d`; without one: milliseconds"),
        "How long minOffsetsPerTrigger may have a micro-batch wait. Default: `15m`.",
    ),
    Option(
        *("minPartitions", BOTH, _NUMBER),
        "The least number of parts that a read is cut into, where there is enough to read. Default: 1.",
    ),
    Option("maxRecordsPerPartition", BOTH, _NUMBER, "The most offsets of one of these parts. Default: no limit."),
    Option("includeHeaders", BOTH, "`true` or `false` (default)", "Whether there is a column `headers`."),
    Option(
        *("failOnDataLoss", BOTH, "`true` (default) or `false`"),
        "Whether a query fails when records that it still needed are gone.",
        "the same; a topic that was made anew is not noticed",
    ),
    Option(
        *("kafkaConsumer.pollTimeoutMs", BOTH, _NUMBER),
        "Milliseconds after which a task that gets no records fails. Default: 60000.",
        "120000",
    ),
    Option(
        *("kafka.isolation.level", BOTH, "`read_committed` (default) or `read_uncommitted`"),
        "Whether records of open and aborted transactions are left out.",
        "`read_uncommitted` is the default",
    ),
    Option(
        *("kafka.group.id", STREAM, "the name of a group"),
        "The stream commits its position to it after each micro-batch, for those who ask how far it is: where that "
        "fails, it is logged, and nothing else.",
        "reads as that group, and commits nothing",
    ),
    Option(
        *("schema", BATCH, "`kafka` (default) or `audit`"),
        "`audit`: everything that is in the log, and what became of it ([pipelines](../pipelines.md)).",
        _NOT_IN_SPARK,
    ),
    Option(
        *("applicationId", STREAM, "any name"),
        "Pins where a stream began: a query that starts anew under this id begins there again.",
        _NOT_IN_SPARK,
    ),
)

_DESERIALIZED: Final = "key and value are binary: convert them with functions of DataFrames, as Spark has it too"
#: option of Spark's own source -> why it is refused
REFUSED: Final[Mapping[str, str]] = {
    "groupIdPrefix": "partitions are read without a consumer group, so there is none to name",
    "fetchOffset.numRetries": "offsets are asked for until 60 s are over, however often that is",
    "fetchOffset.retryIntervalMs": "offsets are asked for until 60 s are over, at intervals that grow",
    "kafka.auto.offset.reset": "say where to begin with startingOffsets, as Spark has it too",
    "kafka.enable.auto.commit": "positions are kept in the checkpoint, as Spark has it too",
    "kafka.key.deserializer": _DESERIALIZED,
    "kafka.value.deserializer": _DESERIALIZED,
    "kafka.interceptor.classes": "classes of Java cannot be used",
    "topic": "it is for writing; to read, give subscribe",
}

_LIKE: Final = 0.6
_MUCH_LIKE: Final = 0.82
_BATCHES: Final = "it cannot be set: a task sends batches of 512 KiB, and what is left when its rows end"
_SERIALIZED: Final = "key and value are written as they are: convert them with functions of DataFrames"
#: option of Spark's own sink -> what to give `write_stream`, `write` and `Sink` instead, or why there is nothing
SINK: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "give bootstrap_servers=...",
    "topic": "give topic=..., or topics=[...] and a column topic",
    "includeHeaders": "a column headers is written if there is one",
    "checkpointLocation": "give write_stream checkpoint_location=...",
    "kafka.transactional.id": "give application_id=...",
    "kafka.transaction.timeout.ms": "give transaction_timeout_ms=...",
    "kafka.compression.type": "give compression=...",
    "kafka.acks": "it cannot be set: a micro-batch is committed only if all of it is acknowledged by all replicas",
    "kafka.enable.idempotence": "it cannot be set: it is always on",
    "kafka.retries": "it cannot be set: a record is sent until 120 s are over, however often that is",
    "kafka.delivery.timeout.ms": "it cannot be set: a record may take 120 s to be acknowledged",
    "kafka.max.in.flight.requests.per.connection": "it cannot be set",
    "kafka.linger.ms": _BATCHES,
    "kafka.batch.size": _BATCHES,
    "kafka.partitioner.class": "classes of Java cannot be used; a column partition says where a row goes",
    "kafka.interceptor.classes": "classes of Java cannot be used",
    "kafka.key.serializer": _SERIALIZED,
    "kafka.value.serializer": _SERIALIZED,
}


def of_other_kind(streaming: bool) -> dict[str, str]:
    """The options that a stream (`streaming`), or else a batch, refuses: name -> why, as the end of a message."""
    because = (
        "is for a batch: a stream ends where its query is stopped"
        if streaming
        else "is for a stream: a batch is read at once, and commits no position"
    )
    reasons = {option.name: because for option in SOURCE if option.where == (BATCH if streaming else STREAM)}
    if streaming:
        reasons["schema"] = "is for a batch: what becomes of a transaction that is open is not known in a stream"
    return reasons


def unknown(name: str, known: Iterable[str]) -> BadOption:
    """The error of an option that is not `known`; the message names the one that may be meant."""
    name = shown(name)
    spelt = {each.lower(): each for each in known}
    is_kafkas = name.lower().startswith("kafka.")
    # Settings of Java's client are much like each other.
    meant = get_close_matches(name.lower(), spelt, n=1, cutoff=_MUCH_LIKE if is_kafkas else _LIKE)
    if meant:
        return BadOption(f"option {name} is not known: is {spelt[meant[0]]} meant?")
    if is_kafkas:
        return BadOption(f"option {name} cannot be used: it is a setting of Java's client that this one has not")
    return BadOption(f"option {name} is not known; there are {', '.join(spelt.values())}")
