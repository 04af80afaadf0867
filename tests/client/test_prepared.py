"""Transactions whose end is decided elsewhere: prepared by one process, ended by it or by any other (KIP-939)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_producer import shown, simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import (
    BrokerError,
    ClientError,
    Consumer,
    ErrorCode,
    MisuseError,
    PreparedTxnState,
    Producer,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedByBrokerError,
)
from fencepost.client.prepared import two_phase_refusal
from fencepost.simulation.world import ADDRESS, PORT, World

END_TXN = 26
ALLOWED = {"transaction.two.phase.commit.enable": True}


def taking_part(world: World, *, two_phase: bool = True) -> Producer:
    """A producer of its own process, with the same transactional id as every other."""
    return Producer(
        ADDRESS,
        transactional_id="id",
        transaction_timeout_ms=1000,
        transaction_two_phase_commit_enable=two_phase,
        runtime=world.runtime(f"id-{world.random.random()}"),
    )


async def prepare(writer: Producer, value: bytes) -> PreparedTxnState:
    await writer.begin_transaction()
    await writer.send("t", value, partition=0)
    return await writer.prepare_transaction()


async def left_prepared(world: World, value: bytes = b"first", *, two_phase: bool = True) -> str:
    """Something to keep of a transaction whose process is no more."""
    async with taking_part(world, two_phase=two_phase) as writer:
        await writer.init_transactions()
        return str(await prepare(writer, value))


# What is kept


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_a_text_of_it_is_read_again(producer_id: int, epoch: int) -> None:
    state = PreparedTxnState(producer_id, epoch)
    assert str(state) == f"{producer_id}:{epoch}"
    assert PreparedTxnState.parse(str(state)) == state
    assert PreparedTxnState.parse(str(PreparedTxnState())) == PreparedTxnState()


@pytest.mark.parametrize(
    "text", ["1", "1:", ":1", "-1:-1", "1:-1", "1:1:1", " 1:1", "1:1\n", "a:b", "\u0661:\u0661", "1:32768"]
)
def test_what_is_no_such_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no prepared transaction"):
        PreparedTxnState.parse(text)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="prepared transaction"):
        PreparedTxnState.parse(None)  # type: ignore[arg-type]


# How it ends


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize("how", ["commit", "complete", "complete as text", "prepared again", "abort", "another"])
def test_the_process_that_prepared_it_ends_it(how: str, two_phase: bool) -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world, two_phase=two_phase) as writer:
            await writer.init_transactions()
            prepared = await prepare(writer, b"first")
            assert await shown(world) == []
            if how == "commit":
                await writer.commit_transaction()
            elif how == "abort":
                await writer.abort_transaction()
            elif how == "another":
                assert not await writer.complete_transaction(PreparedTxnState(*prepared)._replace(epoch=7))
            else:
                assert how != "prepared again" or prepared == await writer.prepare_transaction()
                assert await writer.complete_transaction(str(prepared) if how == "complete as text" else prepared)
                assert await writer.complete_transaction(prepared), "it is known to be"
            async with writer.transaction():
                await writer.send("t", b"next", partition=1)
            assert not await writer.complete_transaction(prepared), "the id was used since"
        assert sorted(await shown(world)) == ([b"next"] if how in ("abort", "another") else [b"first", b"next"])

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize("two_phase", [False, True])
def test_another_process_commits_it_before_it_takes_the_id_over(two_phase: bool) -> None:
    async def scenario(world: World) -> None:
        kept = await left_prepared(world, two_phase=two_phase)
        async with taking_part(world, two_phase=two_phase) as writer:
            for _ in range(2):
                assert await writer.complete_transaction(kept)
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"next", partition=1)
        async with taking_part(world, two_phase=two_phase) as later:
            assert not await later.complete_transaction(kept), "it had ended before, and the id was used since"
        assert sorted(await shown(world)) == [b"first", b"next"]

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize("matches", [True, False])
def test_another_process_takes_the_id_over_with_it(matches: bool) -> None:
    async def scenario(world: World) -> None:
        kept = await left_prepared(world)
        async with taking_part(world) as writer:
            await writer.init_transactions(keep_prepared=True)
            for call in (writer.begin_transaction(), writer.send("t", b"late")):
                with pytest.raises(MisuseError, match="its transaction is prepared"):
                    await call
            assert await writer.complete_transaction(kept if matches else "7:7") is matches
            async with writer.transaction():
                await writer.send("t", b"next", partition=1)
        assert sorted(await shown(world)) == ([b"first", b"next"] if matches else [b"next"])

    simulate(scenario, **ALLOWED)


def test_with_nothing_prepared_the_id_is_taken_over_as_ever() -> None:
    async def scenario(world: World) -> None:
        for kept, known in (("", True), ("5:1", False)):
            async with taking_part(world) as writer:
                await writer.init_transactions(keep_prepared=True)
                assert await writer.complete_transaction(kept) is known
                async with writer.transaction():
                    await writer.send("t", b"next", partition=1)
        assert await shown(world) == [b"next"] * 2

    simulate(scenario, **ALLOWED)


def test_who_takes_the_id_over_without_it_aborts_it() -> None:
    async def scenario(world: World) -> None:
        await left_prepared(world)
        async with taking_part(world) as writer:
            await writer.init_transactions()
        assert await shown(world) == []

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize("two_phase", [True, False])
def test_its_time_out_ends_it_unless_it_takes_part_in_two_phase_commits(two_phase: bool) -> None:
    async def scenario(world: World) -> None:
        kept = await left_prepared(world, two_phase=two_phase)
        await asyncio.sleep(60)
        async with taking_part(world, two_phase=two_phase) as writer:
            if two_phase:
                assert await writer.complete_transaction(kept)
            else:
                with pytest.raises(TransactionAbortedError, match=f"the prepared transaction {kept} of 'id'"):
                    await writer.complete_transaction(kept)
        assert await shown(world) == ([b"first"] if two_phase else [])

    simulate(scenario, **ALLOWED)


def test_positions_of_a_group_are_part_of_it() -> None:
    at = TopicPartition("t", 0)

    async def scenario(world: World) -> None:
        async with taking_part(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_offsets_to_transaction({at: 5}, "group")
            kept = str(await writer.prepare_transaction())
            assert kept
        async with taking_part(world) as other:
            assert await other.complete_transaction(kept)
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), group_id="group") as reader:
            found = (await reader.committed([at]))[at]
            assert found is not None and found.offset == 5

    simulate(scenario, **ALLOWED)


def test_one_without_records_is_nothing_to_complete() -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            prepared = await writer.prepare_transaction()
            assert str(prepared) == ""
            assert await writer.complete_transaction(prepared)
            async with writer.transaction():
                await writer.send("t", b"next", partition=1)
        async with taking_part(world) as other:
            assert await other.complete_transaction("")
        assert await shown(world) == [b"next"]

    simulate(scenario, **ALLOWED)


# While it is prepared


def test_neither_a_block_that_raises_nor_close_ends_it() -> None:
    kept = ""

    async def fail(world: World) -> None:
        nonlocal kept
        async with taking_part(world) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"first", partition=0)
                kept = str(await writer.prepare_transaction())
                with pytest.raises(MisuseError, match="its transaction is prepared"):
                    await writer.send("t", b"late", partition=0)
                raise ZeroDivisionError

    async def scenario(world: World) -> None:
        with pytest.raises(ZeroDivisionError) as raised:
            await fail(world)
        assert kept in raised.value.__notes__[0] and "stays prepared" in raised.value.__notes__[0]
        async with taking_part(world) as other:
            assert await other.complete_transaction(kept)
        assert await shown(world) == [b"first"]

    simulate(scenario, **ALLOWED)


def test_nothing_is_sent_in_it_while_its_records_are_waited_for() -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"first", partition=0)
            preparing = asyncio.ensure_future(writer.prepare_transaction())
            await asyncio.sleep(0)
            assert not preparing.done(), "nothing is acknowledged yet"
            with pytest.raises(MisuseError):
                await writer.send("t", b"late", partition=0)
            await preparing
            await writer.commit_transaction()
        assert await shown(world) == [b"first"]

    simulate(scenario, **ALLOWED)


def test_what_cannot_be_committed_is_not_prepared() -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"x" * 200_000, partition=0)
            with pytest.raises(TransactionAbortableError):
                await writer.prepare_transaction()
            await writer.abort_transaction()
            assert await writer.complete_transaction(await prepare(writer, b"small"))
        assert await shown(world) == [b"small"]

    simulate(scenario, **ALLOWED, **{"message.max.bytes": 100_000})


def test_nobody_takes_the_id_over_while_it_is_being_completed() -> None:
    """The transaction would be aborted by that if it came first."""

    async def scenario(world: World) -> None:
        kept = await left_prepared(world)
        async with taking_part(world) as writer:
            completing = asyncio.ensure_future(writer.complete_transaction(kept))
            await asyncio.sleep(0)
            with pytest.raises(MisuseError, match="while complete_transaction"):
                await writer.init_transactions()
            assert await completing
        assert await shown(world) == [b"first"]

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize("is_this_one", [True, False])
@pytest.mark.parametrize("whose", ["its own", "one that kept it", "another"])
@pytest.mark.parametrize("after", [0, 0.0005, 0.001, 0.002, 0.004, 0.01])
def test_completing_may_be_interrupted_and_asked_for_again(after: float, whose: str, is_this_one: bool) -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world) as first:
            await first.init_transactions()
            kept = str(await prepare(first, b"first"))
            writer = first if whose == "its own" else taking_part(world)
            async with writer:
                if whose == "one that kept it":
                    await writer.init_transactions(keep_prepared=True)
                decided = kept if is_this_one or whose == "another" else "7:7"
                completing = asyncio.ensure_future(writer.complete_transaction(decided))
                await asyncio.wait([completing], timeout=after)
                completing.cancel()
                await asyncio.wait([completing])
                for _ in range(2):
                    assert await writer.complete_transaction(decided) is (decided == kept)
        assert await shown(world) == ([b"first"] if decided == kept else [])

    simulate(scenario, **ALLOWED)


def test_what_is_being_committed_is_not_aborted_by_another_text() -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world) as writer:
            await writer.init_transactions()
            kept = await prepare(writer, b"first")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0001):
                    await writer.commit_transaction()
            with pytest.raises(MisuseError, match="with this text"):
                await writer.complete_transaction("7:7")
            assert await writer.complete_transaction(kept)
        assert await shown(world) == [b"first"]

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_answer_that_is_lost_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, carried_out: bool) -> None:
    handler, asked = SERVED[END_TXN].handler, list[Any]()

    async def scenario(world: World) -> None:
        def without_answer(request: Any, context: Any, node: Any) -> Any:
            asked.append(request)
            if len(asked) == 1:
                world.network.break_connections(PORT)
                if not carried_out:
                    return asyncio.get_running_loop().create_future()
            return handler(request, context, node)

        kept = await left_prepared(world)
        monkeypatch.setitem(SERVED, END_TXN, replace(SERVED[END_TXN], handler=without_answer))
        async with taking_part(world) as writer:
            assert await writer.complete_transaction(kept)
        assert await shown(world) == [b"first"]

    simulate(scenario, **ALLOWED)
    assert len(asked) == 2


# Where it cannot be


@pytest.mark.parametrize("level", [0, 1])
def test_before_version_2_a_pair_does_not_tell_one_transaction_from_the_next(level: int) -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world, two_phase=False) as writer:
            await writer.init_transactions()
            with pytest.raises(UnsupportedByBrokerError, match=r"needs transaction\.version 2"):
                await prepare(writer, b"first")
            await writer.abort_transaction()

    simulate(scenario, level)


def test_a_broker_that_does_not_allow_it_is_told_of_and_the_producer_lives() -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world) as writer:
            for _ in range(2):
                with pytest.raises(
                    UnsupportedByBrokerError, match=r"needs transaction\.two\.phase\.commit\.enable=true"
                ):
                    await writer.init_transactions()

    simulate(scenario)


def test_prepared_transactions_are_kept_for_those_only_who_take_part() -> None:
    async def scenario(world: World) -> None:
        async with taking_part(world, two_phase=False) as writer:
            with pytest.raises(MisuseError, match="set transaction_two_phase_commit_enable"):
                await writer.init_transactions(keep_prepared=True)
            await writer.init_transactions()

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize(
    ("code", "keep", "says"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, True, r"call complete_transaction\(\) first"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False, "the right TWO_PHASE_COMMIT"),
        (ErrorCode.INVALID_REQUEST, True, "INVALID_REQUEST: asked"),
    ],
)
def test_a_refusal_says_what_two_phase_commit_needs(code: ErrorCode, keep: bool, says: str) -> None:
    with pytest.raises(ClientError, match=says) as raised:
        raise two_phase_refusal(BrokerError(code, "asked"), keep=keep)
    assert isinstance(raised.value, UnsupportedByBrokerError) is (code is ErrorCode.UNSUPPORTED_VERSION)
