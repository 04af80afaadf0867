"""What a producer or consumer is given and cannot use is refused with a sentence, and the next call works."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.client.admin.test_checks import PLAIN
from tests.client.test_producer import simulate

from fencepost.client import (
    ClientError,
    ClosedError,
    Consumer,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    blocking,
)
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
RECORD: dict[str, Any] = {"value": b"", "key": b"k", "timestamp": 1, "headers": [("h", b"")]}
#: method -> arguments that it takes
PRODUCER: dict[str, dict[str, Any]] = {
    "send": {"topic": "t", "partition": 0, **RECORD},
    "send_and_wait": {"topic": "t", "partition": 0, **RECORD},
    "send_many": {"topic": "t", "values": [b""], "keys": [b"k"], "partition": 0, "timestamp": 1},
    "send_arrow": {"topic": "t", "rows": pa.table({"value": [b""]}), "partition": 0, "timestamp": 1},
    "flush": {"timeout_ms": 100},
    "close": {"timeout_ms": 100},
    "partitions_for": {"topic": "t"},
    "init_transactions": {"keep_prepared": False},
    "send_offsets_to_transaction": {"offsets": {AT: 1}, "group": ConsumerGroupMetadata("g")},
    "complete_transaction": {"prepared": "1:1"},
}
CONSUMER: dict[str, dict[str, Any]] = {
    "assign": {"partitions": [AT]},
    "beginning_offsets": {"partitions": [AT], "timeout_ms": 100},
    "close": {"timeout_ms": 100},
    "commit": {"offsets": {AT: 1}},
    "commit_async": {"offsets": {AT: 1}, "callback": print},
    "committed": {"partitions": [AT]},
    "end_offsets": {"partitions": [AT], "timeout_ms": 100},
    "lag": {"partitions": [AT]},
    "offsets_for_times": {"times": {AT: 0}},
    "partitions_for_topic": {"topic": "t"},
    "pause": {"partitions": [AT]},
    "poll": {"timeout_ms": 10, "max_records": 1},
    "poll_batch": {"timeout_ms": 10},
    "position": {"at": AT},
    "resume": {"partitions": [AT]},
    "seek": {"at": AT, "offset": 0},
    "seek_to_beginning": {"partitions": [AT]},
    "seek_to_committed": {"otherwise": {AT: 0}},
    "seek_to_end": {"partitions": [AT]},
    "subscribe": {"pattern": "t", "listener": None},
}
TAKE_NOTHING = {
    Producer: {
        *("abandon", "abort_transaction", "begin_transaction", "commit_transaction", "prepare_transaction"),
        *("start", "statistics", "transaction"),
    },
    Consumer: {
        *("assignment", "batches", "check_transactional", "group_metadata", "next_offsets", "open_transactions"),
        *("paused", "subscription", "topics", "unsubscribe"),
    },
}
#: What a loop of transactions asks a consumer, with what that gave it.
NOT_OF_THE_USER = {"as_of_now"}
WRONG: list[Any] = [
    *(each for each in PLAIN if not isinstance(each, str) or len(each) < 100),
    *(float("inf"), -0.5, 10**400, "1:", "(", "a/b", "..", bytearray(b"x"), re.compile(b"t"), print, range(2)),
    *([None], ["t"], [b"t", "t"], [1], [[]], [("h", 1)], [("h",)], [(None, b"")], [AT, None], iter([AT, 1])),
    *({"t": 1}, {1: 2}, {AT: None}, {AT: -1}, {AT: 2**63}, {AT: {}}, {AT: OffsetAndMetadata(1, "\ud800")}),
    *(ConsumerGroupMetadata("g", 2**31), ConsumerGroupMetadata("\ud800"), pa.table({"value": [1]}), pa.table({})),
]
SAYS = re.compile(r"\b(give|must|empty|or more|or less|may have|there is no|has|twice|is no|cannot|not as many|cast)\b")
#: A client can do them once.
ONLY_ONCE = {"close", "init_transactions", "complete_transaction"}


@pytest.mark.parametrize(("kind", "right"), [(Producer, PRODUCER), (Consumer, CONSUMER)])
def test_every_call_is_tried_with_every_argument(kind: type[Any], right: dict[str, dict[str, Any]]) -> None:
    methods = {name: method for name, method in inspect.getmembers(kind, callable) if not name.startswith("_")}
    assert methods.keys() == {*right, *TAKE_NOTHING[kind], *(NOT_OF_THE_USER & methods.keys())}
    for name in TAKE_NOTHING[kind]:
        assert list(inspect.signature(methods[name]).parameters) == ["self"]
    for name, arguments in right.items():
        assert {"self", *arguments} == {*inspect.signature(methods[name]).parameters} - {"topics"}


async def what_comes_of(call: Callable[[], Any], given: str, unsaid: list[str]) -> None:
    """Whatever is refused is refused with a sentence of ours; if not, `unsaid` gets what was said."""
    try:
        answer = call()
        if inspect.isawaitable(answer):
            await answer
    except ClientError:
        pass
    except (TypeError, ValueError) as error:
        if not SAYS.search(str(error)) or "' object " in str(error):
            unsaid.append(f"{given}: {error!r}")
    except Exception as error:
        unsaid.append(f"{given}: {error!r}")


def wrong_for(right: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What is given, named, with one argument that is wrong."""
    return [(f"{name}={wrong!r}", right | {name: wrong}) for name in right for wrong in WRONG]


@pytest.mark.parametrize("call", sorted(PRODUCER.keys() - ONLY_ONCE - {"send_offsets_to_transaction"}))
def test_a_producer_refuses_with_a_sentence_and_writes_on(call: str) -> None:
    unsaid: list[str] = []

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), max_block_ms=500) as writer:
            for name, given in wrong_for(PRODUCER[call]):
                await what_comes_of(lambda g=given: getattr(writer, call)(**g), name, unsaid)  # type: ignore[misc]
                assert (await writer.send_and_wait("t", b"good", partition=1)).partition == 1

    simulate(scenario)
    assert unsaid == []


def test_a_transaction_goes_on_without_the_positions_that_are_refused() -> None:
    unsaid: list[str] = []
    right = PRODUCER["send_offsets_to_transaction"]

    async def scenario(world: World) -> None:
        how: dict[str, Any] = {"transactional_id": "id", "max_block_ms": 500}
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **how) as writer:
            await writer.init_transactions()
            for name, given in wrong_for(right):
                async with writer.transaction():
                    await what_comes_of(
                        lambda g=given: writer.send_offsets_to_transaction(**g),  # type: ignore[misc]
                        *(name, unsaid),
                    )
                    await writer.send("t", b"good", partition=0)

    simulate(scenario)
    assert unsaid == []


@pytest.mark.parametrize("call", sorted(ONLY_ONCE))
@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_what_is_done_once_is_done_after_it_was_refused(kind: type[Any], call: str) -> None:
    """Of a `close` that was refused nothing is left half closed."""
    unsaid: list[str] = []
    right = (PRODUCER if kind is Producer else CONSUMER).get(call, {})

    async def scenario(world: World) -> None:
        for name, given in wrong_for(right):
            how: dict[str, Any] = {"bootstrap_servers": ADDRESS, "max_block_ms": 500}
            if kind is Producer and call != "close":
                how["transactional_id"] = "id"
            client = kind(runtime=world.runtime("client"), **how)
            try:
                if kind is Producer:
                    await client.start()
                await what_comes_of(lambda c=client, g=given: getattr(c, call)(**g), name, unsaid)  # type: ignore[misc]
            finally:
                await client.close()
            if call == "close":
                with pytest.raises(ClosedError):
                    await (client.send("t", b"") if kind is Producer else client.poll(0))

    simulate(scenario)
    assert unsaid == []


@pytest.mark.parametrize("how", ["offset_order", "commit_order"])
@pytest.mark.parametrize("call", sorted(CONSUMER.keys() - ONLY_ONCE))
def test_a_consumer_refuses_with_a_sentence_and_reads_on(call: str, how: str) -> None:
    unsaid: list[str] = []

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for _ in range(10):
                await writer.send("t", b"", partition=0)
        settings: dict[str, Any] = {
            "bootstrap_servers": ADDRESS,
            "group_id": "g",
            "auto_commit": False,
            "delivery": how,
        }
        async with Consumer(runtime=world.runtime("reader"), max_block_ms=5000, **settings) as reader:
            for name, given in wrong_for(CONSUMER[call]):
                if call != "subscribe":
                    reader.assign([AT])
                    if not reader.assignment() or call not in ("assign", "position"):
                        await reader.poll(2000 if call == "seek_to_committed" else 100)
                await what_comes_of(lambda g=given: getattr(reader, call)(**g), name, unsaid)  # type: ignore[misc]
                await reader.unsubscribe()
                reader.assign([AT])
                reader.seek(AT, 5)
                found = await reader.poll(1000, 1)
                assert [record.offset for record in found] == [5], name
                await reader.unsubscribe()

    simulate(scenario)
    assert unsaid == []


def test_a_time_that_is_none_leaves_the_event_loop_its_timers() -> None:
    """A timer of NaN would be in the middle of them, and none behind it due in its time."""

    async def scenario(world: World) -> None:
        async with (
            Producer(ADDRESS, runtime=world.runtime("writer"), max_block_ms=500, delivery_timeout_ms=500) as writer,
            Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader,
        ):
            calls: list[Callable[[Any], Awaitable[object]]] = [
                lambda time: writer.flush(time),
                lambda time: writer.close(time),
                lambda time: reader.close(time),
                lambda time: reader.end_offsets([AT], time),
                lambda time: reader.beginning_offsets([AT], time),
            ]
            for call in calls:
                for time in (float("nan"), -1, "1", True, 10**400):
                    with pytest.raises((TypeError, ValueError), match=r"^timeout_ms=.*: it must be"):
                        await call(time)
            began = world.loop.time()
            await asyncio.gather(*(asyncio.sleep(n / 10) for n in range(10)))
            assert 0.9 <= world.loop.time() - began < 1
            assert (await writer.send_and_wait("t", b"", partition=0)).offset == 0
            reader.assign([AT])
            assert len(await reader.poll(1000)) == 1, "a close that was refused closed nothing"

    simulate(scenario)


def test_a_blocking_producer_refuses_what_is_not_several() -> None:
    with blocking.Producer("127.0.0.1:1", max_block_ms=100) as writer:
        wrong: list[dict[str, Any]] = [
            *({"values": None}, {"values": b"one"}),
            *({"values": [b""], "keys": 5}, {"values": [b""], "keys": "one"}),
        ]
        for given in wrong:
            with pytest.raises(TypeError, match=r"^(values|keys)=.*: give several"):
                writer.send_many("t", **given)


@pytest.mark.parametrize("one", [b"", b"record", "", "record", bytearray(b"record"), memoryview(b"record")])
@pytest.mark.parametrize("which", ["values", "keys"])
def test_one_record_is_not_taken_for_several(which: str, one: Any) -> None:
    """Its bytes, or letters, are no records; and of an empty one nothing would be sent, without a word."""

    async def scenario(world: World) -> None:
        given: dict[str, Any] = {"values": [], which: one}
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with pytest.raises(TypeError, match=f"^{which}=.*: give several, as in "):
                await writer.send_many("t", **given)

    simulate(scenario)


@pytest.mark.parametrize("wrong", [0, -1, "5", 1.5, None])
def test_how_many_records_is_refused_whether_there_are_some_or_not(wrong: Any) -> None:
    async def scenario(world: World) -> None:
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            reader.assign([AT])
            with pytest.raises((TypeError, ValueError), match=r"^max_records=.*: it must be"):
                await reader.poll(0, wrong)

    simulate(scenario)


def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_committed() -> None:
    async def scenario(world: World) -> None:
        how: dict[str, Any] = {"bootstrap_servers": ADDRESS, "group_id": "g"}
        async with Consumer(runtime=world.runtime("reader"), **how) as reader:
            with pytest.raises(TypeError, match=r"^callback=5: it must be something to call"):
                reader.commit_async({AT: 1}, 5)  # type: ignore[arg-type]
            assert await reader.committed([AT]) == {AT: None}

    simulate(scenario)
