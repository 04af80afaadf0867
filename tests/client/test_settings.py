"""A setting of the wrong kind is refused at once, in one sentence that names it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fencepost.client import Admin, Consumer, ExactlyOnce, Producer, blocking
from fencepost.client.settings import check_counts, check_milliseconds

CLIENTS = {"producer": Producer, "consumer": Consumer, "admin": Admin}
SERVERS = "127.0.0.1:1"
PRODUCER_TIMES = ("linger_ms", "transaction_timeout_ms", "delivery_timeout_ms", "metadata_max_age_ms")
CONSUMER_TIMES = (
    *("auto_commit_interval_ms", "session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms"),
    "max_poll_interval_ms",
    *("fetch_max_wait_ms", "metadata_max_age_ms", "open_transaction_warning_ms"),
)
OF_ALL_TIMES = ("request_timeout_ms", "max_block_ms")
TIMES = [
    *(("producer", name) for name in (*PRODUCER_TIMES, *OF_ALL_TIMES)),
    *(("consumer", name) for name in (*CONSUMER_TIMES, *OF_ALL_TIMES)),
    *(("admin", name) for name in OF_ALL_TIMES),
]
#: Those of the older group protocol alone: None is the usual value, which says that nobody has set it.
USUAL_WHERE_NONE = ("session_timeout_ms", "heartbeat_interval_ms")
COUNTS = [
    *(("producer", name) for name in ("batch_bytes", "max_request_size", "buffer_bytes")),
    ("producer", "max_in_flight_requests_per_connection"),
    *(("consumer", name) for name in ("fetch_min_bytes", "fetch_max_bytes", "max_partition_fetch_bytes")),
    ("consumer", "transaction_buffer_bytes"),
]
TEXTS = [
    *((kind, "client_id") for kind in CLIENTS),
    *(("producer", name) for name in ("transactional_id", "compression")),
    *(("consumer", name) for name in ("group_id", "group_instance_id", "isolation_level", "delivery")),
    *(("consumer", name) for name in ("auto_offset_reset", "spill_directory")),
    *((kind, "bootstrap_servers") for kind in CLIENTS),
]
#: Sent as they are, in 32 bits.
SENT = [
    *((kind, "request_timeout_ms") for kind in CLIENTS),
    ("producer", "transaction_timeout_ms"),
    *(("consumer", name) for name in ("session_timeout_ms", "rebalance_timeout_ms", "fetch_max_wait_ms")),
    *(("consumer", name) for name in ("fetch_min_bytes", "fetch_max_bytes", "max_partition_fetch_bytes")),
]
NAMES = ("client_id", "transactional_id", "group_id", "group_instance_id")
FILES = [(kind, name) for kind in CLIENTS for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")]


def refusals(kind: str, name: str, values: list[object], what: type[Exception], said: str) -> None:
    for value in values:
        given: dict[str, Any] = {"bootstrap_servers": SERVERS, name: value}
        if kind == "producer":
            given.setdefault("transactional_id", "id")
        with pytest.raises(what, match=f"^{name}=.*: {said}$"):
            CLIENTS[kind](**given)


@pytest.mark.parametrize(("kind", "name"), TIMES)
def test_a_time_is_a_number_of_milliseconds_that_is_not_negative(kind: str, name: str) -> None:
    none = [] if name in USUAL_WHERE_NONE else [None]
    refusals(kind, name, ["5", *none, True, [1]], TypeError, "it must be a number of milliseconds")
    refusals(kind, name, [-1, -0.5, math.nan], ValueError, "it must be 0 milliseconds or more")


@pytest.mark.parametrize(("kind", "name"), COUNTS)
def test_a_size_is_a_whole_number(kind: str, name: str) -> None:
    refusals(kind, name, ["5", None, True, 1.5], TypeError, "it must be a whole number")
    refusals(kind, name, [-1], ValueError, "it must be [01] or more")


@pytest.mark.parametrize(("kind", "name"), SENT)
def test_a_number_that_is_sent_is_one_that_a_request_can_hold(kind: str, name: str) -> None:
    refusals(kind, name, [2**31], ValueError, "it must be from 0 to 2147483647")
    if name.endswith("_ms"):
        refusals(kind, name, [100.5, math.inf], TypeError, "it must be a whole number")


@pytest.mark.parametrize(("kind", "name"), [each for each in TEXTS if each[1] in NAMES])
def test_a_name_can_be_sent(kind: str, name: str) -> None:
    refusals(kind, name, ["\ud800"], ValueError, "it has halves of characters, which cannot be sent")
    refusals(kind, name, ["x" * 32_768], ValueError, "it has 32768 bytes, and may have 32767")


@pytest.mark.parametrize(("kind", "name"), [("producer", "transactional_id"), ("consumer", "group_id")])
def test_who_has_an_id_has_one_that_is_not_empty(kind: str, name: str) -> None:
    """As where a variable of the environment is not set: a broker takes the positions of a group without a name."""
    refusals(kind, name, [""], ValueError, "give it a name, or None")


def test_a_partitioner_is_something_to_call() -> None:
    """It is refused at once, not by the first record and in words of Python's own."""
    refusals("producer", "partitioner", [5, "murmur2"], TypeError, "it must be a function of topic, key and partitions")


def test_a_member_with_a_place_of_its_own_has_a_name() -> None:
    refusals("consumer", "group_instance_id", [""], ValueError, "give each consumer one of its own, or None")


@pytest.mark.parametrize(("kind", "name"), TEXTS)
def test_a_name_is_a_text(kind: str, name: str) -> None:
    refusals(kind, name, [5, b"x", ["a:1"]], TypeError, "it must be a str")


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_file_is_named_by_its_path(kind: str, name: str) -> None:
    for value, what in ((5, "int"), (None, "NoneType"), (b"x", "bytes")):
        given: dict[str, Any] = {"bootstrap_servers": SERVERS, "security_protocol": "SSL", name: value}
        if kind == "producer":
            given["transactional_id"] = "id"
        with pytest.raises(TypeError, match=f"^{name} must be the path of a file, and no {what}$"):
            CLIENTS[kind](**given)


@pytest.mark.parametrize("kind", CLIENTS)
def test_there_are_servers(kind: str) -> None:
    for servers in (None, "", " , "):
        with pytest.raises((TypeError, ValueError), match=r"^bootstrap_servers"):
            CLIENTS[kind](bootstrap_servers=servers)


def test_topics_are_named_one_by_one() -> None:
    with pytest.raises(TypeError, match=r"topic \['a', 'b'\]: it must be a str; give several topics one by one"):
        Consumer(["a", "b"], bootstrap_servers=SERVERS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^auto_commit='no': it must be True or False"):
        Consumer("a", bootstrap_servers=SERVERS, auto_commit="no")  # type: ignore[arg-type]


def test_a_blocking_client_that_is_refused_leaves_no_thread_behind() -> None:
    with pytest.raises(TypeError, match="max_block_ms"):
        blocking.Consumer("t", bootstrap_servers=SERVERS, max_block_ms="1")  # type: ignore[arg-type]


def test_a_loop_says_what_its_numbers_may_be() -> None:
    consumer = Consumer("t", bootstrap_servers=SERVERS, group_id="g", auto_commit=False)
    producer = Producer(SERVERS, transactional_id="id")
    with pytest.raises(TypeError, match="max_records='5': it must be a whole number"):
        ExactlyOnce(consumer, producer, max_records="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="linger_ms=-1: it must be 0 milliseconds or more"):
        ExactlyOnce(consumer, producer, linger_ms=-1)


def test_what_makes_sense_is_taken() -> None:
    check_milliseconds(zero=0, some=2.5, endless=math.inf)
    check_counts(one=1)
    check_counts(0, none=0)


@pytest.mark.parametrize("client", [Producer, blocking.Producer])
def test_what_is_prepared_to_be_ended_by_another_has_an_id(client: Any) -> None:
    with pytest.raises(ValueError, match="transaction_two_phase_commit_enable=True needs a transactional_id"):
        client(SERVERS, transaction_two_phase_commit_enable=True)
    Producer(SERVERS, transaction_two_phase_commit_enable=True, transactional_id="id")


def test_no_more_batches_are_in_flight_than_a_broker_knows_again() -> None:
    Producer(SERVERS, max_in_flight_requests_per_connection=5)
    with pytest.raises(ValueError, match="max_in_flight_requests_per_connection=6: it must be from 1 to 5"):
        Producer(SERVERS, max_in_flight_requests_per_connection=6)


@pytest.mark.parametrize("client", [Producer, blocking.Producer])
def test_no_record_may_wait_for_others_until_its_time_is_over(client: Any) -> None:
    for linger_ms, delivery_timeout_ms in ((1000, 1000), (1001, 1000), (120_000, 120_000), (0.5, 0)):
        with pytest.raises(ValueError, match=f"linger_ms={linger_ms} is not less than delivery_timeout_ms="):
            client(SERVERS, linger_ms=linger_ms, delivery_timeout_ms=delivery_timeout_ms)
    for linger_ms, delivery_timeout_ms in ((999, 1000), (0, 0), (0, 1)):
        Producer(SERVERS, linger_ms=linger_ms, delivery_timeout_ms=delivery_timeout_ms)
