"""What is shrunk still fails, and nothing more can be left out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fencepost.simulation.shrinking import Shrinker, smallest


@given(st.lists(st.integers(), max_size=30, unique=True), st.data())
def test_what_is_left_of_a_list_is_what_matters(items: list[int], data: st.DataObject) -> None:
    matters = set(data.draw(st.lists(st.sampled_from(items), unique=True)) if items else [])
    asked: list[list[int]] = []

    def fails(some: list[int]) -> bool:
        asked.append(some)
        return matters <= set(some)

    assert smallest(items, fails) == [item for item in items if item in matters]
    assert all(set(some) < set(items) for some in asked), "never what is known, never what is not there"


@given(st.lists(st.booleans(), max_size=20), st.integers(0, 20))
def test_no_one_of_what_is_left_can_be_left_out(weights: list[bool], needed: int) -> None:
    """Whichever it keeps of many that would do."""
    items = list(enumerate(weights))

    def fails(some: list[tuple[int, bool]]) -> bool:
        return sum(heavy for _, heavy in some) >= needed

    left = smallest(items, fails) if fails(items) else items
    assert not fails(items) or len(left) == needed


def test_of_many_few_are_found_with_few_questions() -> None:
    asked = 0

    def fails(some: list[int]) -> bool:
        nonlocal asked
        asked += 1
        return {17, 700} <= set(some)

    assert smallest(range(1000), fails) == [17, 700]
    assert asked < 150


class Inner(NamedTuple):
    time: float
    name: str
    many: tuple[int, ...] = ()
    level: int = 2


@dataclass(frozen=True)
class Outer:
    seed: int
    seconds: float
    by_name: Mapping[str, tuple[Inner, ...]]
    settings: Mapping[str, int] = field(default_factory=dict)
    extra: Inner | None = None
    usually: tuple[int, ...] = (1, 2)
    """Everywhere: a part of it would be more to read."""


WHOLE = Outer(
    7,
    3.0,
    {"a": (Inner(0.1234567, "x", (1, 2, 3), 1), Inner(0.2, "y")), "b": (Inner(2.5, "z", (4,)),)},
    {"one": 1, "two": 2},
    Inner(1.0, "extra", (9, 9)),
)


def shrunk(fails: Callable[[Outer], bool], most: int = 500) -> tuple[Outer, list[Outer]]:
    asked: list[Outer] = []

    def ask(value: Outer) -> Outer | None:
        asked.append(value)
        return value if fails(value) else None

    return Shrinker(WHOLE, ask, lambda *_: None, most).shrink(), asked


def test_a_value_is_shrunk_in_all_its_parts() -> None:
    found, _ = shrunk(lambda value: any(3 in inner.many for inner in value.by_name.get("a", ())))
    assert found == Outer(7, 0.0, {"a": (Inner(0.0, "x", (3,)),)})


def test_what_the_failure_needs_stays() -> None:
    found, _ = shrunk(lambda value: value.seconds >= 1 and value.settings.get("two") == 2 and value.extra is not None)
    assert found == Outer(7, 1.2, {}, {"two": 2}, Inner(0.0, "extra"))


def test_a_number_has_fewer_digits_where_it_cannot_be_smaller() -> None:
    found, _ = shrunk(lambda value: any(each.name == "x" and each.time > 0.1229 for each in value.by_name.get("a", ())))
    assert found.by_name["a"][0].time == 0.123


def test_nothing_is_asked_twice() -> None:
    found, asked = shrunk(lambda value: len(value.by_name) == 2 and value.by_name["b"] != ())
    assert len(found.by_name["b"]) == 1
    assert len(asked) == len({repr(value) for value in [*asked, WHOLE]}) - 1


def test_it_does_not_ask_more_than_it_may() -> None:
    for most in range(12):
        found, asked = shrunk(lambda value: bool(value.by_name), most)
        assert len(asked) <= most
        assert found.by_name


def test_what_was_not_needed_to_fail_is_gone_with_it() -> None:
    """The one who is asked may give back less than was asked about."""

    def ask(value: Outer) -> Outer | None:
        return replace(value, seed=1) if value.by_name else None

    told: list[Any] = []
    found = Shrinker(WHOLE, ask, lambda *how: told.append(how[0]), 500).shrink()
    assert found.seed == 1
    assert told[-1] == found
