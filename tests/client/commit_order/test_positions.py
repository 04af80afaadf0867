"""Positions in commit order: committed, gone back to, handed over, and those that are none."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest
from tests.client.test_commit_order import AT, begin, check, commit, load, reader, said, send, values, writer
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import (
    Admin,
    ConsumerRecord,
    OffsetAndMetadata,
    PositionMetadataError,
    positions,
)
from fencepost.client.errors import MisuseError, NoOffsetError
from fencepost.simulation.world import ADDRESS, World


def test_a_number_and_foreign_metadata_are_no_positions_in_commit_order() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        foreign = {AT: OffsetAndMetadata(1, "host-7")}
        async with member(world, "tool", group_id="g") as tool:
            await tool.commit(foreign)
        async with reader(world) as ordered:
            for _ in range(2):
                with pytest.raises(PositionMetadataError, match=r"t-0.*host-7.*seek"):
                    await take(ordered, 1)
            for wrong in ({AT: 2}, {AT: OffsetAndMetadata(2), PARTITIONS[1]: 0}):
                with pytest.raises(MisuseError, match="next_offsets"):
                    await ordered.commit(wrong)  # type: ignore[arg-type]
            with pytest.raises(PositionMetadataError):
                await ordered.commit(foreign)
            with pytest.raises(PositionMetadataError):
                ordered.seek(AT, foreign[AT])
            ordered.seek(AT, 2)
            assert values(await take(ordered, 2, 1)) == [b"2"]
            with pytest.raises(PositionMetadataError):
                ordered.seek(AT, foreign[AT])
            assert ordered.position(AT) == 3
            await ordered.commit({AT: OffsetAndMetadata(1)})
        async with reader(world, "next") as ordered:
            assert values(await take(ordered, 3, 1)) == [b"1", b"2"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("reset", ["earliest", "error"])
def test_a_position_behind_the_end_of_the_log_is_named_and_nothing_is_passed_over(
    reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an unclean election: the log has lost what was delivered last."""

    async def scenario(world: World) -> None:
        await commit(world, "a", b"a0", b"a1")
        async with reader(world, "first") as ordered:
            assert values(await take(ordered, 2)) == [b"a0", b"a1"]
            end = (await ordered.end_offsets([AT]))[AT]
            lost = OffsetAndMetadata(1, f"commit-order/1 {end + 1}")
            await ordered.commit({AT: lost, PARTITIONS[1]: OffsetAndMetadata(0)})
        async with reader(world, "second", auto_offset_reset=reset) as ordered:
            if reset == "error":
                with pytest.raises(NoOffsetError, match="seek"):
                    await take(ordered, 1)
                ordered.seek(AT, end)
            else:
                assert values(await take(ordered, 2)) == [b"a0", b"a1"]
                assert any("reading begins anew" in line for line in said(caplog))
            await commit(world, "b", b"b0")
            assert values(await take(ordered, 1)) == [b"b0"]

    with caplog.at_level(logging.WARNING):
        simulate(scenario, **SHORT_SESSIONS)


def test_a_position_at_the_end_of_the_log_is_kept() -> None:
    async def scenario(world: World) -> None:
        async with await begin(world, "open", b"o0"), reader(world, "first") as ordered:
            await commit(world, "a", b"a0")
            assert values(await take(ordered, 1)) == [b"a0"]
            await ordered.commit()
            end = (await ordered.end_offsets([AT]))[AT]
            assert (await ordered.committed([AT]))[AT] == OffsetAndMetadata(0, f"commit-order/1 {end}")
            await ordered.close()
            async with reader(world, "second", auto_offset_reset="error") as second:
                await commit(world, "b", b"b0")
                assert values(await take(second, 1)) == [b"b0"]

    simulate(scenario, **SHORT_SESSIONS)


def test_seeking_goes_back_to_exactly_where_a_position_was() -> None:
    async def scenario(world: World) -> None:
        async with await begin(world, "forgotten", b"f0") as forgotten, reader(world, group_id=None) as ordered:
            await commit(world, "id", b"0", b"1", b"2")
            assert values(await ordered.poll(1000, max_records=2)) == [b"0", b"1"]
            inside = ordered.next_offsets()
            assert inside[AT] == OffsetAndMetadata(0, "commit-order/1 4 2")
            for _ in range(3):
                assert values(await take(ordered, 1)) == [b"2"]
                ordered.seek(AT, inside[AT])
                assert ordered.next_offsets() == inside and ordered.position(AT) == 0
            assert values(await take(ordered, 1)) == [b"2"]
            await forgotten.commit_transaction()
            assert values(await take(ordered, 1)) == [b"f0"]
            ordered.seek(AT, 2)
            assert values(await take(ordered, 2)) == [b"1", b"2"]
            assert await take(ordered, 1, 1) == []

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("level", [1, 2])
def test_positions_are_committed_with_a_transaction_and_gone_back_to_after_an_abort(level: int) -> None:
    """Consume, transform, produce."""
    chance = random.Random(f"loop {level}")

    async def scenario(world: World) -> None:
        sent: dict[int, list[list[bytes]]] = {0: [], 1: []}
        done: list[ConsumerRecord] = []
        async with await begin(world, "forgotten", b"f"), writer(world, "loop") as out, asyncio.TaskGroup() as tasks:
            loads = [tasks.create_task(load(world, chance, f"id-{n}", 8, sent)) for n in range(2)]
            await out.init_transactions()
            async with reader(world, transaction_buffer_bytes=200) as ordered:
                idle = 0
                while idle < 3:
                    found = await ordered.poll(500, max_records=chance.randint(1, 5))
                    idle = 0 if found or not all(each.done() for each in loads) else idle + 1
                    await out.begin_transaction()
                    await out.send_offsets_to_transaction(ordered.next_offsets(), ordered.group_metadata())
                    if chance.random() < 0.5:
                        await out.commit_transaction()
                        done += found
                    else:
                        await out.abort_transaction()
                        for at, position in (await ordered.committed(ordered.assignment())).items():
                            ordered.seek(at, 0 if position is None else position)
                        idle = min(idle, 2)
        check(done, sent)

    simulate(scenario, transaction_version=level, **SHORT_SESSIONS)


@pytest.mark.parametrize("seed", range(4))
def test_members_that_come_and_go_hand_over_whole_positions(seed: int) -> None:
    """Each commits by itself what it was done with before its partitions go to others."""
    chance = random.Random(f"members {seed}")

    async def scenario(world: World) -> None:
        sent: dict[int, list[list[bytes]]] = {0: [], 1: []}
        done: list[ConsumerRecord] = []

        async def live(name: str, first: float, until: asyncio.Event) -> None:
            await asyncio.sleep(first)
            options: dict[str, Any] = {
                "auto_commit": True,
                "auto_commit_interval_ms": 50,
                **{"session_timeout_ms": 30_000},
            }
            async with reader(world, name, transaction_buffer_bytes=chance.choice((0, 10**6)), **options) as ordered:
                while not until.is_set():
                    done.extend(await ordered.poll(100, max_records=chance.randint(1, 5)))
                while found := await ordered.poll(0):
                    done.extend(found)  # and all of it is done now

        async with await begin(world, "forgotten", b"f"):
            gone, over = asyncio.Event(), asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(live("first", 0, over))
                tasks.create_task(live("second", 0.5, gone))
                await asyncio.gather(*(load(world, chance, f"id-{n}", 8, sent) for n in range(3)))
                gone.set()
                await asyncio.sleep(5)
                over.set()
        check(done, sent)

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", ["poll", "poll_batch", "iteration"])
def test_who_is_closed_at_work_has_all_of_a_position_stored_that_is_before_it(how: str) -> None:
    """Where the oldest open transaction begins is not enough: what was delivered behind that would come again."""

    async def scenario(world: World) -> None:
        async with await begin(world, "forgotten", b"f"):
            await commit(world, "id", b"0", b"1")
            await commit(world, "id", b"2", b"3")
            async with reader(world, auto_commit=True, auto_commit_interval_ms=60_000) as ordered:
                assert values([await anext(ordered) for _ in range(2)]) == [b"0", b"1"]
                if how == "poll":
                    at_work = await ordered.poll(1000, max_records=1)
                elif how == "poll_batch":
                    at_work = list(await ordered.poll_batch(1000) or ())
                else:
                    at_work = [await anext(ordered)]
                assert values(at_work)[0] == b"2"
            async with reader(world, "after") as ordered:
                assert values(await take(ordered, 3, 2)) == [b"2", b"3"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_topic_made_anew_has_nothing_of_the_old_one() -> None:
    async def scenario(world: World) -> None:
        old = await begin(world, "old", b"old")
        async with Admin(ADDRESS, runtime=world.runtime("remaker")) as admin, reader(world) as ordered:
            await commit(world, "id", b"before")
            assert values(await take(ordered, 1)) == [b"before"]
            await ordered.commit()
            await admin.delete_topic("t")
            await admin.create_topic("t", partitions=2)
            await commit(world, "other", b"new")
            assert values(await take(ordered, 2, 5)) == [b"new"]
            assert ordered.open_transactions() == []
            assert ordered.next_offsets()[AT] == OffsetAndMetadata(2)
            await ordered.commit()
        await old.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_from_the_latest_on_each_transaction_comes_whole() -> None:
    async def scenario(world: World) -> None:
        started = await begin(world, "open", b"o0")
        await commit(world, "before", b"b")
        async with reader(world, group_id=None, auto_offset_reset="latest") as ordered:
            assert await take(ordered, 1, 1) == []
            await send(started, b"o1")
            await started.commit_transaction()
            await started.close()
            assert values(await take(ordered, 3, 2)) == [b"o0", b"o1"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("ends", ["commits", "aborts"])
def test_from_the_latest_on_none_comes_in_part_that_ends_while_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """It goes on between two questions: where the oldest that is open begins, and where the log ends."""
    look_up, asked = positions.list_offsets, list[Any]()

    async def scenario(world: World) -> None:
        started = await begin(world, "open", b"o0")

        async def meanwhile(*given: Any, **more: Any) -> Any:
            found = await look_up(*given, **more)
            asked.append(given)
            if len(asked) == 1:
                await send(started, b"o1")
                await (started.commit_transaction() if ends == "commits" else started.abort_transaction())
            return found

        monkeypatch.setattr(positions, "list_offsets", meanwhile)
        async with reader(world, group_id=None, auto_offset_reset="latest") as ordered:
            assert await take(ordered, 1, 2) == []
            await commit(world, "later", b"later")
            assert values(await take(ordered, 1, 2)) == [b"later"]
        assert len(asked) > 1
        await started.close()

    simulate(scenario, **SHORT_SESSIONS)
