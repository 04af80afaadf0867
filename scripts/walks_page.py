"""Write docs/reference/walks.md: the files that a Produce (in a transaction and without) and a commit pass, in order.

    python scripts/walks_page.py

A transaction runs on virtual time, where every run is the same; each function that is entered in the node is noted.
What the same request did before it (compiling a codec, say) is not walked again, so a first transaction goes before.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT, Pages, first_sentence, table, write

from fencepost.broker import Broker
from fencepost.client import Admin, Producer
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

SOURCE = ROOT / "src" / "fencepost"
#: Who may begin a walk in the node; what else runs is the clients' or the simulation's.
NODE = ("broker", "coordinator", "log")
#: Everyday things that every file uses and that decide nothing.
PASSED_OVER = ("protocol/types.py", "protocol/errors.py", "protocol/message.py", "runtime.py", "node_log.py")


class Stop(NamedTuple):
    """A file, and the function by which it was entered first."""

    file: str
    function: str
    line: int


def place(frame: FrameType) -> str | None:
    """The file of a frame below src/fencepost, if it is one of the house and no generated code."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(SOURCE):
        return None
    file = str(path.relative_to(SOURCE))
    return None if file.startswith("simulation/") else file


def outermost(frame: FrameType) -> str | None:
    """Who began what runs now."""
    found, current = None, frame
    while current is not None:
        found = place(current) or found
        if current.f_back is None:
            break
        current = current.f_back
    return found


@contextmanager
def followed() -> Iterator[list[Stop]]:
    """The stops of what runs inside the block."""
    stops: dict[str, Stop] = {}

    def entered(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = place(frame)
        if file is None or file in stops or file in PASSED_OVER or frame.f_code.co_name.startswith("<"):
            return
        if (outermost(frame) or "").split("/")[0] in NODE:
            stops[file] = Stop(file, frame.f_code.co_qualname, frame.f_code.co_firstlineno)

    found: list[Stop] = []
    sys.setprofile(entered)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found.extend(stops.values())


def walks() -> dict[str, list[Stop]]:
    """All walks."""
    found: dict[str, list[Stop]] = {}

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        broker = Broker(  # by itself: what a world puts around its node to watch it is no part of the walk
            data=Path("/data"),
            listen=ADDRESS,
            settings=world.settings,
            runtime=world.runtime("broker"),
            disk=world.disk,
            metadata=world.metadata,
        )
        await broker.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("t", partitions=1)
        async with Producer(ADDRESS, transactional_id="id", runtime=world.runtime("producer")) as producer:
            await producer.init_transactions()
            for _ in range(2):  # the second time is shown
                await producer.begin_transaction()
                with followed() as found["produce"]:
                    await (await producer.send("t", b"value", partition=0))
                with followed() as found["commit"]:
                    await producer.commit_transaction()
        async with Producer(ADDRESS, runtime=world.runtime("another")) as producer:
            await (await producer.send("t", b"value", partition=0))
            with followed() as found["plain"]:
                await (await producer.send("t", b"value", partition=0))
        await broker.stop()

    run(main)
    return found


def told(stop: Stop) -> str:
    """What the file says that it is."""
    return first_sentence(ast.get_docstring(ast.parse((SOURCE / stop.file).read_text())))


def page() -> str:
    found = walks()
    lines = [
        "# Three walks through the node",
        "",
        "The files of `src/fencepost` that a request passes in the node, in the order in which each is "
        "entered first, and by",
        "which function. Seen by following requests on virtual time; types, errors and the clock are left out.",
    ]
    titles = {
        "produce": "A Produce that begins a transaction",
        "commit": "The commit of that transaction (EndTxn)",
        "plain": "A Produce without a transaction",
    }
    for name, title in titles.items():
        rows = [[str(n), f"`{stop.file}`", f"`{stop.function}`", told(stop)] for n, stop in enumerate(found[name], 1)]
        lines += ["", f"## {title}", "", *table(["", "file", "entered by", "what the file is"], rows)]
    return "\n".join(lines) + "\n"


PAGES: Pages = {"reference/walks.md": page}

if __name__ == "__main__":
    write(PAGES)
