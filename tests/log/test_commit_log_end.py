"""A commit log that ends before what the segments hold: what a start cuts from them, it says."""

from __future__ import annotations

import pytest
from tests.log.log_doubles import Node, append, batch, run
from tests.log.test_commit_log_damage import LOG, files, generation_file

__all__ = ["files"]


@pytest.mark.parametrize("left", [None, 0, 80])
def test_what_is_cut_because_the_log_ends_before_it_is_said(left: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """A last page that the disk has emptied looks like a log that ends there.  `left`: bytes of the next write."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(tag="first"))
        await node.settled()
        file = generation_file(node)
        first = len(file.pread(10_000, 0).rstrip(b"\0"))
        for number in range(3):
            append(node.partition, batch(tag=f"{number}"))
            await node.settled()
        written = node.partition.segments[-1].size
        if left is not None:
            file.pwrite(bytes(len(file.pread(10_000, 0)) - first - left), first + left)
        node.kill()
        lost = written - node.partition.segments[-1].size
        assert (lost > 0) is (left is not None)
        cut = f"cut {lost} bytes from segments that {LOG} does not know of; nobody was told that they are durable"
        said = {None: [], 0: [cut]}.get(
            left, ["the last write to the commit log is not whole and was left out; nobody"]
        )
        assert len(caplog.messages) == len(said)
        assert all(text.startswith(start) for text, start in zip(caplog.messages, said, strict=True))

    run(main())
