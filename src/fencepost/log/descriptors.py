"""The limit of files and connections that a process may have open (RLIMIT_NOFILE), and who gets how many."""

from __future__ import annotations

import contextlib
import resource

LEAST = 64
"""Descriptors; with fewer a node may start, and then have none for its clients."""
_LEAST_FOR_FILES, _MOST = 16, 10_000
_OTHERS = 64
"""Descriptors for the event loop, the metadata, standard streams and so on."""


def limit() -> int:
    """Descriptors that the process may have now; -1 if there is no limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Let the process have as many as the system lets it (the hard limit); how many that is, -1 for no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # some systems say that there is no limit, and mean another
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def for_files(limit: int) -> int:
    """The number of descriptors for files, of `limit` (-1: no limit); the others are for connections."""
    return _MOST if limit < 0 else min(max((limit - _OTHERS) // 2, _LEAST_FOR_FILES), _MOST)
