"""The sink that Spark's driver calls: takes DataFrames, runs tasks, and has `driver.Driver` commit them."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from fencepost.client.addresses import addresses_of
from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal
from fencepost.client.security import Security
from fencepost.protocol.compression import Compression
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch
from fencepost.spark.attempt import SECOND_ATTEMPT, Plan, RowError
from fencepost.spark.checkpoint import Checkpoint, make_state
from fencepost.spark.claims import Written, is_slot_name
from fencepost.spark.committed import second_write
from fencepost.spark.driver import Driver, Step, WriteCancelled, WriteFailed
from fencepost.spark.ledger import close_places
from fencepost.spark.ledger_file import open_ledger, shared_ledger
from fencepost.spark.offsets import PINS
from fencepost.spark.progress import TOPIC as PROGRESS_TOPIC
from fencepost.spark.progress import Progress
from fencepost.spark.repetitions import Repetitions, Write
from fencepost.spark.report import Report
from fencepost.spark.running_query import query_named, query_of, stop_of
from fencepost.spark.security import check_names, parse_security
from fencepost.spark.session import refuse_connect
from fencepost.spark.session_settings import little_at_once, notice_other_rows
from fencepost.spark.task_failures import TaskFailed, first_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Report", "Sink", "Step", "WriteCancelled", "WriteFailed"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

_LARGEST_ID: Final = 200
_LARGEST_NUMBER: Final = 2**31 - 1
_CANCELLED: Final = "SPARK_JOB_CANCELLED"
"""Spark's name for the error of a job that was cancelled."""
_ROW_ERROR: Final = re.compile(rf"^ .*\n{re.escape(RowError.__module__)}\.{RowError.__name__}: (.*)$", re.MULTILINE)
"""The message in a task's traceback, which is all that Spark tells of its error: behind the frames, on its own line.

What a row has, and a message repeats, may look like one.
"""
_SPECULATES: Final = "spark.speculation"
_ALLOCATES: Final = "spark.dynamicAllocation.enabled"
_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
)
"""The text by which Spark tells, in an error of Python, that a query was stopped from a failure."""

_LONG_SECONDS: Final = 1.0
"""Seconds between two looks whether the query was stopped, while the cluster is waited for."""


_REPETITIONS: Final = Repetitions()
"""The last writes of all sinks in this process."""


class _Open(NamedTuple):
    """The connections and the driver that a sink has while it is open."""

    portal: Portal
    cluster: Cluster
    driver: Driver


@dataclass
class Sink:
    """Writes micro-batches of one application.  `application_id` names it for good: across restarts, and for fencing.

    `transaction_timeout_ms` must be longer than any micro-batch takes; transaction.max.timeout.ms limits it.
    `tasks`: how many tasks write, by default as many as Spark runs at once, at most one for each topic-partition.
    `attempts`: how often a batch is tried before the query fails.  `resume`: a new query under this id is let in if it
    begins where the last committed one ended (`resume_offsets`); else any new query is refused.  `accept_gap`: a batch
    is written though rows before it were not committed on this cluster; else it is refused.
    `kafka_options`: the source's options of TLS and SASL, with the same names (`kafka.security.protocol`, ...).
    `report`: called with the figures of each micro-batch once it is committed; what it raises is logged.
    """

    application_id: str
    bootstrap_servers: str
    topics: Sequence[str]
    transaction_timeout_ms: int = 600_000
    compression: str = "none"
    tasks: int | None = None
    attempts: int = 3
    resume: bool = False
    accept_gap: bool = False
    kafka_options: Mapping[str, str] | None = field(default=None, repr=False)
    watch: Callable[[Step, int], None] | None = None
    report: Callable[[Report], None] | None = None
    _opened: _Open | None = field(default=None, init=False, repr=False)
    _security: Security = field(init=False, repr=False)
    _in_use: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _user: int | None = field(default=None, init=False, repr=False, compare=False)
    """The id of the thread that has the lock; None: none has."""

    def __post_init__(self) -> None:
        if not isinstance(self.application_id, str):
            raise ValueError(f"application_id={self.application_id!r}: it must be a text")
        if not self.application_id or len(self.application_id) > _LARGEST_ID:
            raise ValueError(f"application_id={self.application_id!r}: it must have 1 to {_LARGEST_ID} characters")
        if is_slot_name(self.application_id):
            raise ValueError(f"application_id={self.application_id!r}: tasks of another application claim such a name")
        if self.application_id.endswith(PINS):
            owner = self.application_id.removesuffix(PINS)
            raise ValueError(
                f"application_id={self.application_id!r}: a source of application {owner!r} keeps its start there"
            )
        addresses_of(self.bootstrap_servers)
        if not _are_names(self.topics):
            raise ValueError(f"topics={self.topics!r}: it must be a list of every topic that is written to")
        if PROGRESS_TOPIC in self.topics:
            raise ValueError(f"topics={self.topics!r}: {PROGRESS_TOPIC!r} is the sink's own, and takes no rows")
        for name in ("transaction_timeout_ms", "tasks", "attempts"):
            given = getattr(self, name)
            if (not isinstance(given, int) or isinstance(given, bool)) and (name, given) != ("tasks", None):
                raise ValueError(f"{name}={given!r}: it must be a whole number")
            if given is not None and given < 1:
                raise ValueError(f"{name}={given}: it must be 1 or more")
            if given is not None and given > _LARGEST_NUMBER:
                raise ValueError(f"{name}={given}: it must be {_LARGEST_NUMBER} or less")
        for name in ("resume", "accept_gap"):
            given = getattr(self, name)
            if not isinstance(given, bool):
                raise ValueError(f"{name}={given!r}: it must be True or False")
        if not isinstance(self.compression, str) or self.compression.upper() not in Compression.__members__:
            codecs = ", ".join(codec.name.lower() for codec in Compression)
            raise ValueError(f"compression={self.compression!r}: it must be one of {codecs}")
        check_names(self.kafka_options)
        self._security = parse_security(self.kafka_options)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Sink has connections, and writes from Spark's driver: it cannot be copied, nor go to Spark's tasks. "
            "Leave it out of what runs there, as udf() and foreach(), or make it in the function that uses it"
        )

    def _open(self) -> _Open:
        if self._opened is None:
            cluster = Cluster(self.bootstrap_servers, client_id="fencepost-spark-driver", security=self._security)
            driver = Driver(
                cluster,
                self.application_id,
                self.topics,
                transaction_timeout_ms=self.transaction_timeout_ms,
                attempts=self.attempts,
                compression=Compression[self.compression.upper()],
                resume=self.resume,
                accept_gap=self.accept_gap,
            )
            self._opened = _Open(Portal("fencepost-spark-sink"), cluster, driver)
        return self._opened

    def close(self) -> None:
        """End the connections, after the write that is under way.  The next write opens them again.

        An open transaction is aborted by whoever comes next.  Raises RuntimeError if that write itself calls it.
        """
        self._alone("close", self._close)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.portal.call(opened.cluster.close())
            opened.portal.close()

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the next transaction; (-1, -1) before the first micro-batch."""
        return NO_PRODUCER if self._opened is None else self._opened.driver.producer_id_and_epoch

    def write(
        self,
        rows: DataFrame,
        batch_id: int,
        query_id: str,
        *,
        topic: str | None = None,
        source_offsets: Sequence[Any] = (),
        source_starts: Sequence[Any] = (),
        new_query: bool = False,
    ) -> bool:
        """Write a micro-batch, unless it was committed before; whether it was written.  One at a time; the next waits.

        A micro-batch is one write, of whichever sink: another one of the same number is refused in the same run of the
        query, unless it is of the very same DataFrame, and where it is to other topics; else it is taken for the
        repetition of the first.  Rows for several topics are one DataFrame with a column topic.  Raises WriteFailed if
        it cannot be written.

        Raises WriteCancelled if Spark's job was cancelled, as by `query.stop()`.
        `source_offsets`: where the sources stand after the batch, an entry for each.  A batch that was committed before
        is known by its number and by them; where none are given, by its number alone.  `source_starts`: where they
        stood before it; where none are given, rows that are missing before it are not noticed.
        `new_query`: another query than that of the last batch is no mistake, each is a run of one job; a run is known
        again while fewer than 500 others came after it.
        """
        from fencepost.spark.routing import check_columns

        refuse_connect(rows)
        check_columns(rows, topic)
        written_to = self.topics if topic is None else [topic]
        batch = Progress.of(query_id, batch_id, source_offsets, source_starts, written_to)
        slots = self.tasks or rows.sparkSession.sparkContext.defaultParallelism
        query = query_of(rows.sparkSession)
        # A function for foreachBatch may write in threads of its own, of which Spark does not know what they run.
        running = query or query_named(rows.sparkSession, query_id)
        this = None if running is None else (str(running.runId().toString()), query_id, batch_id)

        def write_alone() -> tuple[bool, Report | None]:
            opened = self._open()
            around = _InThisThread(self, opened.portal, rows, topic)
            if this is None:
                return _done(opened.driver.write(batch, slots, new_query, around)), opened.driver.report
            where = (self.application_id, _done(around.call(opened.driver.cluster_id())) or self.bootstrap_servers)
            work = partial(opened.driver.write, batch, slots, new_query, around)
            wrote = _REPETITIONS.carry_out(where, Write(this, rows, topic), lambda: _done(work()))
            if wrote is None:
                raise WriteFailed(second_write(self.application_id, batch_id))
            return wrote, opened.driver.report

        wrote, report = self._alone("write", write_alone)
        if wrote and report is not None:
            self._tell(report)
        if not wrote and query is not None and Checkpoint(query.resolvedCheckpointRoot()).has_state(rows.sparkSession):
            make_state(rows)
        return wrote

    def _alone(self, call: str, work: Callable[[], T]) -> T:
        """Do `work`, after the call of another thread.  Raises RuntimeError in a thread that would wait for itself.

        Who is interrupted leaves the lock, which a context manager written as a generator may keep.
        """
        if self._in_use.locked() and self._user == get_ident():
            raise RuntimeError(
                f"{call}() was called in the midst of a write of this sink, as by watch or a handler of a signal, and "
                "would wait for its end: call it after the write"
            )
        with self._in_use:
            self._user = get_ident()
            try:
                return work()
            finally:
                self._user = None

    def _tell(self, report: Report) -> None:
        """Call `report` with the figures of a batch; the next write may begin.  An exception of it is logged."""
        if self.report is None:
            return
        try:
            self.report(report)
        except Exception:
            committed = f"batch {report.batch_id} of application {self.application_id!r} is committed"
            logger.exception("report failed: %s, and nothing of it is changed by that", committed)


def _are_names(topics: object) -> bool:
    """Whether these are names of topics, one at least, in a collection, which can be iterated over again."""
    if isinstance(topics, str) or not isinstance(topics, Collection):
        return False
    return bool(topics) and all(isinstance(name, str) and name for name in topics)


class _InThisThread:
    """The driver's surroundings: Spark is called by the thread that called the sink, and no coroutine ever waits.

    So an interrupt of that thread, wherever it comes, is one of the driver.
    """

    def __init__(self, sink: Sink, portal: Portal, rows: DataFrame, topic: str | None) -> None:
        self._sink = sink
        self._portal = portal
        self._rows = rows
        self._topic = topic
        self._is_stopped = stop_of(rows.sparkSession)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work if self._is_stopped is None else _until(self._is_stopped, work))

    async def run_tasks(self, plan: Plan) -> list[Written]:
        from fencepost.spark.ahead import SendingAhead
        from fencepost.spark.encoding import targets
        from fencepost.spark.routing import route
        from fencepost.spark.tasks import RESULT, Task

        what = f"a batch of application {plan.application_id!r} was cancelled, nothing of it is committed"
        is_stopped = self._is_stopped or _never
        if is_stopped():
            raise WriteCancelled(f"{what} ({_INTERRUPTED})")
        tag = f"fencepost-{id(self):x}-{'-'.join(map(str, plan.ticket.producer_id_and_epoch))}"
        try:
            barrier = _starts_together(self._rows.sparkSession, len(plan.slots))
            notice_other_rows(self._rows.sparkSession)
            places, servers, security = targets(plan.counts), self._sink.bootstrap_servers, self._sink._security
            with little_at_once(self._rows.sparkSession), shared_ledger(self._rows.sparkSession, len(places)) as ledger:
                ahead = None if ledger is None else SendingAhead(servers, security, plan, ledger)
                routed = route(self._rows, self._topic, plan, ahead)
                tasks = routed.mapInArrow(Task(servers, security, plan, ledger), RESULT, barrier=barrier)
                written = [Written(*row) for row in _collected(tasks, tag)]
                if ledger is not None:
                    with open_ledger(ledger) as opened:
                        close_places(opened, places, written)
                return written
        except Exception as error:
            if is_stopped():
                raise WriteCancelled(f"{what} ({_INTERRUPTED})") from None
            if _CANCELLED in str(error):
                raise WriteCancelled(what) from error
            first = first_failure(self._rows.sparkSession, tag) if SECOND_ATTEMPT in str(error) else None
            row_error = _ROW_ERROR.search(first or str(error))
            if row_error is not None:
                raise RowError(row_error[1]) from error
            if first is not None:
                raise TaskFailed(first) from error
            raise

    def tell(self, step: Step, batch_id: int) -> None:
        if self._sink.watch is not None:
            self._sink.watch(step, batch_id)


def _starts_together(spark: SparkSession, tasks: int) -> bool:
    """Whether the tasks that write are to be a barrier stage, of which Spark starts no second attempts that are early.

    Only where it speculates: such an attempt is refused, and `spark.task.maxFailures` of them end the job.  Spark takes
    no barrier stage with dynamic allocation, and lets one wait that has more tasks than there are cores.
    """
    context = spark.sparkContext
    asked = {name: context.getConf().get(name, "false").lower() == "true" for name in (_SPECULATES, _ALLOCATES)}
    if not asked[_SPECULATES] or asked[_ALLOCATES]:
        return False
    scala: Any = context._jsc.sc()
    at_once: int = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
    return tasks <= at_once


def _collected(rows: DataFrame, tag: str) -> list[Any]:
    """The rows that the tasks give; their job is cancelled if this thread is interrupted.  `tag`: of no other job.

    Spark notices Ctrl-C, but no other signal, whose job would go on: its tasks would take the cores of the next write.
    The tag is also what a connection to Java is tried with that an earlier interrupt has cut: the call is sent again,
    which Spark's adaptive plan does not bear, and waits for ever for a stage that the first one began.
    """
    context, before = rows.sparkSession.sparkContext, sys.exc_info()[1]
    context.addJobTag(tag)
    try:
        return rows.collect()
    except BaseException as error:
        with suppress(Exception):
            context.cancelJobsWithTag(tag)
        raise _interrupt_in(error, before) or error  # noqa: B904 it is what was raised first
    finally:
        with suppress(Exception):  # of a session that is no more: what ended the tasks is what counts
            context.removeJobTag(tag)


def _interrupt_in(error: BaseException, before: BaseException | None) -> BaseException | None:
    """The interrupt among the causes of `error`, the failure of a call of Spark whose connection it cut; None: none.

    `before`: what was being handled when the call began.
    """
    found: BaseException | None = error
    while found is not None and found is not before:
        if not isinstance(found, Exception):
            return found
        found = found.__context__
    return None


def _never() -> bool:
    return False


async def _until(is_stopped: Callable[[], bool], work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`.  Raises its error, and WriteCancelled if the query is stopped while it takes long.

    Else a cluster that does not answer would keep a query that nobody wants for minutes.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_LONG_SECONDS))[0]:
            if await asyncio.to_thread(is_stopped):
                raise WriteCancelled(
                    "the query was stopped while the cluster gave no answer: whether the batch is committed is seen "
                    f"when the query is started again ({_INTERRUPTED})"
                )
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end, without an event loop; its result."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("the driver waits for nothing but its surroundings")
