"""The examples of the page on exactly once that keep something beside the loop, run on a node, with bad luck."""

from __future__ import annotations

import asyncio
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_prepared import ALLOWED
from tests.client.test_producer import simulate

from fencepost import client
from fencepost.client import NewTopic, TopicPartition
from fencepost.simulation.world import ADDRESS, World

PAGE = Path(__file__).parents[2] / "docs" / "exactly_once.md"
BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
(BLOCK,) = (block for block in BLOCKS if "complete_transaction" in block)
(STATE,) = (block for block in BLOCKS if "class Balances" in block)


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("decided", [False, True], ids=["killed before the decision", "killed behind it"])
def test_rows_and_records_are_the_same_whenever_it_is_killed(decided: bool) -> None:
    rows: list[bytes] = []
    kept = ""

    def write_and_commit(batch: list[bytes], prepared: str) -> None:
        nonlocal kept
        is_last = b"killed" in batch
        if decided or not is_last:
            rows.extend(batch)
            kept = prepared
        if is_last:
            raise Killed

    async def scenario(world: World) -> None:
        for life, batches in enumerate(([[b"1"], [b"2", b"3"], [b"killed"]], [[b"4"]])):
            names: dict[str, Any] = {
                "Producer": partial(client.Producer, runtime=world.runtime(f"life {life}")),
                "servers": ADDRESS,
                "batches": batches,
                "read_prepared": lambda: kept,
                "write_and_commit": write_and_commit,
            }
            exec("async def example():\n" + textwrap.indent(BLOCK, "    "), names)
            try:
                await names["example"]()
            except Killed:
                assert life == 0
        async with client.Consumer("ledger", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            read = [record.value for record in await reader.poll(5000)]
        assert read == rows
        assert rows == [b"1", b"2", b"3", *([b"killed"] if decided else []), b"4"]

    simulate(scenario, **ALLOWED)


@pytest.mark.parametrize("on_its_way", [False, True], ids=["all of it is written", "some is on its way"])
def test_a_worker_knows_what_its_predecessor_had_open_when_it_came(on_its_way: bool) -> None:
    """It commits behind the new owner's look at its state, and nobody computes from what was before."""

    async def scenario(world: World) -> None:
        def at(process: str) -> dict[str, Any]:
            return {"bootstrap_servers": ADDRESS, "runtime": world.runtime(process)}

        async with client.Admin(**at("admin")) as admin:
            await admin.create_topics([NewTopic("payments", 1), NewTopic("balances", 1)])
        async with client.Producer(**at("customer")) as customer:
            for _ in range(2):
                await customer.send_and_wait("payments", b"5", key=b"alice")
        async with client.Producer(**at("former"), transactional_id="former") as former:
            await former.init_transactions()
            await former.begin_transaction()
            if not on_its_way:
                await former.send_and_wait("balances", b"5", key=b"alice")
            await former.send_offsets_to_transaction({TopicPartition("payments", 0): 1}, "ledger")
            names = {
                **{name: getattr(client, name) for name in client.__all__},
                **{
                    name: partial(getattr(client, name), runtime=world.runtime("worker"))
                    for name in ("Admin", "Producer")
                },
                "Consumer": partial(client.Consumer, runtime=world.runtime("worker")),
                "servers": ADDRESS,
            }
            exec("from __future__ import annotations\n" + STATE, names)
            worker = asyncio.ensure_future(names["work"]("worker"))
            await asyncio.sleep(10)
            if on_its_way:
                await former.send_and_wait("balances", b"5", key=b"alice")
            await former.commit_transaction()
            async with client.Consumer("balances", **at("reader")) as reader:
                read = [record.value for _ in range(3) for record in await reader.poll(5000)]
            assert read == [b"5", b"10"]
            worker.cancel()
            await asyncio.wait([worker])

    simulate(scenario)
