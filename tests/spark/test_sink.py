"""A sink says what makes no sense when it is made, before anything is written; its tasks get what it was given."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Thread
from threading import enumerate as threads
from traceback import format_exception
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.spark.interrupts import interrupted

from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal
from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.spark.attempt import Plan, RowError
from fencepost.spark.encoding import targets_of
from fencepost.spark.report import Report
from fencepost.spark.sink import Sink, WriteCancelled, _InThisThread, _Open, _until
from fencepost.spark.streaming import foreach_batch, write, write_stream
from fencepost.spark.tasks import Task

GOOD: dict[str, Any] = {"application_id": "app", "bootstrap_servers": "127.0.0.1:9092", "topics": ["t"]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"application_id": ""}, "application_id=''"),
        ({"application_id": "a" * 201}, "1 to 200 characters"),
        ({"application_id": "app/slot/0"}, "application_id='app/slot/0': tasks of another application"),
        ({"bootstrap_servers": "h"}, "bootstrap_servers has 'h': it must be host:port"),
        ({"topics": []}, "topics="),
        ({"topics": ["t", "fencepost.progress"]}, "'fencepost.progress' is the sink's own"),
        ({"topics": "orders"}, "topics='orders': it must be a list"),
        ({"compression": "zip"}, "compression='zip': it must be one of none, gzip"),
        ({"tasks": True}, "tasks=True: it must be a whole number"),
        ({"attempts": 2.0}, "attempts=2.0: it must be a whole number"),
        ({"transaction_timeout_ms": 2**31}, "transaction_timeout_ms=2147483648: it must be 2147483647 or less"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0: it must be 1 or more"),
        ({"transaction_timeout_ms": "600000"}, "transaction_timeout_ms='600000': it must be a whole number"),
        ({"tasks": 0}, "tasks=0: it must be 1 or more"),
        ({"attempts": -1}, "attempts=-1: it must be 1 or more"),
        ({"attempts": None}, "attempts=None: it must be a whole number"),
        ({"resume": "false"}, "resume='false': it must be True or False"),
        ({"accept_gap": "false"}, "accept_gap='false': it must be True or False"),
        ({"accept_gap": 0}, "accept_gap=0: it must be True or False"),
        ({"application_id": 5}, "application_id=5: it must be a text"),
        ({"application_id": "app/initial"}, "application_id='app/initial': .* source of application 'app'"),
        ({"compression": None}, "compression=None: it must be one of none, gzip"),
        ({"topics": None}, "topics=None: it must be a list"),
        ({"topics": ["t", None]}, "topics=.*None.*: it must be a list of every topic"),
        ({"topics": iter(["t"])}, "topics=<.*: it must be a list of every topic"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    Sink(**GOOD)
    with pytest.raises(ValueError, match=said):
        Sink(**GOOD | wrong)


def test_a_sink_that_has_written_nothing_is_whole_and_can_be_closed() -> None:
    sink = Sink(**GOOD)
    assert sink.producer_id_and_epoch == NO_PRODUCER
    sink.close()
    sink.close()
    assert sink.producer_id_and_epoch == NO_PRODUCER


@pytest.mark.parametrize("carry", [pickle.dumps, cloudpickle.dumps, copy.copy, copy.deepcopy])
def test_a_sink_that_is_sent_to_tasks_says_where_it_belongs(carry: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"writes from Spark's driver: .* make it in the function that uses it"):
        carry(Sink(**GOOD))


class Rows:
    """A DataFrame of a Spark that is not there: with this configuration, and so many cores."""

    def __init__(self, cores: int = 2, **config: str) -> None:
        profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
        scala = SimpleNamespace(resourceProfileManager=lambda: profiles, maxNumConcurrentTasks={"default": cores}.get)
        self.cancelled: list[str] = []
        """Tags of jobs."""
        self.tags: set[str] = set()
        self.ends_of: Sequence[BaseException] = ()
        """An exception, the one that was on its way when it came, and so on."""
        context = SimpleNamespace(
            master="spark://there:7077",
            getConf=lambda: config,
            getLocalProperty=lambda _name: None,
            _jsc=SimpleNamespace(sc=lambda: scala),
            addJobTag=self.tags.add,
            removeJobTag=self.tags.remove,
            cancelJobsWithTag=self.cancelled.append,
        )
        self.settings: dict[str, str] = {}
        conf = SimpleNamespace(
            set=self.settings.__setitem__, get=self.settings.get, unset=lambda name: self.settings.pop(name)
        )
        self.sparkSession = SimpleNamespace(sparkContext=context, conf=conf)
        self.tasks: list[tuple[Task, bool]] = []
        """And whether they start together."""

    def mapInArrow(self, task: Task, _schema: str, barrier: bool) -> Any:
        self.tasks.append((task, barrier))
        return self

    def collect(self) -> list[Any]:
        assert len(self.tags) == 1
        if self.ends_of:
            raise_all(self.ends_of)
        return []


class Interrupt(BaseException):
    """As KeyboardInterrupt, which would end the tests."""


def raise_all(errors: Sequence[BaseException]) -> None:
    try:
        if errors[1:]:
            raise_all(errors[1:])
    finally:
        raise errors[0]


def run_tasks(
    monkeypatch: pytest.MonkeyPatch,
    sink: Sink,
    plan: Plan,
    rows: Rows,
    route: Callable[..., Any] = lambda rows, *_: rows,
) -> None:
    """Tried without Spark, which would wait for a task that a listener with TLS does not understand."""
    monkeypatch.setattr("fencepost.spark.sink.stop_of", lambda _spark: None)
    monkeypatch.setattr("fencepost.spark.routing.route", route)
    portal = Portal()
    surroundings: Any = _InThisThread(sink, portal, rows, "t")  # type: ignore[arg-type]
    try:
        with pytest.raises(StopIteration):
            surroundings.run_tasks(plan).send(None)
    finally:
        portal.close()


PLAN = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {0: None, 1: None}, {"t": 2})


def test_tasks_are_given_what_the_sink_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, rows = Sink(**GOOD, kafka_options={"kafka.security.protocol": "SSL"}), Rows()
    run_tasks(monkeypatch, sink, PLAN, rows)
    ((task, _),) = rows.tasks
    assert (task.bootstrap_servers, task.plan) == ("127.0.0.1:9092", PLAN)
    assert task.security is sink._security
    assert task.ledger is None


FRAMES = 'Traceback (most recent call last):\n  File "encoding.py", line 9, in _topics_of\n    raise RowError(\n'
MARK = "fencepost.spark.attempt.RowError: "


def test_a_row_that_can_never_be_written_is_told_in_the_words_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows()
    rows.ends_of = [OSError(f"An exception was thrown:\n{FRAMES}{MARK}topic x{MARK}all is well is not one\nand more")]
    with pytest.raises(RowError) as raised:
        run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)
    assert str(raised.value) == f"topic x{MARK}all is well is not one"


@pytest.mark.parametrize("text", [MARK, f"x {MARK}all is well", f"x\n{MARK}all is well\nmore"])
def test_text_of_a_row_in_an_error_of_others_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The batch is tried again, as after any other error."""
    rows = Rows()
    rows.ends_of = [OSError(f"An exception was thrown:\n{FRAMES}ValueError: {text}")]
    with pytest.raises(OSError, match="ValueError"):
        run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)


def test_a_batch_whose_job_was_cancelled_did_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows()
    rows.ends_of = [OSError("[SPARK_JOB_CANCELLED] Job 7 cancelled because somebody did. SQLSTATE: XXKDA")]
    with pytest.raises(WriteCancelled, match="a batch of application 'app' was cancelled, nothing of it is committed"):
        run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)


@pytest.mark.parametrize(
    ("ends_of", "raised"),
    [
        ([Interrupt()], Interrupt),
        ([SystemExit(1)], SystemExit),
        ([OSError("a task failed")], OSError),
        ([OSError("the answer of Java is empty"), Interrupt()], Interrupt),
        ([OSError("the answer of Java is empty"), OSError("cut"), SystemExit(1)], SystemExit),
    ],
)
@pytest.mark.parametrize("handling", [False, True])
def test_the_job_of_a_write_that_is_interrupted_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, ends_of: list[BaseException], raised: type[BaseException], handling: bool
) -> None:
    """Else it went on, and took the cores of the next write.  And the interrupt is told, not what came of it.

    One that somebody handles, who writes again, is another one.
    """
    rows = Rows()
    rows.ends_of = ends_of
    try:
        if handling:
            raise Interrupt
        raise ValueError
    except (Interrupt, ValueError):
        with pytest.raises(raised):
            run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)
    assert (len(rows.cancelled), rows.tags) == (1, set())


def test_an_error_of_a_row_is_known_in_what_spark_says_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says it in the middle of its own message, after a traceback."""
    with pytest.raises(RowError) as raised:
        targets_of(pa.record_batch({"partition": pa.array([9], pa.int32())}), "t", {"t": 1})
    traceback = "".join(format_exception(raised.value))
    rows = Rows()
    rows.ends_of = [OSError(f"Job aborted: Task 0 failed 4 times\n{traceback}\n\tat org.apache.spark (Task.scala:9)")]
    with pytest.raises(RowError, match=r"^topic t has no partition 9$"):
        run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)


def test_spark_is_told_to_notice_rows_that_come_out_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the session says; `test_recomputed_rows` has what comes of it."""
    rows = Rows()
    run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)
    prefix = "spark.sql.shuffle.orderIndependentChecksum."
    assert rows.settings == {f"{prefix}enabled": "true", f"{prefix}enableFullRetryOnMismatch": "true"}


@pytest.mark.parametrize(
    ("config", "cores", "together"),
    [
        ({}, 2, False),
        ({"spark.speculation": "false"}, 2, False),
        ({"spark.speculation": "TRUE"}, 2, True),
        ({"spark.speculation": "true", "spark.dynamicAllocation.enabled": "false"}, 3, True),
        ({"spark.speculation": "true", "spark.dynamicAllocation.enabled": "true"}, 2, False),
        ({"spark.speculation": "true"}, 1, False),
    ],
)
def test_tasks_start_together_where_spark_would_start_some_of_them_twice(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], cores: int, together: bool
) -> None:
    """And where Spark can: else it would refuse the batch, or have it wait for cores that there are not."""
    rows = Rows(cores, **config)
    run_tasks(monkeypatch, Sink(**GOOD), PLAN, rows)
    assert [barrier for _, barrier in rows.tasks] == [together]


def test_what_is_told_of_a_committed_batch_changes_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`report` is called once for each batch that was written, and an error of it is logged: the batch is committed."""
    wrote = iter([True, False, True])
    driver, told = SimpleNamespace(report=None), list[Report]()

    async def written(batch: Any, *_: Any) -> bool:
        driver.report = Report(batch.batch_id, 5, 100, 1, 0, 0, 0, 0)
        return next(wrote)

    def tell(report: Report) -> None:
        told.append(report)
        raise ZeroDivisionError

    driver.write = written
    for name in ("sink.stop_of", "routing.check_columns"):
        monkeypatch.setattr(f"fencepost.spark.{name}", lambda *_: None)
    sink, rows, portal = Sink(**GOOD, tasks=1, report=tell), cast(Any, Rows()), Portal()
    sink._opened = _Open(portal, cast(Any, None), cast(Any, driver))
    assert [sink.write(rows, batch, "query", topic="t") for batch in (0, 0, 1)] == [True, False, True]
    assert [report.batch_id for report in told] == [0, 1]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        f"report failed: batch {batch} of application 'app' is committed, and nothing of it is changed by that"
        for batch in (0, 1)
    ]
    portal.close()


@pytest.mark.parametrize("call", ["write", "close"])
def test_who_calls_a_sink_in_the_midst_of_its_own_write_is_told_so(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As `watch`, or a handler of a signal: it would wait for itself, for ever."""
    said: list[str] = []

    async def written(*_: Any) -> bool:
        with pytest.raises(RuntimeError, match="in the midst of a write") as refused:
            sink.close() if call == "close" else sink.write(rows, 1, "query", topic="t")
        said.append(str(refused.value))
        return True

    for name in ("sink.stop_of", "routing.check_columns"):
        monkeypatch.setattr(f"fencepost.spark.{name}", lambda *_: None)
    cluster = Cluster("127.0.0.1:1")
    sink, rows = Sink(**GOOD, tasks=1), cast(Any, Rows())
    driver = cast(Any, SimpleNamespace(write=written, report=None))
    sink._opened = _Open(Portal(), cluster, driver)
    assert sink.write(rows, 0, "query", topic="t")
    assert sink.write(rows, 1, "query", topic="t"), "afterwards it is as it was"
    assert said[0].startswith(f"{call}() was called")
    sink.close()


def test_a_sink_that_was_interrupted_anywhere_can_be_used_by_every_thread() -> None:
    """Even while somebody still looks at the exception, and so at all that was under way."""
    sink = Sink(**GOOD)
    functions: list[Any] = [Sink.close, Sink._alone, type(contextmanager(lambda: iter([0]))()).__enter__]
    kept: list[BaseException] = []
    for number in count():
        try:
            with interrupted(number, *functions, each="call"):
                sink.close()
        except KeyboardInterrupt as interrupt:
            kept.append(interrupt)
        else:
            break
        assert not sink._in_use.locked()
        sink.close()
    assert len(kept) > 3


def test_who_closes_a_sink_from_another_thread_waits_for_its_write(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def close() -> None:
        sink.close()
        ended.append("closed")

    async def written(*_: Any) -> bool:
        closing.start()
        closing.join(0.2)
        ended.append("written")
        return True

    for name in ("sink.stop_of", "routing.check_columns"):
        monkeypatch.setattr(f"fencepost.spark.{name}", lambda *_: None)
    sink, rows, closing = Sink(**GOOD, tasks=1), cast(Any, Rows()), Thread(target=close)
    sink._opened = _Open(Portal(), Cluster("127.0.0.1:1"), cast(Any, SimpleNamespace(write=written, report=None)))
    assert sink.write(rows, 0, "query", topic="t")
    closing.join()
    assert ended == ["written", "closed"]


def test_spark_connect_is_refused_in_one_sentence_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its DataFrames have no way to the driver, which would be told as an attribute of Java that is not there."""
    rows: Any = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    where: dict[str, Any] = {"application_id": "app", "bootstrap_servers": "nowhere:1", "topic": "out"}
    asks: list[Callable[[], Any]] = [
        lambda: write_stream(rows, checkpoint_location="nowhere", **where),
        lambda: write(rows, run_id="1", **where),
        lambda: Sink(**GOOD).write(rows, 0, "query", topic="out"),
        lambda: foreach_batch(Sink(**GOOD), "nowhere"),
    ]
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as Spark does when it makes such a session
    for ask in asks:
        with pytest.raises(RuntimeError, match=r"through Spark Connect: .* Run this program there, with spark-submit"):
            ask()


@pytest.mark.parametrize("stopped", [True, False])
def test_who_stops_a_query_does_not_wait_for_a_cluster_that_does_not_answer(stopped: bool) -> None:
    """Unless it is stopped it is waited for, however long."""
    asked, ended = list[bool](), list[str]()

    def is_stopped() -> bool:
        asked.append(stopped)
        return stopped

    async def work() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "done"

    async def test(_: VirtualLoop) -> None:
        if stopped:
            with pytest.raises(WriteCancelled, match="InterruptedException"):
                await _until(is_stopped, work())
            assert ended == ["cancelled"]
        else:
            assert await _until(is_stopped, work()) == "done"

    with pytest.MonkeyPatch.context() as patch:

        async def here(work: Callable[[], bool]) -> bool:
            return work()

        patch.setattr(asyncio, "to_thread", here)
        run(test)
    assert len(asked) == (1 if stopped else 999)


def test_a_sink_that_is_closed_leaves_no_thread() -> None:
    sink, driver = Sink(**GOOD), cast(Any, SimpleNamespace(producer_id_and_epoch=NO_PRODUCER))
    sink._opened = _Open(Portal("of this sink"), Cluster("127.0.0.1:1"), driver)
    (thread,) = [each for each in threads() if each.name == "of this sink"]
    sink.close()
    thread.join(10)
    assert not thread.is_alive()
    assert sink._opened is None, "the next write opens them again"
    sink.close()
