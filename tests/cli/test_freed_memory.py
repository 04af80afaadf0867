"""A node takes the memory of one large answer for the next, instead of giving it back to the system between them."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.broker.wire import MEGABYTE
from tests.cli.test_serve import serve
from tests.log.log_doubles import run

from fencepost.cli.freed_memory import KEPT, LOOK_SECONDS, freed_memory, is_to_be_given_back, keep_freed_memory
from fencepost.client.blocking import Consumer, Producer
from fencepost.protocol.types import TopicPartition

PAGE = os.sysconf("SC_PAGE_SIZE")
ASKS = """
import os, resource
from fencepost.cli.freed_memory import KEPT, keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        held = [b'x' * (KEPT // 64) for _ in range(12)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
kept = keep_freed_memory(os.environ)
faults()
print(kept, faults())
"""
GIVES_BACK = """
import asyncio, os
from fencepost.cli import freed_memory
from fencepost.cli.freed_memory import KEPT
freed_memory.LOOK_SECONDS = 0.01
def resident():
    return freed_memory._resident() // KEPT
async def main():
    memory = freed_memory.freed_memory(os.environ)
    if memory is None:
        return
    memory.start()
    seen = []
    for _ in range(3):
        pins, held = [], []
        for _ in range(800):
            held.append(bytes(b'x' * (KEPT // 64)))
            pins.append(bytes(b'y' * 5000))
        held.clear()
        before = resident()
        while resident() > 6:
            await asyncio.sleep(0.01)
        seen.append(before)
    memory.stop()
    print(min(seen))
asyncio.run(main())
"""


def needs_glibc() -> None:
    if platform.libc_ver()[0] != "glibc" or sys.platform != "linux":
        pytest.skip("only glibc is told what to keep")


def faults_of(pid: int) -> int:
    """Pages that the system has given to that process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[7])


@pytest.mark.parametrize(
    ("environ", "kept"),
    [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False), ({"GLIBC_TUNABLES": "glibc.malloc.check=0"}, False)],
)
def test_what_is_freed_is_kept_unless_somebody_said_how_memory_is_to_be_had(
    environ: dict[str, str], kept: bool
) -> None:
    needs_glibc()
    done = subprocess.run([sys.executable, "-c", ASKS], env=environ, capture_output=True, text=True, check=True)
    told, faults = done.stdout.split()
    pages = 10 * 12 * (KEPT // 64) // PAGE
    assert told == str(kept)
    assert int(faults) < pages // 10 if kept else int(faults) > pages // 2


def test_what_is_free_between_blocks_in_use_is_given_back_each_time() -> None:
    needs_glibc()
    done = subprocess.run(
        [sys.executable, "-c", GIVES_BACK], env={}, capture_output=True, text=True, timeout=60, check=True
    )
    if not done.stdout:
        pytest.skip("glibc is too old to say how much is free")
    assert int(done.stdout) >= 12, "there was that much to give back"


@pytest.mark.parametrize(
    ("free", "resident", "least", "given"),
    [
        (2 * KEPT, 9 * KEPT, 0, False),
        (2 * KEPT + 1, 9 * KEPT, 0, True),
        (8 * KEPT, 2 * KEPT, KEPT, False),  # what is free was given back before
        (8 * KEPT, 2 * KEPT + 1, KEPT, True),
    ],
)
def test_it_is_given_back_where_there_is_much_more_than_is_to_be_kept(
    free: int, resident: int, least: int, given: bool
) -> None:
    assert is_to_be_given_back(free, resident, least) == given


def test_what_the_system_does_not_take_is_not_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[int] = []
    resident = [9 * KEPT]

    def mallinfo2() -> SimpleNamespace:
        return SimpleNamespace(sizes=[8 * KEPT] * 10)

    def malloc_trim(kept: int) -> None:
        offered.append(kept)

    library = SimpleNamespace(mallinfo2=mallinfo2, malloc_trim=malloc_trim, mallopt=lambda *_: 1)
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    monkeypatch.setattr("fencepost.cli.freed_memory._resident", lambda: resident[0])
    memory = freed_memory({})
    assert memory is not None

    async def main() -> None:
        resident[0] = KEPT
        memory.start()
        resident[0] = 9 * KEPT
        await asyncio.sleep(5.5 * LOOK_SECONDS)
        assert offered == [KEPT]
        resident[0] = 11 * KEPT
        await asyncio.sleep(LOOK_SECONDS)
        memory.stop()
        resident[0] = 13 * KEPT
        await asyncio.sleep(5 * LOOK_SECONDS)

    run(main())
    assert offered == [KEPT, KEPT], "only where there is more than after the last time, and not after a stop"


@pytest.mark.parametrize("less", [1, 5])
def test_what_comes_again_after_the_process_has_had_less_is_given_back(
    monkeypatch: pytest.MonkeyPatch, less: int
) -> None:
    offered, resident, free = list[int](), [9 * KEPT], [0]

    def mallinfo2() -> SimpleNamespace:
        return SimpleNamespace(sizes=free * 10)

    def malloc_trim(kept: int) -> None:
        offered.append(kept)

    library = SimpleNamespace(mallinfo2=mallinfo2, malloc_trim=malloc_trim, mallopt=lambda *_: 1)
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    monkeypatch.setattr("fencepost.cli.freed_memory._resident", lambda: resident[0])
    memory = freed_memory({})
    assert memory is not None

    async def main() -> None:
        memory.start()
        resident[0] = less * KEPT
        await asyncio.sleep(1.5 * LOOK_SECONDS)
        resident[0], free[0] = 8 * KEPT, 7 * KEPT  # less than at the start
        await asyncio.sleep(LOOK_SECONDS)
        memory.stop()

    run(main())
    assert offered == [KEPT]


def test_where_there_is_another_c_library_nothing_is_said_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace())
    assert not keep_freed_memory({})
    assert freed_memory({}) is None


def test_a_node_that_gives_the_same_large_answer_again_needs_no_more_pages_for_it(tmp_path: Path) -> None:
    needs_glibc()
    process = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert process.stdout is not None
    address = process.stdout.readline().split()[4].rstrip(",")
    with Producer(bootstrap_servers=address) as producer:
        for _ in range(6):
            producer.send_and_wait("t", b"x" * 900_000)
    faults = []
    with Consumer(
        "t", bootstrap_servers=address, max_partition_fetch_bytes=8 * MEGABYTE, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(30):
            found = 0
            while found < 6:
                found += len(consumer.poll(10_000))
            faults.append(faults_of(process.pid))
            consumer.seek_to_beginning([TopicPartition("t", 0)])
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[1] == ""
    assert faults[-1] - faults[9] < 20 * 5 * MEGABYTE // PAGE // 10
