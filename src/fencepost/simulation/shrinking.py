"""From a value with which something fails to a smaller one with which it still does.

Delta debugging (Zeller and Hildebrandt 2002) over whatever the value is made of: elements of tuples and of mappings are
left out, fields go back to their defaults, lengths of time get shorter.  Pure functions; what fails is asked outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Final, Generic, TypeAlias, TypeVar

V = TypeVar("V")
T = TypeVar("T")

#: Of a number that has no default, what is tried instead: the smallest share first.
_SHARES: Final = (0.0, 0.05, 0.2, 0.5, 0.8)
_DIGITS: Final = 3

Path: TypeAlias = tuple[str | int, ...]
"""The place of a part of a value: names of fields, keys, numbers of elements."""


def smallest(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A smallest part of `items`, in their order, that still `fails`: without any one more of them it does not.

    It fails with all of them.  `fails` is asked about parts only.
    """
    if not items or fails([]):
        return []
    left, parts = list(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        for at in range(0, len(left), size):
            without = left[:at] + left[at + size :]
            if without and fails(without):
                left, parts = without, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(left))
    return left


class Shrinker(Generic[V]):
    """Looks for smaller values, made of named tuples, frozen dataclasses, tuples and mappings.

    `fails`: gives None for a value with which it does not fail, else the value to go on with: the same, or one that
    does the same and has less.  It is asked `most` times at most.  `tell` is told each time that less is left.
    """

    def __init__(self, value: V, fails: Callable[[V], V | None], tell: Callable[[V, int], None], most: int) -> None:
        """With `value` it fails."""
        self.value = value
        self._ask = fails
        self._tell = tell
        self._left = most
        self._asked = {repr(value)}

    def shrink(self) -> V:
        """The smallest value that was found."""
        while True:
            before = self.value
            self._whole_parts()
            for path in list(_numbers(self.value, ())):
                self._number(path)
            if self.value == before or not self._left:
                return self.value

    def _whole_parts(self) -> None:
        """Leave out elements and fields, those with most in them first: from the outside to the inside."""
        depth = 0
        while paths := [path for path in _parts(self.value, ()) if len(path) == depth]:
            for path in paths:
                part = _get(self.value, path)
                if isinstance(part, Mapping):
                    self._elements(path, list(part.items()), dict)
                elif isinstance(part, tuple) and not has_fields(part):
                    self._elements(path, list(part), tuple)
                elif part is not _GONE:
                    self._defaults(path, part)
            depth += 1

    def _elements(self, path: Path, items: list[Any], make: Callable[[list[Any]], Any]) -> None:
        smallest(items, lambda some: self._fails(path, make(some)))

    def _defaults(self, path: Path, part: Any) -> None:
        for name, usual in defaults_of(part).items():
            self._fails((*path, name), usual)

    def _number(self, path: Path) -> None:
        """Make a number smaller, or at least give it fewer digits."""
        number = _get(self.value, path)
        if isinstance(number, float):
            any(self._fails(path, round(number * share, _DIGITS)) for share in (*_SHARES, 1.0))

    def _fails(self, path: Path, part: Any) -> bool:
        """Whether it still fails with this part in that place; if so the value has it from now on."""
        old = _get(self.value, path)
        if old is _GONE:
            return False
        if old == part:
            return True
        candidate = _with(self.value, path, part)
        if not self._left or repr(candidate) in self._asked:
            return False
        self._left -= 1
        self._asked.add(repr(candidate))
        found = self._ask(candidate)
        if found is None:
            return False
        self.value = found
        self._tell(found, self._left)
        return True


_GONE: Final = object()


def has_fields(value: Any) -> bool:
    """Whether it is a named tuple or a dataclass."""
    return hasattr(value, "_fields") or is_dataclass(value)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a named tuple or a dataclass, by name."""
    names = value._fields if hasattr(value, "_fields") else [field.name for field in fields(value)]
    return {name: getattr(value, name) for name in names}


def defaults_of(value: Any) -> dict[str, Any]:
    """The defaults of the fields that have one, by name."""
    if hasattr(value, "_fields"):
        return dict(value._field_defaults)
    found = {field.name: field.default for field in fields(value) if field.default is not MISSING}
    return found | {
        field.name: field.default_factory() for field in fields(value) if field.default_factory is not MISSING
    }


def _get(value: Any, path: Path) -> Any:
    """The part of a value in that place; _GONE if there is none any more."""
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step, _GONE)
        elif isinstance(step, int):
            value = value[step] if isinstance(value, tuple) and step < len(value) else _GONE
        else:
            value = getattr(value, step, _GONE)
    return value


def _with(value: Any, path: Path, part: Any) -> Any:
    if not path:
        return part
    step, rest = path[0], path[1:]
    inner = _with(_get(value, (step,)), rest, part)
    if isinstance(value, Mapping):
        return {**value, step: inner}
    if isinstance(step, int):
        return (*value[:step], inner, *value[step + 1 :])
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{step: inner})
    return value._replace(**{step: inner})


def _parts(value: Any, path: Path) -> Iterator[Path]:
    """The places of all parts of a value that can have less; those with defaults stay so."""
    usual = defaults_of(value) if has_fields(value) else {}
    for step, inner in _inside(value):
        if step not in usual or inner != usual[step]:
            yield from _parts(inner, (*path, step))
    if has_fields(value) or isinstance(value, Mapping | tuple):
        yield path


def _numbers(value: Any, path: Path) -> Iterator[Path]:
    """The places of all numbers of a value that can be smaller: of fields without a default."""
    for step, inner in _inside(value):
        if isinstance(inner, float) and not (has_fields(value) and step in defaults_of(value)):
            yield (*path, step)
        else:
            yield from _numbers(inner, (*path, step))


def _inside(value: Any) -> Iterator[tuple[str | int, Any]]:
    if has_fields(value):
        yield from fields_of(value).items()
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple):
        yield from enumerate(value)
