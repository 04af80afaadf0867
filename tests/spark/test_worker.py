"""A Python process of Spark's has its cycle collector look at nothing twice; nobody else's has that done to it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from fencepost.client.security import Security
from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.types import NO_PRODUCER
from fencepost.spark import worker
from fencepost.spark.attempt import Plan
from fencepost.spark.encoding import Encoder
from fencepost.spark.options import parse
from fencepost.spark.source import BatchReader
from fencepost.spark.tasks import Task
from fencepost.spark.worker import LoadedModules, set_aside_what_is_loaded


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "LOADED", LoadedModules())
    is_set_aside = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    if is_set_aside:  # what there is of all tests (conftest)
        gc.freeze()


class _Spec:
    def __init__(self, name: str) -> None:
        self.name = name


def _main(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    main = ModuleType("__main__")
    main.__dict__["__spec__"] = None if name is None else _Spec(name)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_a_process_of_spark_sets_aside_what_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _main(monkeypatch, "pyspark.daemon")
    set_aside_what_is_loaded()
    first = gc.get_freeze_count()
    assert first > 1000
    kept = [[n] for n in range(1000)]
    set_aside_what_is_loaded()
    assert gc.get_freeze_count() <= first, f"{len(kept)} lists came after the first time"


def test_what_a_task_has_loaded_is_set_aside_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones load pyarrow's and the client's modules, and pandas, where it is there."""
    _main(monkeypatch, "pyspark.daemon")
    set_aside_what_is_loaded()
    first = gc.get_freeze_count()
    loaded = ModuleType("loaded_by_a_task")
    loaded.__dict__["kept"] = [[n] for n in range(1000)]
    monkeypatch.setitem(sys.modules, "loaded_by_a_task", loaded)
    assert gc.get_freeze_count() <= first, "what is set aside may end, and more may not come, by itself"
    set_aside_what_is_loaded()
    assert gc.get_freeze_count() > first + 900


@pytest.mark.parametrize("name", [None, "pytest.__main__", "fencepost.__main__"])
def test_in_a_process_of_somebody_else_nothing_is_set_aside(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    _main(monkeypatch, name)
    set_aside_what_is_loaded()
    assert gc.get_freeze_count() == 0


def _encode() -> None:
    list(Encoder("out", {"out": 1})(iter([])))


def _write() -> None:
    task = Task("127.0.0.1:1", Security(), Plan("app", Ticket("app", NO_PRODUCER, True), {}, {"out": 1}))
    with pytest.raises(AssertionError, match="this runs in a Spark task"):
        next(task(iter([])))


def _read() -> None:
    options = parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "in"}, streaming=False)
    assert list(BatchReader(options, StructType()).read(InputPartition(None))) == []


@pytest.mark.parametrize("work", [_encode, _write, _read])
def test_whatever_a_process_of_spark_does_for_us_first(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]
) -> None:
    _main(monkeypatch, "pyspark.daemon")
    work()
    assert gc.get_freeze_count() > 1000


def _looked_at(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How much the collector has set aside in this process, after rows were put into batches in it."""
    list(Encoder("out", {"out": 1})(batches))
    yield pa.RecordBatch.from_pydict({"aside": [gc.get_freeze_count()]})


def test_the_processes_that_spark_runs_tasks_in_are_known(spark: SparkSession) -> None:
    rows = spark.range(4).selectExpr("cast(null as binary) as key", "cast(cast(id as string) as binary) as value")
    assert all(row.aside > 10_000 for row in rows.mapInArrow(_looked_at, "aside long").collect())
