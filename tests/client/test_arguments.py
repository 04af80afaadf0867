"""What a producer or consumer is given that makes no sense is refused with a sentence, and nothing is spoiled by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.client.test_producer import producer, shown, simulate

from fencepost.client import Admin, Consumer, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.client.arguments import several, text, whole_number
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
HALF = "\ud800"
LONG = "x" * 32_768
#: positions that nobody can commit, and what is said of each
WRONG_POSITIONS: list[tuple[Any, str]] = [
    ({AT: -1}, r"^offsets\[t-0\]=-1: an offset is 0 or more$"),
    ({AT: 2**63}, r"^offsets\[t-0\]=9223372036854775808: it must be from"),
    ({AT: "5"}, r"^offsets\[t-0\]='5': it must be a whole number$"),
    ({AT: 1.5}, r"^offsets\[t-0\]=1.5: it must be a whole number$"),
    ({AT: None}, r"^offsets\[t-0\]=None: it must be a whole number$"),
    ({AT: OffsetAndMetadata(1, HALF)}, r"^metadata of offsets\[t-0\].*: it has halves of characters"),
    ({AT: OffsetAndMetadata(1, LONG)}, r"^metadata of offsets\[t-0\].*: it has 32768 bytes"),
    ({AT: OffsetAndMetadata(1, "", 2**31)}, r"^leader_epoch of offsets\[t-0\]"),
    ({("t", 2**31): 1}, r"^partition=2147483648: it must be from 0"),
    ({("t", -1): 1}, r"^partition=-1: it must be from 0"),
    ({(HALF, 0): 1}, r"^topic=.*: it has halves of characters"),
    ({(5, 0): 1}, r"^topic=5: it must be a str$"),
    ({"t": 1}, r"^'t' is no partition: give a TopicPartition"),
    ([1], r"^offsets=\[1\]: give a dict$"),
]
WRONG_GROUPS: list[tuple[Any, str]] = [
    (5, "^group=5: it must be a str$"),
    (HALF, "^group=.*: it has halves of characters"),
    (LONG, "^group=.*: it has 32768 bytes"),
    (ConsumerGroupMetadata("g", 2**31), "^generation_id=2147483648: it must be from -1"),
    (ConsumerGroupMetadata("g", 1, HALF), "^member_id=.*: it has halves of characters"),
    (ConsumerGroupMetadata("g", 1, "m", HALF), "^group_instance_id=.*: it has halves of characters"),
]


async def refused(call: Callable[[], Awaitable[object]], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        await call()


@pytest.mark.parametrize("level", [1, 2])
def test_positions_that_are_none_stay_out_of_a_transaction_which_goes_on(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"good", partition=0)
            for offsets, said in WRONG_POSITIONS:
                await refused(lambda o=offsets: writer.send_offsets_to_transaction(o, "g"), said)  # type: ignore[misc]
            for group, said in WRONG_GROUPS:
                await refused(lambda g=group: writer.send_offsets_to_transaction({AT: 1}, g), said)  # type: ignore[misc]
            await writer.send_offsets_to_transaction({AT: 1}, "g")
            await writer.commit_transaction()
        assert await shown(world) == [b"good"]

    simulate(scenario, level)


def test_a_consumer_reads_on_whatever_it_was_given() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"good", partition=0)
        options: dict[str, Any] = {"group_id": "g", "auto_commit": False, "runtime": world.runtime("reader")}
        async with Consumer("t", bootstrap_servers=ADDRESS, **options) as consumer:
            assert [record.value for record in await consumer.poll(5000)] == [b"good"]
            await consumer.commit({AT: 0})
            wrong: Mapping[str, list[Callable[[Any], Awaitable[object]]]] = {
                "position": [consumer.commit, lambda given: _now(consumer.commit_async, given, None)],
                "place": [
                    lambda at: consumer.committed([at]),
                    lambda at: consumer.end_offsets([at]),
                    lambda at: consumer.beginning_offsets([at]),
                    lambda at: consumer.offsets_for_times({at: 0}),
                    lambda at: consumer.seek_to_end([at]),
                    lambda at: _now(consumer.seek, at, 0),
                    lambda at: _now(consumer.pause, [at]),
                ],
            }
            for call in wrong["position"]:
                for offsets, said in WRONG_POSITIONS:
                    await refused(lambda c=call, o=offsets: c(o), said)  # type: ignore[misc]
            for call in wrong["place"]:
                for at, said in (("t", -1), "^partition=-1"), ((5, 0), "^topic=5"), (("t",), "is no partition"):
                    await refused(lambda c=call, a=at: c(a), said)  # type: ignore[misc]
            for offset in (-1, 2**63, "1", 1.5, None):
                await refused(lambda o=offset: _now(consumer.seek, AT, o), "^offset=")  # type: ignore[misc]
            for timeout in (-1, "1", None, float("nan")):
                await refused(lambda t=timeout: consumer.poll(t), "^timeout_ms=")  # type: ignore[misc]
                await refused(lambda t=timeout: consumer.poll_batch(t), "^timeout_ms=")  # type: ignore[misc]
            for most in (0, -1, "1", 1.5):
                await refused(lambda m=most: consumer.poll(10, m), "^max_records=")  # type: ignore[misc]
            consumer.seek(AT, 0)
            assert [record.value for record in await consumer.poll(5000)] == [b"good"]
            assert (await consumer.committed([AT]))[AT] == OffsetAndMetadata(0)

    simulate(scenario)


async def _now(call: Callable[..., object], *given: Any) -> None:
    call(*given)


def test_partitions_to_read_are_partitions() -> None:
    async def scenario(world: World) -> None:
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as consumer:
            consumer.assign([AT])
            for at in ("t", ("t", -1), (5, 0), (HALF, 0)):
                with pytest.raises((TypeError, ValueError), match=r"is no partition|^partition=|^topic="):
                    consumer.assign([at])  # type: ignore[list-item]
            await consumer.poll(100)
            assert consumer.assignment() == [AT]

    simulate(scenario)


def test_a_whole_number_of_another_library_is_one() -> None:
    class Theirs:
        def __index__(self) -> int:
            return 5

    assert whole_number("offset", Theirs()) == 5


@pytest.mark.parametrize("given", [True, False])
def test_a_truth_is_no_number(given: bool) -> None:
    with pytest.raises(TypeError, match=f"offset={given}: it must be a whole number"):
        whole_number("offset", given)


@pytest.mark.parametrize("given", ["orders", b"orders", "", 5])
def test_a_name_is_not_the_names_of_its_letters(given: object) -> None:
    with pytest.raises(TypeError, match=r"give several"):
        several("topics", given)
    assert several("topics", ("orders", "payments")) == ["orders", "payments"]


@pytest.mark.parametrize("level", [1, 2])
def test_no_positions_make_no_group_a_part_of_the_transaction(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer, Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"good", partition=0)
            await writer.send_offsets_to_transaction({}, "g")
            described = (await admin.describe_transactions(["id"]))["id"]
            assert described is not None and list(described.partitions) == [AT]
            await writer.commit_transaction()

    simulate(scenario, level)


@pytest.mark.parametrize("letter", ["x", "ü", "€", "\N{GRINNING FACE}"])
def test_a_text_has_as_many_bytes_as_every_version_of_a_request_can_hold(letter: str) -> None:
    size = len(letter.encode())
    longest = letter * (32_767 // size)
    assert text("topic", longest) == longest
    with pytest.raises(
        ValueError, match=rf"^topic=.*: it has {len(longest + letter) * size} bytes, and may have 32767"
    ):
        text("topic", longest + letter)
