"""A session on this machine: what is missing is named."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource

from fencepost.spark import local_session
from fencepost.spark.session import keep_calls_of_java_out_of_logs
from fencepost.spark.source import FencepostDataSource


def test_without_pyspark_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyspark\.sql.*fencepost\[spark\]"):
        local_session("ledger")


class Builder:
    """Stands in for the one that Spark's sessions are made by, and notes what it is told.

    For the session, too, that has found these sources of data.
    """

    def __init__(self, *found: str) -> None:
        self.told: dict[str, str] = {}
        self.registered: list[type[DataSource]] = []
        self.sparkContext = SimpleNamespace(setLogLevel=lambda _: None)
        self.dataSource = SimpleNamespace(register=self.registered.append)
        manager = SimpleNamespace(dataSourceExists=lambda name: name in found)
        state = SimpleNamespace(dataSourceManager=lambda: manager)
        self._jsparkSession = SimpleNamespace(sessionState=lambda: state)

    def appName(self, name: str) -> Builder:
        self.told["name"] = name
        return self

    def master(self, where: str) -> Builder:
        self.told["master"] = where
        return self

    def config(self, key: str, value: str) -> Builder:
        self.told[key] = value
        return self

    def getOrCreate(self) -> Builder:
        return self


def started(monkeypatch: pytest.MonkeyPatch, builder: Builder, *given: Any, **options: Any) -> Builder:
    monkeypatch.setattr("fencepost.spark.session.use_java", lambda: "java")
    monkeypatch.setitem(sys.modules, "pyspark.sql", SimpleNamespace(SparkSession=SimpleNamespace(builder=builder)))
    assert local_session(*given, **options) is builder  # type: ignore[comparison-overlap]
    return builder


def told_by(monkeypatch: pytest.MonkeyPatch, *given: Any, **options: Any) -> dict[str, str]:
    return started(monkeypatch, Builder("fencepost"), *given, **options).told


@pytest.mark.parametrize(("found", "registered"), [(["fencepost"], []), ([], [FencepostDataSource])])
def test_the_source_is_made_known_where_spark_was_too_busy_to_find_it(
    found: list[str], registered: list[type[DataSource]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark looks once, and gives Python ten seconds to start; to register what it did find has it warn."""
    assert started(monkeypatch, Builder(*found), "ledger").registered == registered


def test_what_a_user_sets_goes_over_what_is_set_here(monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_by(monkeypatch, "ledger", 3, {"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "2"})
    assert (told["name"], told["master"]) == ("ledger", "local[3]")
    assert (told["spark.ui.enabled"], told["spark.sql.shuffle.partitions"]) == ("true", "2")
    assert (told["spark.speculation"], told["spark.driver.host"]) == ("false", "127.0.0.1")
    assert told_by(monkeypatch, "ledger")["spark.ui.enabled"] == "false", "for the next session"


@pytest.mark.parametrize("given", [None, "/usr/bin/python3"])
def test_tasks_run_on_this_very_python_unless_another_one_is_named(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    if given is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    told_by(monkeypatch, "ledger")
    assert os.environ["PYSPARK_PYTHON"] == (given or sys.executable)
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize("of", ["py4j.clientserver", "py4j.java_gateway"])
@pytest.mark.parametrize(
    ("root", "wanted", "written"),
    [
        (logging.WARNING, logging.NOTSET, ["WARNING"]),
        (logging.INFO, logging.NOTSET, ["INFO", "WARNING"]),
        (logging.DEBUG, logging.NOTSET, ["INFO", "WARNING"]),
        (logging.WARNING, logging.DEBUG, ["DEBUG", "INFO", "WARNING"]),
        (logging.DEBUG, logging.ERROR, []),
    ],
)
def test_calls_of_java_are_not_logged_with_passwords_unless_somebody_wants_that(
    root: int, wanted: int, written: list[str], of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wanted, before or after, and nothing else is logged for it than was before."""
    calls, seen, keeper = logging.getLogger("py4j"), list[str](), logging.Handler()
    monkeypatch.setattr(keeper, "emit", lambda record: seen.append(record.levelname))
    before = logging.root.level, calls.level
    logging.root.addHandler(keeper)
    try:
        logging.root.setLevel(root)
        calls.setLevel(logging.NOTSET)
        keep_calls_of_java_out_of_logs()
        calls.setLevel(wanted)
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger(of).log(level, "a call, a connection that is closed, a failure")
        assert seen == written
    finally:
        logging.root.removeHandler(keeper)
        logging.root.setLevel(before[0])
        calls.setLevel(before[1])


#: What Py4J and Python do where Java is gone: the first sets up a log, and closes connections when the process ends.
LOGGING_TO_THE_END = """
import logging, sys, threading, time, types
from fencepost.spark.session import keep_calls_of_java_out_of_logs

class Stream:
    def write(self, _):
        time.sleep(0.05)
    def flush(self):
        pass

class Connection:
    def __del__(self, logger=logging.getLogger("py4j.clientserver")):
        logger.info("Closing down clientserver connection")

def fail_again_and_again():
    while True:
        logging.warning("a batch failed")

logging.basicConfig(stream=Stream())
keep_calls_of_java_out_of_logs()
sys.modules["open"] = types.ModuleType("open")
sys.modules["open"].connection = Connection()
threading.Thread(target=fail_again_and_again, daemon=True).start()
time.sleep(0.1)
"""


def test_a_process_ends_whose_java_is_gone_while_a_thread_of_it_logs() -> None:
    subprocess.run([sys.executable, "-c", LOGGING_TO_THE_END], timeout=60, check=True)
