"""Which random walks the long runs take: the first ones, or with `SEED=1000` (of make) those from number 1000 on."""

from __future__ import annotations

import os

FIRST = int(os.environ.get("FENCEPOST_SEED") or "0")


def seeds(count: int) -> range:
    return range(FIRST, FIRST + count)
