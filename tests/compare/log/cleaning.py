"""Both nodes with cleaners that look all the time, and that find something to do only when they are told to."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.compare.nodes.leader import Leader
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes

from fencepost.log.cleaner import first_dirty_offsets
from fencepost.protocol.messages import DeleteRecordsRequest, IncrementalAlterConfigsRequest, ListOffsetsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
}
RATIO = "min.cleanable.dirty.ratio"
NEVER = {RATIO: "1"}
"""Nothing is ever dirtier than that."""
NOW_ON = {RATIO: "0"}
_PATIENCE = 120.0


class Cleaned:
    """Both nodes, with a look into their directories."""

    def __init__(self, nodes: TwoNodes) -> None:
        self._nodes = nodes
        self.leaders = [Leader(address) for address in nodes.addresses]

    def alter(self, topics: Sequence[str], configs: Mapping[str, str]) -> None:
        """Set these of the topics."""
        changes = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
        resources = [AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes) for topic in topics]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        for node in self.leaders:
            answer = node.ask(request, 1)
            assert not any(each.error_code for each in answer.responses), answer

    def clean(self, expected: Mapping[str, int], configs: Mapping[str, str] = NOW_ON) -> None:
        """Have the cleaners go over these topics once, up to these offsets.

        Fencepost would do it in two goes where its commit log still has some of it; a stop settles that.
        """
        self._nodes.ours.end(signal.SIGTERM)
        self._nodes.ours.start()
        self.leaders[1].hang_up()
        self.alter(list(expected), configs)
        end = time.monotonic() + _PATIENCE
        while wrong := self._unclean(expected):
            assert time.monotonic() < end, f"not cleaned as far as expected, or farther: {wrong}"
            time.sleep(0.1)
        self.alter(list(expected), NEVER)

    def _unclean(self, expected: Mapping[str, int]) -> dict[str, list[int]]:
        noted = [_noted(folder / first_dirty_offsets.NAME) for folder in self._nodes.folders]
        found = {topic: [each.get((topic, 0), 0) for each in noted] for topic in expected}
        return {topic: offsets for topic, offsets in found.items() if set(offsets) != {expected[topic]}}

    def delete_records(self, topic: str, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=9_000
        )
        for node in self.leaders:
            found = node.ask(request, 2).topics[0].partitions[0]
            assert (found.error_code, found.low_watermark) == (0, offset), found

    def wait_until_retained(self, topics: Sequence[str]) -> None:
        """Wait until retention has taken something of these, the same on both nodes, and takes no more."""
        end, before = time.monotonic() + _PATIENCE, [[0]]
        while True:
            starts = [[_start(node, topic) for topic in topics] for node in self.leaders]
            if starts[0] == starts[1] and any(starts[0]) and starts == before:
                return
            assert time.monotonic() < end, f"different starts: {starts}"
            before = starts
            time.sleep(2)

    def restart(self, how: str) -> None:
        self._nodes.restart(how)
        for node in self.leaders:
            node.hang_up()


def _start(node: Leader, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return int(node.ask(request, 8).topics[0].partitions[0].offset)


def _noted(path: Path) -> dict[tuple[str, int], int]:
    """Up to where each partition is clean, as the file of either node says; ours has more columns and a last line."""
    try:
        lines = [line.split(" ") for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return {}
    return {(words[0], int(words[1])): int(words[2]) for words in lines if len(words) >= 3}


@contextmanager
def cleaned_nodes() -> Iterator[Cleaned]:
    """Both nodes, running; skips the test if Apache Kafka cannot be started here."""
    with two_nodes(SETTINGS, only_kafka={"log.initial.task.delay.ms": "0"}) as nodes:
        yield Cleaned(nodes)
