"""Which of two does the work on records: Python, or what was compiled of `record_kernel`, which is faster.

python -m fencepost.compiled.in_use    # says which
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from fencepost.compiled.files import find

F = TypeVar("F", bound=Callable[..., Any])

IN_USE: Final = find(Path(__file__).parents[1] / "protocol", os.environ)
if IN_USE.amiss:
    warnings.warn(IN_USE.why, RuntimeWarning, stacklevel=2)


def compiled(function: F) -> F | None:
    """The compiled form of a function of `record_kernel`; None where Python does the work."""
    if IN_USE.module is None:
        return None
    form: F = getattr(IN_USE.module, function.__name__)
    return form


if __name__ == "__main__":
    print(IN_USE.why)
