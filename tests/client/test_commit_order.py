"""Reading in commit order from the real broker, on virtual time: transactions, groups, restarts, retention, options."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from itertools import repeat
from typing import Any

import pytest
from tests.client.commit_order.reading import Disk
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import (
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    SpillError,
)
from fencepost.client.cluster import Cluster
from fencepost.client.commit_order import options as order_options
from fencepost.client.errors import MisuseError, NoOffsetError
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.simulation.world import ADDRESS, World

AT = PARTITIONS[0]
PATIENT_WRITER: dict[str, Any] = {"transaction_timeout_ms": 300_000}


def reader(world: World, name: str = "reader", **options: Any) -> Consumer:
    """In a group; it commits only what it is told to."""
    return member(world, name, delivery="commit_order", **options)


def writer(world: World, name: str = "id") -> Producer:
    runtime = world.runtime(f"{name}-{world.random.random()}")
    return Producer(ADDRESS, transactional_id=name, runtime=runtime, **PATIENT_WRITER)


async def begin(world: World, name: str, *values: bytes, partition: int = 0) -> Producer:
    """A producer whose transaction is open, with these records."""
    started = await writer(world, name).start()
    await started.init_transactions()
    await started.begin_transaction()
    await send(started, *values, partition=partition)
    return started


async def send(started: Producer, *values: bytes, partition: int = 0) -> None:
    for value in values:
        await (await started.send("t", value, partition=partition))


async def commit(world: World, name: str, *values: bytes, partition: int = 0) -> None:
    """A transaction of its own with these records."""
    async with await begin(world, name, *values, partition=partition) as started:
        await started.commit_transaction()


def values(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value or b"" for record in records]


@pytest.mark.promise("2014.commit-order")
def test_a_forgotten_transaction_delays_nobody_and_is_delivered_if_it_ends_after_all() -> None:
    async def scenario(world: World) -> None:
        async with reader(world) as ordered, await begin(world, "forgotten", b"f0") as forgotten:
            await commit(world, "other", b"o0", b"o1")
            await send(forgotten, b"f1")
            await write(world, [b"plain"])
            assert values(await take(ordered, 3)) == [b"o0", b"o1", b"plain"]
            (found,) = ordered.open_transactions()
            assert (found.partition, found.first_offset) == (AT, 0) and found.in_memory > 0 == found.on_disk
            assert found.open_for_ms >= 0 and found.producer_id >= 0 and found.producer_epoch >= 0
            assert ordered.position(AT) == 0 and (await ordered.end_offsets([AT]))[AT] == 6
            async with member(world, "usual", group_id=None) as usual:
                assert await usual.poll(1000) == []
            await forgotten.commit_transaction()
            assert values(await take(ordered, 2)) == [b"f0", b"f1"]
            assert ordered.open_transactions() == [] and ordered.next_offsets()[AT] == OffsetAndMetadata(7)

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("iterates", [True, False])
def test_transactions_come_whole_in_the_order_of_their_commits(iterates: bool) -> None:
    async def scenario(world: World) -> None:
        opened = [await begin(world, f"id-{n}", b"%d-0" % n) for n in range(5)]
        for step in (1, 2):
            for n, each in enumerate(opened):
                await send(each, b"%d-%d" % (n, step))
        for n in (3, 0, 4, 1):
            await (opened[n].abort_transaction() if n == 4 else opened[n].commit_transaction())
        async with reader(world, auto_commit=True, auto_commit_interval_ms=10) as ordered:
            found = [await anext(ordered) for _ in range(9)] if iterates else await take(ordered, 9)
            assert values(found) == [b"%d-%d" % (n, step) for n in (3, 0, 1) for step in range(3)]
            assert [each.first_offset for each in ordered.open_transactions()] == [2]
            assert await ordered.poll(0) == []  # so all of that is done
        async with reader(world, "after") as ordered:
            assert (await ordered.committed([AT]))[AT] == OffsetAndMetadata(2, "commit-order/1 19")
            await opened[2].commit_transaction()
            assert values(await take(ordered, 4, 2)) == [b"2-0", b"2-1", b"2-2"]
        for each in opened:
            await each.close()

    simulate(scenario, **SHORT_SESSIONS)


async def load(world: World, chance: random.Random, name: str, count: int, sent: dict[int, list[list[bytes]]]) -> None:
    """Transactions in both partitions, one after the other; `sent`: those that were committed, by partition."""
    async with writer(world, name) as started:
        await started.init_transactions()
        for number in range(count):
            await started.begin_transaction()
            mine: dict[int, list[bytes]] = {0: [], 1: []}
            for n in range(chance.randint(1, 6)):
                partition = chance.randrange(2)
                mine[partition].append(b"%s-%d-%d" % (name.encode(), number, n))
                await started.send("t", mine[partition][-1], partition=partition)
                await asyncio.sleep(chance.choice((0, 0.02)))
            if chance.random() < 0.3:
                await started.abort_transaction()
            else:
                await started.commit_transaction()
                for partition, found in mine.items():
                    if found:
                        sent[partition].append(found)


def check(found: list[ConsumerRecord], sent: dict[int, list[list[bytes]]]) -> None:
    """Each transaction once, in one piece."""
    for partition, transactions in sent.items():
        rest = [record.value or b"" for record in found if record.partition == partition]
        by_first = {each[0]: each for each in transactions}
        while rest:
            whole = by_first.pop(rest[0])
            assert rest[: len(whole)] == whole
            del rest[: len(whole)]
        assert by_first == {}


@pytest.mark.promise("2014.offset-pair", "2014.inside-transaction", "2014.spill")
@pytest.mark.parametrize("seed", range(8))
def test_a_consumer_that_is_killed_at_any_step_loses_and_doubles_nothing(seed: int) -> None:
    """It works on what it is given, then commits; of what it did after its last commit it forgets everything."""
    chance = random.Random(f"killed {seed}")

    async def scenario(world: World) -> None:
        sent: dict[int, list[list[bytes]]] = {0: [], 1: []}
        done: list[ConsumerRecord] = []
        async with await begin(world, "forgotten", b"f"), asyncio.TaskGroup() as tasks:
            loads = [tasks.create_task(load(world, chance, f"id-{n}", 12, sent)) for n in range(3)]
            life = idle = 0
            while idle < 3:
                life += 1
                options = {"transaction_buffer_bytes": chance.choice((0, 300, 10**6)), "max_partition_fetch_bytes": 300}
                ordered = reader(world, f"life-{life}", **options)
                working: list[ConsumerRecord] = []
                for _ in range(chance.randint(1, 8)):
                    working += await ordered.poll(500, max_records=chance.randint(1, 7))
                    if chance.random() < 0.3:
                        await ordered.commit()
                        done += working
                        working = []
                killed = chance.choice(("before the commit", "after it", "in it"))
                if killed != "before the commit":
                    committing = asyncio.ensure_future(ordered.commit())
                    if killed == "in it":
                        await asyncio.sleep(0)
                        committing.cancel()
                        await asyncio.gather(committing, return_exceptions=True)
                        committed = await ordered.committed(PARTITIONS)
                        if committed == ordered.next_offsets():
                            done += working
                    else:
                        await committing
                        done += working
                idle = idle + 1 if all(each.done() for each in loads) and not working else 0
                await ordered.close()
        check([record for record in done if record.value != b"f"], sent)
        assert all(sent.values())

    simulate(scenario, **SHORT_SESSIONS)


async def delete_records(world: World, before: int) -> None:
    """As retention does."""
    cluster = Cluster(ADDRESS, runtime=world.runtime(f"deleter-{before}"))
    wanted = [DeleteRecordsPartition(partition_index=AT.partition, offset=before)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=AT.topic, partitions=wanted)], timeout_ms=1000)
    answer = await cluster.call_controller(request, deadline=cluster.deadline("deleting records"))
    assert answer.topics[0].partitions[0].error_code == 0
    await cluster.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("fencepost.client")]


def test_a_transaction_that_does_not_end_is_named_again_each_time_its_age_doubles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        async with await begin(world, "forgotten", b"f"), reader(world, open_transaction_warning_ms=10_000) as ordered:
            async with await begin(world, "slow", b"s") as slow:
                await take(ordered, 1, 9)
                assert said(caplog) == []
                await slow.commit_transaction()
            assert values(await take(ordered, 1)) == [b"s"]
            assert await take(ordered, 1, 50) == []
            (found,) = ordered.open_transactions()
        assert len(said(caplog)) == 3  # after 10 s, 20 s and 40 s
        for text in said(caplog):
            assert f"producer_id={found.producer_id} producer_epoch={found.producer_epoch}" in text
            assert text.startswith("t-0: ") and "transactional id ends it" in text
            assert "`fencepost transactions abort --topic t --partition 0 --start-offset 0` does" in text

    with caplog.at_level(logging.WARNING):
        simulate(scenario, **SHORT_SESSIONS)


def test_who_reads_slowly_does_not_take_what_has_ended_for_open(caplog: pytest.LogCaptureFixture) -> None:
    """Its end is in the log, and was not read yet."""

    async def scenario(world: World) -> None:
        started = await begin(world, "id", b"t")
        await write(world, [b"%d" % number for number in range(60)])
        await started.commit_transaction()
        await started.close()
        options: dict[str, Any] = {"open_transaction_warning_ms": 10_000, "max_partition_fetch_bytes": 100}
        async with reader(world, **options) as ordered, await begin(world, "other", b"o"):
            for _ in range(30):
                await ordered.poll(100, max_records=1)
                await asyncio.sleep(5)
            assert ordered.open_transactions()[0].first_offset == 0
        assert said(caplog) == []

    with caplog.at_level(logging.WARNING):
        simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_a_beginning_that_retention_has_passed_is_named_and_nothing_else_is_lost_or_doubled(
    reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with await begin(world, "forgotten", b"f0") as forgotten:
            await commit(world, "before", b"b")
            async with reader(world, "first", auto_offset_reset="earliest") as ordered:
                assert values(await take(ordered, 1)) == [b"b"]
                await ordered.commit()
                await delete_records(world, 2)
                await send(forgotten, b"f1")
                await take(ordered, 1, 1)
                (warning,) = said(caplog)
                assert "deleted from the log, which begins at 2 now" in warning and "at offset 0" in warning
                await commit(world, "after", b"a")  # which the first one does not commit
            caplog.clear()
            async with reader(world, "second", auto_offset_reset=reset) as ordered:
                if reset == "error":
                    with pytest.raises(NoOffsetError, match=r"the log begins at 2 now.*began at 0.*seek") as raised:
                        await take(ordered, 1)
                    kept = OffsetAndMetadata(2, "commit-order/1 3")
                    assert repr(kept) in str(raised.value)
                    ordered.seek(AT, kept)
                assert values(await take(ordered, 1, 2)) == [b"a"]
                if reset != "error":
                    (warning,) = said(caplog)
                    assert "the log begins at 2 now" in warning and "began at 0" in warning
                await forgotten.commit_transaction()
                assert values(await take(ordered, 2, 2)) == [b"f1"]

    with caplog.at_level(logging.WARNING):
        simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("delivery", ["commit_order", "offset_order"])
def test_what_was_fetched_is_handed_out_before_what_is_gone_is_passed_over(
    delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=50) as batching:
            for number in range(3):
                await batching.send("t", b"%d" % number, partition=0)
        async with member(world, "reader", delivery=delivery, group_id=None) as consumer:
            assert values(await consumer.poll(1000, max_records=1)) == [b"0"]
            await asyncio.sleep(0.2)  # the fetch of what follows has ended in vain
            await write(world, [b"3", b"4", b"5", b"6"])
            await delete_records(world, 5)
            found: list[bytes] = []
            for _ in range(4):
                found += values(await consumer.poll(1000, max_records=1))
                await asyncio.sleep(0.2)  # it hears that what follows is gone
            assert found == [b"1", b"2", b"5", b"6"]
        if delivery == "commit_order":
            (warning,) = said(caplog)
            assert "begins anew" in warning

    with caplog.at_level(logging.WARNING):
        simulate(scenario, **SHORT_SESSIONS)


def test_what_is_kept_of_a_partition_is_given_up_with_it() -> None:
    """Memory and disk are there for what is read next."""

    async def scenario(world: World) -> None:
        one = await begin(world, "one", b"0", b"1")
        two = await begin(world, "two", b"2", partition=1)
        async with one, two, reader(world, group_id=None, transaction_buffer_bytes=200) as ordered:
            await ordered.unsubscribe()
            for at in (*PARTITIONS, *PARTITIONS):
                ordered.assign([at])
                assert await take(ordered, 1, 1) == []
                (found,) = ordered.open_transactions()
                assert found.partition == at and found.in_memory > 0
                assert (found.on_disk > 0) == (at == AT)
            ordered.assign([AT])
            await one.commit_transaction()
            assert values(await take(ordered, 2)) == [b"0", b"1"]

    simulate(scenario, **SHORT_SESSIONS)


def test_what_is_paused_is_kept_and_handed_out_later() -> None:
    async def scenario(world: World) -> None:
        await commit(world, "id", b"0", b"1", b"2")
        async with reader(world, group_id=None, transaction_buffer_bytes=0) as ordered:
            assert values(await ordered.poll(1000, max_records=1)) == [b"0"]
            ordered.pause([AT])
            await write(world, [b"other"], partition=1)
            assert values(await take(ordered, 2, 1)) == [b"other"]
            ordered.resume([AT])
            assert values(await take(ordered, 2)) == [b"1", b"2"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_full_disk_stops_one_partition_with_a_sentence_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fate = repeat("failed")
    disk = Disk(fate)
    monkeypatch.setattr(order_options, "temporary_file", lambda _: disk.open())

    async def scenario(world: World) -> None:
        started = await begin(world, "id", *(b"%d" % number for number in range(9)))
        await write(world, [b"other"] * 3, partition=1)
        async with reader(world, transaction_buffer_bytes=300) as ordered:
            found = values(await ordered.poll(1000))
            while len(found) < 3:
                with suppress(SpillError):
                    found += values(await ordered.poll(1000))
            assert found == [b"other"] * 3
            for _ in range(3):
                with pytest.raises(SpillError, match=r"it fails.*make room"):
                    await ordered.poll(1000)
            await ordered.commit()
            disk.fate = repeat("short")
            await started.commit_transaction()
            assert values(await take(ordered, 9)) == [b"%d" % number for number in range(9)]
            assert len(disk.files) == 1
        assert disk.files[0].file.closed
        await started.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_what_cannot_be_read_back_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(repeat("well"))
    monkeypatch.setattr(order_options, "temporary_file", lambda _: disk.open())

    async def scenario(world: World) -> None:
        started = await begin(world, "id", *(b"%d" % number for number in range(9)))
        async with reader(world, transaction_buffer_bytes=200) as ordered:
            await take(ordered, 1, 1)
            await started.commit_transaction()
            found = values(await ordered.poll(1000, max_records=5))
            disk.fate = repeat("failed")
            found += values(await ordered.poll(1000))  # what was decoded before
            with pytest.raises(SpillError, match="cannot be read back"):
                await ordered.poll(1000)
            disk.fate = repeat("well")
            assert 5 <= len(found) < 9
            assert found + values(await take(ordered, 9, 2)) == [b"%d" % number for number in range(9)]
        await started.close()

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delivery": "commit"}, "offset_order, commit_order"),
        ({"delivery": "commit_order", "isolation_level": "read_uncommitted"}, "read_uncommitted"),
        ({"delivery": "commit_order", "transaction_buffer_bytes": -1}, "transaction_buffer_bytes=-1"),
        ({"delivery": "commit_order", "open_transaction_warning_ms": 0}, "open_transaction_warning_ms=0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Consumer("t", bootstrap_servers=ADDRESS, **options)


def test_in_offset_order_open_transactions_are_not_known() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader") as usual:
            with pytest.raises(MisuseError, match="commit_order"):
                usual.open_transactions()

    simulate(scenario)
