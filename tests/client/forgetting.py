"""What is said of the clients that go while something is done, and of no others."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def what_is_said_of_clients_that_go() -> Iterator[list[str]]:
    """The ResourceWarnings of clients that are collected within, told once it is left.

    What others left behind in this process is collected before: a simulated crash, say, leaves clients that nobody
    closed, and what is said of those is not said of the ones looked at here.
    """
    gc.collect()
    said: list[str] = []
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield said
        gc.collect()
    said += [str(each.message) for each in recorded if each.category is ResourceWarning]
