"""Options have the names of Spark's own Kafka source; what cannot be used is named."""

from __future__ import annotations

import inspect
import re

import pytest

from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark import Sink, write_stream
from fencepost.spark.option_table import BATCH, REFUSED, SINK, SOURCE, STREAM, Option
from fencepost.spark.options import BadOption, Bound, check_order, parse
from fencepost.spark.positions import Positions

LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "a, b"}


#: What `int` takes, and is no partition.
ODD = ("1_0", " 5", "5 ", "+1", "-1", "\u0663", "2147483648", "9" * 5000, "1e3", "")


def test_defaults_are_those_of_a_careful_reader() -> None:
    stream, batch = parse(LEAST, streaming=True), parse(LEAST, streaming=False)
    assert stream.isolation is Isolation.READ_COMMITTED
    assert list(stream.topics) == ["a", "b"]
    assert stream.fail_on_data_loss
    assert (stream.start.otherwise, batch.start.otherwise) == (-1, -2)


def test_names_are_case_insensitive() -> None:
    assert parse({"KAFKA.BOOTSTRAP.SERVERS": "h:1", "Subscribe": "a"}, streaming=True).bootstrap_servers == "h:1"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"subscribePattern": "x"}, "exactly one"),
        ({"subscribe": " , "}, "subscribe= , : it names no topic"),
        ({"startingOffset": "earliest"}, "option startingoffset is not known: is startingOffsets meant"),
        ({"colour": "red"}, "option colour is not known; there are kafka.bootstrap.servers, "),
        ({"kafka.fetch.max.wait.ms": "7"}, "kafka.fetch.max.wait.ms cannot be used: it is a setting of Java's client"),
        ({"kafka.isolation.levle": "7"}, "is kafka.isolation.level meant"),
        ({"kafka.sasl.jass.config": "7"}, "is kafka.sasl.jaas.config meant"),
        *(
            ({f"kafka.{name}": "7"}, f"kafka.{name} cannot be used: it is a setting of Java's client")
            for name in ("client.id", "request.timeout.ms", "group.instance.id", "ssl.protocol", "security.providers")
        ),
        ({"kafka.bootstrap.servers": "h"}, "^kafka.bootstrap.servers has 'h': it must be host:port"),
        ({"kafka.bootstrap.servers": " , "}, "^kafka.bootstrap.servers is empty"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger=0: it must be 1 or more"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not be above maxOffsetsPerTrigger=8"),
        ({"maxRecordsPerPartition": "none"}, "maxRecordsPerPartition=none: it must be a number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: it must be a number with ms, s, m, h or d"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "it must be error or latest"),
        ({"startingOffsetsByTimestamp": "latest"}, "startingOffsetsByTimestamp=latest: it must be JSON like"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs=0: it must be 1 or more"),
        ({"schema": "audit"}, "schema is for a batch: what becomes of a transaction that is open is not known"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is for a batch"),
        ({"startingOffsets": "soon"}, "startingOffsets=soon"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger=-1"),
        ({"kafka.isolation.level": "serializable"}, "read_committed"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0: it must be 1 or more"),
        ({"minPartitions": "0"}, "minPartitions=0: it must be 1 or more"),
        ({"endingOffsets": "latest"}, "endingOffsets is for a batch"),
        ({"endingTimestamp": "7"}, "endingTimestamp is for a batch"),
        ({"startingOffsets": '{"a": {"zero": 1}}'}, "startingOffsets="),
        ({"startingOffsets": "[]"}, "startingOffsets="),
        ({"startingOffsets": "{}"}, "startingOffsets="),
        ({"startingOffsets": '{"a": [0]}'}, "startingOffsets="),
        *(
            ({option: text}, f"{option}=.*: it must be .*JSON like")
            for option in ("startingOffsets", "startingOffsetsByTimestamp")
            for text in (
                '{"a": {"0": 5.9}}',
                '{"a": {"0": 5.0}}',
                '{"a": {"0": true}}',
                '{"a": {"0": "5"}}',
                '{"a": {"0": null}}',
                '{"a": {"0": 9223372036854775808}}',
                '{"a": {"0": 1, "0": 2}}',
                '{"a": {"0": 1, "00": 2}}',
                '{"a": {"0": 1}, "a": {"1": 2}}',
                '{"a": {"0": 1e3}}',
                '{"a": {"0": Infinity}}',
                *(f'{{"a": {{"{partition}": 1}}}}' for partition in ODD),
                "[" * 100_000,
            )
        ),
        *(
            ({option: text}, f"{option}={text}: it must be a number")
            for option in ("startingTimestamp", "minPartitions")
            for text in ("\u00b2", "\u0661", "-1", "1.5", "1e3", "1_000", " 5", "5 ", "0x5", "NaN")
        ),
        *(({"maxTriggerDelay": text}, "must be a number with ms") for text in ("\u0663s", "1_0s", "-1s", "9" * 5000)),
        ({"startingTimestamp": "9223372036854775808"}, "=9223372036854775808: it must be 9223372036854775807 or less"),
        ({"startingTimestamp": "9" * 5000}, "it must be 9223372036854775807 or less"),
    ],
)
def test_what_cannot_be_used_is_named(more: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        parse(LEAST | more, streaming=True)


HERE = TopicPartition("a", 0)
PLACES = {"offset": Bound(-2, {HERE: 5}), "time": Bound(-2, timestamp=5), "its time": Bound(-2, timestamps={HERE: 5})}
ENDS = {"first": Bound(-2), "end": Bound(-1), "its first": Bound(-2, {HERE: -2}), "its end": Bound(-1, {HERE: -1})}


@pytest.mark.parametrize("first", [*PLACES, *ENDS])
@pytest.mark.parametrize("last", [*PLACES, *ENDS])
def test_a_batch_begins_behind_its_end_only_where_one_of_them_is_that_of_the_log(first: str, last: str) -> None:
    """Retention moves the first offset; and what may be read ends before what is in an open transaction."""
    begins, ends = (PLACES | ENDS)[first], (PLACES | ENDS)[last]
    check_order(begins, ends, {HERE: 5}, {HERE: 5})
    if first in PLACES and last in PLACES:
        with pytest.raises(BadOption, match=r"a-0 begins at 6 by .*, and ends before it, at 5"):
            check_order(begins, ends, {HERE: 6}, {HERE: 5})
    else:
        check_order(begins, ends, {HERE: 6}, {HERE: 5})


@pytest.mark.parametrize(
    "partitions",
    [
        *("[]", "[0.0]", "[1.9]", "[true]", '["0"]', '"01"', "[-1]", "[2147483648]", "[null]", "[1e400]", "0", "{}"),
        '[0], "a": [1]',
        "[" * 100_000,
    ],
)
def test_partitions_are_whole_numbers_and_nothing_that_only_looks_like_them(partitions: str) -> None:
    with pytest.raises(BadOption, match=r'^assign=\{.*: it must be JSON like \{"topic": \[0, 1\]\}') as refused:
        parse({"kafka.bootstrap.servers": "h:1", "assign": f'{{"a": {partitions}}}'}, streaming=True)
    assert len(str(refused.value)) < 300
    found = parse({"kafka.bootstrap.servers": "h:1", "assign": '{"a": [1, 0, 1]}'}, streaming=True)
    assert found.partitions == [TopicPartition("a", 0), TopicPartition("a", 1)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a": {"0": 1, "1": -1}}', None),
        ('{"a": {"0": 1}}', "does not name a-1"),
        ('{"a": {"0": 1, "1": 0, "2": 0}}', "names a-2, which is not read"),
        ('{"b": {"0": 1}, "a": {"0": 1, "1": 0}}', "names b-0, which is not read"),
        ('{"a": {"0": 1, "1": -3}}', "a-1 at -3"),
        ('{"a": {"0": 1}, "@cluster": "ours"}', "does not name a-1"),
        ('{"a": {"0": 1, "1": 0}, "b": {"0": 4}, "@cluster": "ours"}', "names b-0, which is not read"),
        ('{"a": {"0": 1, "1": -3}, "@cluster": "ours"}', "a-1 at -3"),
        ('{"a": {"0": 1, "1": 0}, "@cluster": "ours"}', None),
    ],
)
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_name_every_partition_and_no_other(text: str, named: str | None, option: str) -> None:
    """Whatever stands beside them."""
    options = parse(LEAST | {option: text}, streaming=False)
    bound = options.start if option == "startingOffsets" else options.end
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1)]
    if named is None:
        bound.check(partitions)
    else:
        with pytest.raises(BadOption, match=named):
            bound.check(partitions)


def test_where_a_committed_batch_ended_a_stream_goes_on_and_nothing_else_does() -> None:
    """The partitions that it does not name came later."""
    given = LEAST | {"startingOffsets": '{"a": {"0": 1}, "@cluster": "ours"}'}
    stream, batch = parse(given, streaming=True).start, parse(given, streaming=False).start
    stream.check([TopicPartition("a", 0), TopicPartition("a", 1)])
    assert stream.resumed == Positions({TopicPartition("a", 0): 1}, "ours")
    assert stream.otherwise == -2, "of what came later nothing was read yet"
    assert batch.resumed is None
    without = parse(LEAST | {"startingOffsets": '{"a": {"0": 1}}'}, streaming=True).start
    assert without.resumed is None, "it does not say of which cluster"


@pytest.mark.parametrize("given", ["Offsets", "OffsetsByTimestamp"])
def test_what_is_not_named_begins_at_the_beginning_and_ends_at_the_end(given: str) -> None:
    """Where that is allowed: a partition that comes later."""
    places = {f"{which}{given}": '{"a": {"0": 1}}' for which in ("starting", "ending")}
    options = parse(LEAST | places, streaming=False)
    assert (options.start.otherwise, options.end.otherwise) == (-2, -1)


def test_the_least_and_the_most_of_a_micro_batch_may_be_the_same() -> None:
    options = parse(LEAST | {"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "8"}, streaming=True)
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (8, 8)


@pytest.mark.parametrize("flag", ["includeHeaders", "failOnDataLoss"])
def test_a_flag_is_as_it_is_given(flag: str) -> None:
    for text, wanted in (("true", True), ("FALSE", False)):
        options = parse(LEAST | {flag: text}, streaming=False)
        assert {"includeHeaders": options.include_headers, "failOnDataLoss": options.fail_on_data_loss}[flag] is wanted


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(BadOption, match=r"subscribePattern=\(: no regular expression"):
        parse({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, streaming=False)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("streaming", [True, False])
def test_what_is_refused_is_refused_by_its_name(name: str, streaming: bool) -> None:
    for given in (name, name.upper()):
        with pytest.raises(BadOption, match=f"option {re.escape(name)} cannot be used: |^{re.escape(name)} cannot be"):
            parse(LEAST | {given: "1"}, streaming)


#: option -> a value that may be given
VALUES = {
    **dict.fromkeys(("startingTimestamp", "endingTimestamp", "kafkaConsumer.pollTimeoutMs"), "1000"),
    **dict.fromkeys(("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"), "5"),
    **dict.fromkeys(("startingOffsets", "endingOffsets"), '{"a": {"0": 5}}'),
    **dict.fromkeys(("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"), '{"a": {"0": 5}}'),
    "includeHeaders": "true",
    "failOnDataLoss": "false",
    **dict.fromkeys(("applicationId", "kafka.group.id"), "name"),
    "startingOffsetsByTimestampStrategy": "latest",
    "maxTriggerDelay": "3m",
    "kafka.isolation.level": "read_uncommitted",
    "schema": "audit",
    "kafka.bootstrap.servers": "h:2",
    "subscribe": "b",
    "subscribePattern": "b.*",
    "assign": '{"b": [0]}',
}


@pytest.mark.parametrize("option", SOURCE, ids=lambda option: option.name)
@pytest.mark.parametrize("streaming", [True, False])
def test_every_option_of_the_table_counts_where_the_table_says_and_is_refused_elsewhere(
    option: Option, streaming: bool
) -> None:
    which = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    if option.name in ("subscribePattern", "assign"):
        which.pop("subscribe")
    given = which | {option.name: VALUES[option.name]}
    if (STREAM if streaming else BATCH) not in option.where:
        with pytest.raises(BadOption, match=f"^{option.name} is for a "):
            parse(given, streaming)
        return
    alone = {"startingOffsetsByTimestampStrategy": {"startingTimestamp": "1"}, "maxTriggerDelay": {}}
    default = LEAST if option.name in ("kafka.bootstrap.servers", "subscribePattern", "assign") else which
    more = alone.get(option.name, {})
    found, before = parse(given | more, streaming), parse(default | more, streaming)
    assert found != before


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize("option", SOURCE, ids=[option.name for option in SOURCE])
def test_an_option_that_is_empty_is_not_taken_for_one_that_is_not_there(option: Option, empty: str) -> None:
    """As of a variable that is not set: a stream would begin at the latest, or share its pins with another one."""
    with pytest.raises(BadOption, match=re.escape(f"{option.name} is empty")):
        parse(LEAST | {option.name: empty}, streaming=option.where != BATCH)


@pytest.mark.parametrize("text", ['{\n  "a": {}\n}', "5\u2028", "5\0", "\ud800", "x" * 5000], ids=ascii)
@pytest.mark.parametrize("option", SOURCE, ids=[option.name for option in SOURCE])
def test_what_is_wrong_with_an_option_is_one_line_that_can_be_printed(option: Option, text: str) -> None:
    """Spark's error has it as a line of its own, and Java's log."""
    try:
        parse(LEAST | {option.name: text}, streaming=option.where != BATCH)
    except BadOption as refused:
        (line,) = str(refused).splitlines()
        assert option.name in line and len(line.encode()) < 500


def test_times_go_before_offsets_and_one_for_all_before_one_for_each() -> None:
    every = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": VALUES["startingOffsetsByTimestamp"]}
    assert parse(LEAST | every | {"startingTimestamp": "7"}, streaming=True).start.timestamp == 7
    by_time = parse(LEAST | every, streaming=True).start
    assert (by_time.timestamp, by_time.timestamps) == (None, {TopicPartition("a", 0): 5})
    assert not by_time.else_latest
    assert parse(LEAST | {"endingTimestamp": "7"}, streaming=False).end.else_latest


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        *[("15m", 900_000), ("500ms", 500), ("2 s", 2000), ("7", 7), ("1h", 3_600_000), ("2d", 172_800_000), ("0s", 0)],
        (" 5M ", 300_000),
    ],
)
def test_a_delay_is_said_as_spark_has_it(text: str, milliseconds: int) -> None:
    assert parse(LEAST | {"maxTriggerDelay": text}, streaming=True).max_trigger_delay_ms == milliseconds


def test_a_number_may_begin_with_zeros() -> None:
    assert parse(LEAST | {"minPartitions": "0" * 30 + "7"}, streaming=False).min_partitions == 7


def test_the_largest_numbers_are_those_of_the_protocol() -> None:
    assert parse(LEAST | {"startingTimestamp": str(2**63 - 1)}, streaming=True).start.timestamp == 2**63 - 1
    offsets = parse(LEAST | {"startingOffsets": f'{{"a": {{"0": {2**63 - 1}}}}}'}, streaming=True).start.by_partition
    assert offsets == {TopicPartition("a", 0): 2**63 - 1}


def test_times_name_every_partition_and_no_other() -> None:
    bound = parse(LEAST | {"startingOffsetsByTimestamp": '{"a": {"0": 0}}'}, streaming=True).start
    bound.check([TopicPartition("a", 0)])
    with pytest.raises(BadOption, match="startingOffsetsByTimestamp does not name a-1: name every partition"):
        bound.check([TopicPartition("a", 0), TopicPartition("a", 1)])
    with pytest.raises(BadOption, match="names a-0, which is not read"):
        bound.check([])
    early = parse(LEAST | {"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, streaming=True).start
    with pytest.raises(BadOption, match="a-0 at -1: it must be 0 or more"):
        early.check([TopicPartition("a", 0)])


def test_an_audit_has_everything_in_it() -> None:
    options = parse(LEAST | {"schema": "audit"}, streaming=False)
    assert (options.audit, options.isolation) == (True, Isolation.READ_UNCOMMITTED)
    with pytest.raises(BadOption, match="cannot be used with schema=audit"):
        parse(LEAST | {"schema": "audit", "kafka.isolation.level": "read_committed"}, streaming=False)


@pytest.mark.parametrize("name", SINK)
def test_options_of_sparks_sink_are_refused_with_what_to_give_instead(name: str) -> None:
    with pytest.raises(BadOption, match=f"option {re.escape(name)} of Spark's own sink cannot be used here: "):
        Sink("app", "h:1", ["t"], kafka_options={name: "1"})


def test_what_a_sink_is_told_to_give_is_there() -> None:
    told = {word for why in SINK.values() for word in re.findall(r"(\w+)=", why)}
    there = {*inspect.signature(Sink).parameters, *inspect.signature(write_stream).parameters}
    assert told and told <= there


def test_a_batch_may_end_anywhere() -> None:
    assert parse(LEAST | {"endingTimestamp": "7"}, streaming=False).end.timestamp == 7
