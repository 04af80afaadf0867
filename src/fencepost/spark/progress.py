"""The progress record: which micro-batch of an application was committed last, and where the sources were then.

It is written in the transaction of the micro-batch itself, to a compacted topic of one partition, so it is there if and
only if the batch is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.admin import create_topic
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import ApplicationRecoverableError, BrokerError, ConnectionLostError, UnreachableError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.client.positions import list_offsets
from fencepost.protocol.batch import headers
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Isolation, Offset, TopicPartition
from fencepost.spark.positions import FILES, OF_THE_END, without
from fencepost.spark.topic_configs import topic_configs

TOPIC: Final = "fencepost.progress"
PARTITION: Final = TopicPartition(TOPIC, 0)
RUNS: Final = 500
"""The number of runs of a job that are remembered, beside the last."""
_FETCH_BYTES: Final = 4 * 1024 * 1024
#: Offsets that are looked through first, and at most at a time.  A micro-batch has two.
_FIRST_WINDOW: Final = 200
_LARGEST_WINDOW: Final = 100_000
_NO_TRANSACTION: Final = -1
_SHOWN: Final = 200
"""Bytes of an unreadable record that an error repeats, at most."""


class Progress(NamedTuple):
    """The last committed micro-batch of an application."""

    query_id: str
    batch_id: int
    source_offsets: list[Any]
    earlier_runs: tuple[str, ...] = ()
    """The ids of the runs before this one, of a job that writes a run at a time; the oldest first."""
    source_starts: Sequence[Any] = ()
    """The positions of the sources before it, empty if not known; not part of the record in the topic."""
    started: str = ""
    """A digest of `source_starts`, which is in the record; empty if they are not known."""
    topics: str = ""
    """A digest of the names of the topics that it is written to; empty where they are not known."""
    files: str = ""
    """A digest of the files that it reads, of Spark's source of files, whose offsets count batches; empty for none."""

    @classmethod
    def of(
        cls,
        query_id: str,
        batch_id: int,
        source_offsets: Sequence[Any],
        source_starts: Sequence[Any] = (),
        topics: Collection[str] = (),
    ) -> Progress:
        """The record of a micro-batch, as it will be read from the topic.

        Offsets of Spark's source of files may have a digest of their files, under the name FILES.
        """
        names = _digest(sorted(set(topics))) if topics else ""
        files = [each.get(FILES) if isinstance(each, Mapping) else None for each in source_offsets]
        which = _digest(files) if any(files) else ""
        ends = [without([FILES], each) for each in source_offsets]
        record = cls.decode(cls(query_id, batch_id, ends, topics=names, files=which).encode())
        if not source_starts:
            return record
        starts = json.loads(json.dumps([without([FILES], each) for each in source_starts]))
        return record._replace(source_starts=starts, started=_digest([without(OF_THE_END, each) for each in starts]))

    def encode(self) -> bytes:
        fields: dict[str, Any] = {
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "source_offsets": self.source_offsets,
        }
        if self.earlier_runs:
            fields["earlier_runs"] = self.earlier_runs
        if self.started:
            fields["started"] = self.started
        if self.topics:
            fields["topics"] = self.topics
        if self.files:
            fields["files"] = self.files
        # Names of runs may have any characters: written as escapes, many of them would have no room in a record.
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        """The record in these bytes.

        Raises ValueError if it is none: what is half understood must not pass for a record without positions.
        """
        try:
            fields = json.loads(data)
            earlier = fields.get("earlier_runs", [])
            started, topics, files = digests = [fields.get(name, "") for name in ("started", "topics", "files")]
            numbers = fields["batch_id"], fields["source_offsets"]
            found = cls(fields["query_id"], *numbers, tuple(earlier), started=started, topics=topics, files=files)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            found = None
        if (
            found is None
            or type(found.batch_id) is not int
            or not (isinstance(found.source_offsets, list) and isinstance(earlier, list))
            or not all(isinstance(name, str) for name in (found.query_id, *digests, *earlier))
        ):
            raise ValueError(f"{data[:_SHOWN]!r} is no progress record: it has a query, a number and positions")
        return found

    def after(self, last: Progress | None) -> Progress:
        """This record as that of a run that comes after `last`."""
        if last is None:
            return self
        runs = [run for run in (*last.earlier_runs, last.query_id) if run != self.query_id]
        return self._replace(earlier_runs=tuple(runs[-RUNS:]))


def _digest(values: Sequence[Any]) -> str:
    """A digest of JSON values: 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


class ProgressUnusable(Exception):
    """The topic of the progress records is not as it must be; the message says what to do."""


class ProgressDeleted(ProgressUnusable, ApplicationRecoverableError):
    """The topic of the progress records was deleted since it was looked at."""


async def ensure_topic(cluster: Cluster) -> None:
    """Make the topic if it is not there.  Raises ProgressUnusable if it is there and cannot keep the records."""
    deadline = cluster.deadline(f"looking at topic {TOPIC!r}")
    cluster.forget_topic(TOPIC)
    try:
        await cluster.topic(TOPIC, deadline, create=False)
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        await _make_topic(cluster)
    view = await cluster.topic(TOPIC, deadline, create=False)
    policies = await topic_configs(cluster, [TOPIC], "cleanup.policy", deadline)
    reason = unfit(view.partition_count, policies.get(TOPIC))
    if reason is not None:
        raise ProgressUnusable(reason)


async def _make_topic(cluster: Cluster) -> None:
    """Create the topic.  Only for one that is missing: without the right to create topics this fails for any."""
    servers = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
    creating = Cluster(
        servers,
        client_id="fencepost-admin",
        runtime=cluster.runtime,
        request_timeout_ms=cluster.request_timeout_ms,
        patience_ms=cluster.patience_ms,
        security=cluster.security,
    )
    try:
        # Only what is not in the newest segment is compacted.
        config = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024)}
        await create_topic(creating, TOPIC, partitions=1, replication_factor=-1, config=config, exist_ok=True)
    finally:
        await creating.close()


def unfit(partitions: int, policy: str | None) -> str | None:
    """Why the topic cannot keep the records, None if it can.  `policy`: cleanup.policy, None if it is not known."""
    if partitions != 1:
        return f"topic {TOPIC!r} has {partitions} partitions: it must have 1. Delete it while no query runs"
    if policy not in (None, "compact"):
        return (
            f"topic {TOPIC!r} has cleanup.policy={policy}: records of queries that pause would be removed. Set "
            "cleanup.policy=compact"
        )
    return None


class Ledger:
    """Looks for the last committed progress of one application, from the end of the topic on, a window at a time.

    Its transactions come one after the other, so that the last record whose transaction is committed is the one.
    Whose transaction is still open is of no interest: others' hold nothing for this application, and its own is not
    committed.
    """

    def __init__(self, application_id: str) -> None:
        self._key = application_id.encode()
        self._window: list[tuple[int, int | None, bytes | None]] = []
        """Producer id, type of marker (None: a record of the application) and value."""
        self._ends: dict[int, int] = {}
        """Producer id -> the type of its next marker behind the window."""
        self.last: bytes | None = None

    def add(self, data: memoryview, end: int) -> int:
        """Take whole batches of the window that ends before `end`; the offset after them, -1 if there were none."""
        following = -1
        for at, header in headers(data):
            following = header.last_offset + 1
            if header.base_offset >= end:
                break
            if header.is_control:
                marker = read_control_record(data, at, header)
                if marker is not None:
                    self._window.append((header.producer_id, marker.type, None))
                continue
            for record in decode_batch(data, at, header):
                if record.key == self._key:
                    producer_id = header.producer_id if header.is_transactional else _NO_TRANSACTION
                    self._window.append((producer_id, None, record.value))
        return following

    def look(self) -> bool:
        """Look through the window, which is whole; whether the last committed record is in it, and so in `last`."""
        for producer_id, marker, value in reversed(self._window):
            if marker is not None:
                self._ends[producer_id] = marker
            elif producer_id == _NO_TRANSACTION or self._ends.get(producer_id) == COMMIT:
                self.last = value
                return True
        self._window.clear()
        return False


async def read_progress(cluster: Cluster, application_id: str) -> Progress | None:
    """The application's last committed micro-batch; None if there is none.

    Nothing is missing after InitProducerId on the application's id, which ends what an older driver left open; before
    it, an older driver's last commit may be.  Reads back from the end as far as it must: to the beginning only where
    there is none.  Raises ProgressUnusable if it cannot be read.
    """
    deadline = cluster.deadline("reading the progress record")
    try:
        start = (await list_offsets(cluster, [PARTITION], EARLIEST, Isolation.READ_UNCOMMITTED))[PARTITION][0]
        low = (await list_offsets(cluster, [PARTITION], LATEST, Isolation.READ_UNCOMMITTED))[PARTITION][0]
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise ProgressDeleted(
            f"topic {TOPIC!r} was deleted, so that nothing tells which batch of application {application_id!r} was "
            "committed last: start the query again, which makes the topic anew, and says how to go on"
        ) from error
    ledger, size = Ledger(application_id), _FIRST_WINDOW
    while low > start:
        low, end = max(Offset(low - size), start), low
        await _read_window(cluster, ledger, low, end, deadline)
        if ledger.look():
            break
        size = min(size * 4, _LARGEST_WINDOW)
    try:
        return None if ledger.last is None else Progress.decode(ledger.last)
    except ValueError as error:
        raise ProgressUnusable(
            f"the record of application {application_id!r} in topic {TOPIC!r} cannot be read: {error}. Another program "
            "wrote it, or a later version of this one. Nothing was written. Have that version go on, or choose a new "
            "application_id and begin where the output ends"
        ) from error


async def _read_window(cluster: Cluster, ledger: Ledger, position: int, end: int, deadline: Deadline) -> None:
    while position < end:
        try:
            leader = await cluster.leader(PARTITION, deadline)
            found = await fetch_partition(
                cluster, leader, PARTITION, position, Isolation.READ_UNCOMMITTED, max_bytes=_FETCH_BYTES
            )
        except (ConnectionLostError, UnreachableError) as lost:
            cluster.forget_topic(TOPIC)
            await deadline.pause(lost)
            continue
        error = ErrorCode(found.error_code)
        if error and not error.retriable:
            raise BrokerError(error, f"the progress record in {TOPIC} cannot be read")
        following = ledger.add(memoryview(found.records), end) if found.records else -1
        if following < 0:
            cluster.forget_topic(TOPIC)
            await deadline.pause(error.name)
            continue
        position = following
