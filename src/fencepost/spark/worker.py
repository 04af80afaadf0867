"""What a Python process of Spark's does once, that runs this package's code in task after task."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final

_DAEMON: Final = "pyspark.daemon"
"""The main module of the processes that Spark forks, and keeps for the next task."""


@cache
def set_aside_what_is_loaded() -> None:
    """Have Python's cycle collector look no more at what is there: modules above all, pyspark's and pyarrow's too.

    Spark has it look at everything after each task, which takes longer than many a task.  Done once in a process, and
    only in one of Spark's own: what is in a cycle then and is dropped later, stays.  What comes later is looked at.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        gc.freeze()
