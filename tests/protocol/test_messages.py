"""Every request and response against kio, whose classes are generated from Apache Kafka's own schemas.

The layouts are compared field by field, then the bytes of random values both ways.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, get_args
from uuid import UUID

from kio.index import KioIndexError, load_payload_module
from kio.schema.errors import ErrorCode as TheirErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.protocol.of_each_class import of_each_class
from tests.protocol.random_messages import BITS

from fencepost.protocol.codec import decode, encode
from fencepost.protocol.layout import Field, default_of, fields_of
from fencepost.protocol.messages import REQUESTS, RESPONSES

OURS_TAGS_START = 10_000
NOT_IN_KIO = {("ApiVersions", 5), ("TxnOffsetCommit", 6)}

#: kio's names of what is laid out in the same way
KINDS = {
    "bool": "boolean",
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "bytes": "binary",
    "records": "batches",
}
#: The fields that kio calls otherwise, beside durations and times, which lose their "_ms".
RENAMED = {
    "transactional_id": "v3_and_below_transactional_id",
    "producer_id": "v3_and_below_producer_id",
    "producer_epoch": "v3_and_below_producer_epoch",
    "topics": "v3_and_below_topics",
    "results_by_topic": "results_by_topic_v3_and_below",
}
#: Null where Kafka has none, in old versions.  What is sent is up to the broker's own files for these APIs.
NULL_ONLY_WITH_US = {
    ("MetadataRequest", "topics"),
    ("MetadataRequest.topics", "name"),
    ("MetadataResponse.topics", "name"),
    ("OffsetFetchRequest", "topics"),
    ("DeleteTopicsResponse.responses", "name"),
    ("JoinGroupResponse", "protocol_name"),
}


#: Defaults of constructors, which are never left out of the bytes: here null, which asks for every key.
DEFAULT_ONLY_WITH_US = {"DescribeConfigsRequest.resources.configuration_keys"}


def _their_class(api: int, version: int, kind: Any) -> Any:
    try:
        module = load_payload_module(api, version, kind)
    except KioIndexError:
        return None
    declared = (thing for thing in vars(module).values() if getattr(thing, "__module__", "") == module.__name__)
    return next(cls for cls in declared if getattr(cls, "__type__", None) is kind)


def _pairs() -> Iterator[tuple[Any, Any, int]]:
    for kind, classes in ((EntityType.request, REQUESTS), (EntityType.response, RESPONSES)):
        for api, cls in classes.items():
            for version in range(cls.__schema__.versions[0], cls.__schema__.versions[1] + 1):
                theirs = _their_class(api, version, kind)
                if theirs is None:
                    name = cls.__name__.removesuffix("Request").removesuffix("Response")
                    assert (name, version) in NOT_IN_KIO
                else:
                    yield cls, theirs, version


PAIRS = list(_pairs())


def _is_there(field: Field, version: int, flexible: bool) -> bool:
    tag = field.wire.tag
    return field.wire.in_version(version) and (tag is None or (flexible and tag < OURS_TAGS_START))


def _members(hint: Any) -> tuple[Any, ...]:
    """The type of one value, and whether it is an array and may be null: (type, is array, is nullable)."""
    choices = get_args(hint) if type(None) in get_args(hint) else (hint,)
    chosen = next(choice for choice in choices if choice is not type(None))
    array = getattr(chosen, "__origin__", None) is tuple
    return (get_args(chosen)[0] if array else chosen), array, len(choices) > 1


def _compare_layout(path: str, ours: Any, theirs: Any, version: int) -> None:
    flexible = theirs.__flexible__
    our_fields = [field for field in fields_of(ours) if _is_there(field, version, flexible)]
    our_fields.sort(key=lambda field: -1 if field.wire.tag is None else field.wire.tag)
    their_fields = sorted(dataclasses.fields(theirs), key=lambda field: int(field.metadata.get("tag", -1)))
    for our, their in itertools.zip_longest(our_fields, their_fields):
        assert our is not None and their is not None, f"{path} v{version}: {our or their} is missing"
        where = f"{path}.{our.name} v{version}"
        assert their.name in (our.name, our.name.removesuffix("_ms"), RENAMED.get(our.name)), where
        inner, array, nullable = _members(their.type)
        element = our.of if our.kind == "array" else our
        assert array == (our.kind == "array"), where
        assert their.metadata.get("tag") == our.wire.tag, where
        if dataclasses.is_dataclass(inner):
            assert element.kind == "struct", where
            _compare_layout(f"{path}.{our.name}", element.of, inner, version)
        else:
            kind = str(their.metadata["kafka_type"])
            assert element.kind == KINDS.get(kind, kind), where
        if inner not in (UUID, datetime) and (path, our.name) not in NULL_ONLY_WITH_US and not _is_time(their):
            assert our.nullable == nullable, where
        _compare_default(where, our, their)


def _is_time(field: Any) -> bool:
    return field.metadata.get("kafka_type") in ("datetime_i64", "timedelta_i32", "timedelta_i64")


def _compare_default(where: str, our: Field, their: Any) -> None:
    if where.partition(" ")[0] in DEFAULT_ONLY_WITH_US:
        return
    if their.default is dataclasses.MISSING or dataclasses.is_dataclass(their.default) or _is_time(their):
        return
    expected = [] if their.default == () else their.default
    expected = UUID(int=0) if expected is None and our.kind == "uuid" else expected
    assert default_of(our) == expected, where


@of_each_class(PAIRS)
def test_the_layout_is_kafkas(ours: Any, theirs: Any, version: int) -> None:
    assert theirs.__flexible__ == (version >= ours.__schema__.flexible)
    _compare_layout(ours.__name__, ours, theirs, version)


ERRORS = list(TheirErrorCode)


def _random_entity(cls: Any, random: Random) -> Any:
    return cls(**{field.name: _random_value(field, random) for field in dataclasses.fields(cls)})


def _random_value(field: Any, random: Random) -> Any:
    tagged = "tag" in field.metadata
    if tagged and field.default is not dataclasses.MISSING and random.random() < 0.3:
        return field.default
    inner, array, nullable = _members(field.type)
    if nullable and not tagged and random.random() < 0.2:
        return None
    if array:
        counts = (0, 1, 2) if dataclasses.is_dataclass(inner) else (0, 1, 2, 130)
        return tuple(_random_single(field, inner, random) for _ in range(random.choice(counts)))
    return _random_single(field, inner, random)


def _random_single(field: Any, cls: Any, random: Random) -> Any:
    if dataclasses.is_dataclass(cls):
        return _random_entity(cls, random)
    match field.metadata["kafka_type"]:
        case "string":
            return "".join(random.choices("abcdefxyz-ßé漢\U0001f512", k=random.choice((0, 1, 9, 200))))
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 9, 200)))
        case "uuid":
            return UUID(bytes=random.randbytes(16))
        case "bool":
            return random.random() < 0.5
        case "error_code":
            return random.choice(ERRORS)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=random.randrange(-1, 2**31))
        case "datetime_i64":
            return datetime.fromtimestamp(random.getrandbits(31), UTC)
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "uint16":
            return random.getrandbits(16)
        case kind:
            return random.choice((1, -1)) * random.getrandbits(random.choice((1, 5, BITS[kind] - 1)))


@of_each_class(PAIRS)
def test_random_values_have_the_same_bytes(ours: Any, theirs: Any, version: int) -> None:
    random = Random(f"{ours.__name__} {version}")
    write, read = entity_writer(theirs), entity_reader(theirs)
    for _ in range(5):
        entity = _random_entity(theirs, random)
        with io.BytesIO() as out:
            write(out, entity)
            body = out.getvalue()
        message = decode(ours, body, version)
        assert encode(message, version) == body
        assert read(encode(message, version), 0) == (entity, len(body))


def _elements(cls: Any, version: int) -> Iterator[Any]:
    """The structures that stand in arrays, at any depth."""
    for field in fields_of(cls):
        if field.wire.in_version(version):
            element = field.of if field.kind == "array" else field
            if element.kind == "struct":
                if field.kind == "array":
                    yield element.of
                yield from _elements(element.of, version)


@of_each_class(PAIRS)
def test_every_element_of_an_array_takes_bytes(ours: Any, theirs: Any, version: int) -> None:
    """Else a few bytes could claim any number of elements."""
    for element in _elements(ours, version):
        assert theirs.__flexible__ or any(_is_there(field, version, False) for field in fields_of(element))
