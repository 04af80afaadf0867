"""The two that do the work on records: what was compiled of `record_kernel`, and the Python that it stands in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.compiled.in_use import IN_USE
from fencepost.protocol import partitioning, record_scan, records

#: module -> the names in it that are None where Python does the work
_STAND_INS = {
    records: ("_compiled_decode", "_compiled_append", "_compiled_extend", "_compiled_extend_rows"),
    record_scan: ("_compiled_run", "_compiled_pass_over"),
    partitioning: ("_compiled_murmur2",),
}


@contextmanager
def python_alone() -> Iterator[None]:
    """Have Python do the work meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for module, names in _STAND_INS.items():
            for name in names:
                patch.setattr(module, name, None)
        yield


def need_compiled() -> None:
    """Skip a test of what was compiled where nothing was."""
    if IN_USE.module is None:
        pytest.skip(f"nothing compiled to try: {IN_USE.why}")
