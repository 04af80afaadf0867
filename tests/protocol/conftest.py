"""What was compiled of the work on records, and the text of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.twins import need_compiled

from fencepost.compiled.in_use import IN_USE
from fencepost.protocol import record_kernel


@pytest.fixture(params=["compiled", "text"], scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The compiled module, and the text that it was compiled of."""
    if request.param == "compiled":
        need_compiled()
        yield IN_USE.module
    else:
        yield record_kernel
