"""What the README shows works as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.broker import running_broker
from fencepost.client.blocking import Admin, Consumer, Producer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@contextmanager
def running(example: str, address: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The example as a program, on the broker at this address."""
    program = folder / "example.py"
    program.write_text(example.replace("127.0.0.1:9092", address))
    process = subprocess.Popen([sys.executable, "-u", str(program)], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_transaction_is_shown_whole(tmp_path: Path) -> None:
    with running_broker() as broker, running(EXAMPLES[0], broker.bootstrap_servers, tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(2)]
    assert sorted(lines) == [["credits", "b'bob'", "b'+10'"], ["debits", "b'alice'", "b'-10'"]]


def test_what_is_read_is_written_exactly_once(tmp_path: Path) -> None:
    with running_broker() as broker:
        servers = broker.bootstrap_servers
        with Producer(servers) as producer:
            for number in range(3):
                producer.send("debits", b"-1%d" % number, key=b"alice").result()
        with running(EXAMPLES[1], servers, tmp_path), Consumer("entries", bootstrap_servers=servers) as consumer:
            records = [next(consumer) for _ in range(3)]
    assert [(record.key, record.value) for record in records] == [(b"alice", b"-1%d" % number) for number in range(3)]


def test_the_pipeline_fills_the_ledger(tmp_path: Path) -> None:
    # No topic comes by itself: the reader of this test would have made the one that the example writes to.
    with running_broker(settings={"auto.create.topics.enable": False}) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin, Producer(servers) as producer:
            admin.create_topic("debits")
            producer.send("debits", b"-10", key=b"alice").result()
        with (
            running(EXAMPLES[2], servers, tmp_path) as pipeline,
            Consumer("ledger", bootstrap_servers=servers) as consumer,
        ):
            # Spark takes its time where others use the machine
            polls = (consumer.poll(1000) for _ in range(300) if pipeline.poll() is None)
            records = next(filter(None, polls))
    assert [(record.key, record.value) for record in records] == [(b"alice", b"-10")]


def test_the_examples_are_short() -> None:
    assert [len(example.strip().splitlines()) <= 21 for example in EXAMPLES] == [True] * 3


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make (\w+)", README))))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("folder", re.findall(r"^\| `([\w/]+)` \|", README, re.MULTILINE))
def test_every_folder_is_where_it_says(folder: str) -> None:
    assert (ROOT / folder).is_dir()
