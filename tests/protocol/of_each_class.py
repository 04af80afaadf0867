"""A test for each class of messages, instead of one for each of its versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def of_each_class(cases: Sequence[tuple[Any, ...]]) -> Callable[[Callable[..., None]], Any]:
    """A case is a class, what else the test takes, and a version; a failure says which version."""
    by_class: dict[str, list[tuple[Any, ...]]] = {}
    for case in cases:
        by_class.setdefault(case[0].__name__, []).append(case)

    def decorate(test: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("name", by_class)
        def of_one_class(name: str) -> None:
            for case in by_class[name]:
                try:
                    test(*case)
                except BaseException as error:
                    error.add_note(f"in version {case[-1]} of {name}")
                    raise

        of_one_class.__name__ = test.__name__
        of_one_class.__doc__ = test.__doc__
        return of_one_class

    return decorate
