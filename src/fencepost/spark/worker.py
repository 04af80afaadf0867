"""Settings of a Python worker process of Spark, made once for all of its tasks: the garbage collector's."""

from __future__ import annotations

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
"""The main module of the processes that Spark forks, and keeps for the next task."""


class LoadedModules:
    """The modules of this process, as of the last time that the cycle collector was told to leave them alone."""

    def __init__(self) -> None:
        self._count = 0
        """The number of modules then; 0: it was not told yet."""

    def set_aside(self) -> None:
        """Have the cycle collector look no more at what there is now, if modules were loaded since the last time."""
        if len(sys.modules) != self._count:
            self._count = len(sys.modules)
            gc.freeze()


LOADED: Final = LoadedModules()


def set_aside_what_is_loaded() -> None:
    """Have Python's cycle collector look no more at what is there: modules above all, pyspark's and pyarrow's too.

    Spark has it look at everything after each task, which takes longer than many a task.  Done at the beginning of a
    task where modules were loaded since the last time, as the first tasks do, and only in a process of Spark's own:
    what is in a cycle then and is dropped later, stays.  What comes later is looked at.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        LOADED.set_aside()
