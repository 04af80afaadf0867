"""Files in the directory of the commit log that are none of it, or look so."""

from __future__ import annotations

import asyncio

import pytest
from tests.log.log_doubles import append, batch, bytes_of, run
from tests.log.test_commit_log_damage import LOG, raised, two, used

from fencepost.log.commit_log import REST_SECONDS
from fencepost.log.commit_log_entries import HEADER_SIZE


@pytest.mark.parametrize("number", [999, 2**63 - 1, 2**63, 10**20 - 1])
@pytest.mark.parametrize("content", [b"", b"notes"])
def test_a_file_that_looks_like_a_newer_one_does_not_make_the_others_count_for_nothing(
    number: int, content: bytes
) -> None:
    async def main() -> None:
        node = two()
        written = await used(node)
        path = LOG / f"{number:020d}.log"
        node.disk.open(path).pwrite(content, 0)
        for clean in (False, True):
            if clean:
                node.storage.close()
            told = raised(node.kill)
            assert told.startswith(f"{path} is no file that a node wrote") and "Move it away" in told
            node.disk.remove(path)
            node.kill()
            assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written
            node.disk.open(path).pwrite(content, 0)

    run(main())


def test_the_newest_file_is_known_by_what_is_in_it_though_it_has_lost_its_front() -> None:
    """A power loss may have brought back an older one."""

    async def main() -> None:
        node = two()
        append(node.of("t"), batch())
        await node.settled()
        first = node.disk.list(LOG)[0]
        old = node.disk.open(LOG / first).pread(10_000, 0)
        node.restart()
        node.restart()
        append(node.of("t"), batch())
        await asyncio.sleep(2 * REST_SECONDS)
        node.disk.open(LOG / first).pwrite(old, 0)
        newest = LOG / node.disk.list(LOG)[-1]
        node.disk.open(newest).pwrite(bytes(HEADER_SIZE), 0)
        assert raised(node.kill).startswith(f"{newest} is damaged")

    run(main())
