"""Settings of a Python worker process of Spark, made once for all of its tasks: the garbage collector's."""

from __future__ import annotations

import gc
import sys
from functools import lru_cache
from typing import Final

_DAEMON: Final = "pyspark.daemon"
"""The main module of the processes that Spark forks, and keeps for the next task."""


def set_aside_what_is_loaded() -> None:
    """Have Python's cycle collector look no more at what is there: modules above all, pyspark's and pyarrow's too.

    Spark has it look at everything after each task, which takes longer than many a task.  Done at the beginning of a
    task where modules were loaded since the last time, as the first tasks do, and only in a process of Spark's own:
    what is in a cycle then and is dropped later, stays.  What comes later is looked at.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        _set_aside(len(sys.modules))


@lru_cache(maxsize=1)
def _set_aside(modules: int) -> None:  # noqa: ARG001 - for as many it is done once
    gc.freeze()
