"""A micro-batch may be larger than the memory of a task: what a task takes does not grow with it."""

from __future__ import annotations

import subprocess
import sys

from fencepost.broker import running_broker
from fencepost.client.blocking import Admin

#: MB of a micro-batch, and by how much more memory may differ.
SMALL, LARGE, MORE = 16, 160, 40


def most_memory(what: str, servers: str, megabytes: int) -> int:
    command = [sys.executable, "-m", "tests.spark.one_task", what, servers, str(megabytes)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_ten_times_as_large_a_micro_batch_takes_no_more_memory() -> None:
    with running_broker(flush="os") as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic("out", partitions=1)
        for what in ("write", "read"):
            assert most_memory(what, servers, LARGE) < most_memory(what, servers, SMALL) + MORE, what
