"""What a producer counts adds up, whatever becomes of its records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.test_producer import simulate
from tests.client.test_sender import every_answer

from fencepost.broker import running_broker
from fencepost.client import Producer, blocking
from fencepost.client.errors import ClientError
from fencepost.client.statistics import SendCounts
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, PORT, World

STEPS = st.lists(st.sampled_from(["good", "large", "many", "break", "wait"]), max_size=25)


@settings(max_examples=30)
@given(steps=STEPS, linger_ms=st.sampled_from([0, 20]))
def test_every_record_is_counted_once_as_sent_failed_or_waiting(steps: list[str], linger_ms: int) -> None:
    async def scenario(world: World) -> None:
        told: list[asyncio.Future[object]] = []
        writer = Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=linger_ms, batch_bytes=500)
        async with writer:
            handed = 0
            for step in steps:
                if step == "break":
                    world.network.break_connections(PORT)
                elif step == "wait":
                    await asyncio.sleep(0.01)
                elif step == "many":
                    told.append(await writer.send_many("t", [b"1"] * 10, partition=0))  # type: ignore[arg-type]
                    handed += 10
                else:
                    size = 1000 if step == "large" else 1
                    told.append(await writer.send("t", bytes(size), partition=0))  # type: ignore[arg-type]
                    handed += 1
                now = writer.statistics()
                assert now.record_send_total + now.record_error_total + now.records_waiting == handed
                assert (now.buffer_used_bytes > 0) == (now.records_waiting > 0)
            ends = await asyncio.gather(*told, return_exceptions=True)
        end = writer.statistics()
        assert end.records_waiting == end.buffer_used_bytes == 0
        assert end.requests_in_flight == 0
        assert end.record_error_total == sum(isinstance(each, ClientError) for each in ends)
        assert end.record_send_total == handed - end.record_error_total
        assert (end.byte_total > 0) == (end.batch_total > 0) == (end.record_send_total > 0)
        assert end.request_latency_avg_ms <= end.request_latency_max_ms
        assert (end.record_retry_total > 0) <= ("break" in steps)

    simulate(scenario, **{"message.max.bytes": 700})


def test_latency_is_that_of_all_answers_on_average_and_of_the_slowest() -> None:
    counts = SendCounts()
    assert counts.snapshot(0, 0).request_latency_avg_ms == 0
    for seconds in (0.25, 1.0, 0.5, 0.25):
        counts.answered(seconds)
    found = counts.snapshot(0, 0)
    assert (found.request_latency_avg_ms, found.request_latency_max_ms) == (500, 1000)


def test_each_record_that_is_sent_again_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 2

    def refuse(_: Any, response: Any) -> None:
        if errors:
            response.responses[0].partition_responses[0].error_code = errors.pop()

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=10) as writer:
            every_answer(monkeypatch, refuse)
            await asyncio.gather(*[await writer.send("t", b"1", partition=0) for _ in range(3)])
            found = writer.statistics()
            assert (found.record_retry_total, found.request_total, found.batch_total) == (6, 3, 1)

    simulate(scenario)


def test_each_record_of_a_batch_that_is_given_up_has_failed() -> None:
    async def scenario(world: World) -> None:
        writer = Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=1000)
        async with writer:
            for _ in range(3):
                await writer.send("t", b"1", partition=0)
            assert writer.statistics().records_waiting == 3
            await writer.abandon()
        assert writer.statistics().record_error_total == 3
        assert writer.statistics().records_waiting == 0

    simulate(scenario)


def test_without_asyncio_also_after_it_is_closed() -> None:
    with running_broker() as broker, blocking.Producer(broker.bootstrap_servers) as writer:
        assert writer.statistics().record_send_total == 0
        writer.send_and_wait("t", b"1")
        assert writer.statistics().record_send_total == 1
    assert writer.statistics().batch_total == 1
    assert writer.statistics().request_latency_max_ms > 0
