"""Which versions of a request a node serves: those before a gate where its setting is false, else all."""

from __future__ import annotations

import pytest

from fencepost.broker.network.registry import SERVED

GATED = [(key, served) for key, served in sorted(SERVED.items()) if served.gate is not None]


def test_some_versions_are_behind_a_setting() -> None:
    assert GATED


@pytest.mark.parametrize(("key", "is_set"), [(key, is_set) for key, _ in GATED for is_set in (True, False)])
def test_the_first_version_behind_a_setting_and_those_after_it_are_served_where_that_is_set(
    key: int, is_set: bool
) -> None:
    served = SERVED[key]
    assert served.gate is not None
    first, setting = served.gate
    assert served.first < first <= served.last
    assert served.newest({setting: is_set}) == (served.last if is_set else first - 1)


@pytest.mark.parametrize("key", sorted(set(SERVED) - {key for key, _ in GATED}))
def test_the_others_are_served_whatever_is_set(key: int) -> None:
    assert SERVED[key].newest({}) == SERVED[key].last
