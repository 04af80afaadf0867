"""The example of the page on exactly once that shares a decision with a database, run and killed on a node."""

from __future__ import annotations

import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_prepared import ALLOWED
from tests.client.test_producer import simulate

from fencepost import client
from fencepost.simulation.world import ADDRESS, World

PAGE = Path(__file__).parents[2] / "docs" / "exactly_once.md"
(BLOCK,) = (
    block
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if "complete_transaction" in block
)


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
