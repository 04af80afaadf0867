"""The examples of the page on the admin client, run one after the other on a node."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from tests.client.test_producer import simulate

from fencepost import client
from fencepost.simulation.world import ADDRESS, World

PAGE = Path(__file__).parents[2] / "docs" / "admin.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_runs() -> None:
    assert len(BLOCKS) >= 4
    names: dict[str, Any] = {name: getattr(client, name) for name in client.__all__}
    exec("async def examples(admin):\n" + textwrap.indent("\n".join(BLOCKS), "    "), names)

    async def scenario(world: World) -> None:
        async with client.Admin(ADDRESS, runtime=world.runtime("admin of the page")) as admin:
            await names["examples"](admin)
            assert await admin.partitions("payments") == 6
            assert len(await admin.list_group_offsets("ledger")) == 6

    simulate(scenario)
