"""A plan as the source of a regression test, ready to paste: what is as usual is not in it."""

from __future__ import annotations

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from fencepost.simulation.drawn_runs import Plan, carry_out
from fencepost.simulation.shrinking import defaults_of, fields_of, has_fields

_WIDTH: Final = 120


def as_test(plan: Plan, failed: str, what: str, command: str) -> str:
    """A module with one test, which fails as long as the plan does.

    `failed`: the property; `what`: the sentence of its checker; `command`: what it was found with.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    _gather(plan, names)
    names[carry_out.__module__].add(carry_out.__name__)
    lines = ['"""Found by', f"    {command}", _docstring(what), '"""', "", "from __future__ import annotations", ""]
    lines += [line for module in sorted(names) for line in _import(module, names[module])]
    lines += ["", "PLAN = " + _source(plan, 0, len("PLAN = "), 0), "", ""]
    lines += [f"def test_{_name(failed)}() -> None:", "    assert carry_out(PLAN).faults == []"]
    return "\n".join(lines) + "\n"


def _docstring(what: str) -> str:
    plain = ascii(what)[1:-1].replace('"', "'").replace("\\", "/")
    return textwrap.shorten(plain, 110, placeholder=" ...")


def _name(failed: str) -> str:
    words = re.findall(r"[a-z]+", failed.lower())
    return "_".join(words)[:80].rstrip("_") or "no_promise_is_broken"


def _import(module: str, names: set[str]) -> Iterator[str]:
    ordered = sorted(names, key=lambda name: (name[0].islower(), name))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield from (f"from {module} import (", *(f"    {name}," for name in ordered), ")")


def _gather(value: Any, names: defaultdict[str, set[str]]) -> None:
    """Add the classes that the source of a value needs to `names`: module -> names."""
    if isinstance(value, Enum):
        names[type(value).__module__].add(type(value).__name__)
    elif isinstance(value, Mapping):
        for each in (*value, *value.values()):
            _gather(each, names)
    elif has_fields(value):
        names[type(value).__module__].add(type(value).__name__)
        for each in _arguments(value).values():
            _gather(each, names)
    elif isinstance(value, tuple | list):
        for each in value:
            _gather(each, names)


def _arguments(value: Any) -> dict[str, Any]:
    """The fields of a value that differ from their defaults, by name."""
    usual = defaults_of(value)
    return {name: each for name, each in fields_of(value).items() if name not in usual or each != usual[name]}


def _source(value: Any, indent: int, before: int, after: int) -> str:
    """The source of a value as the formatter has it: in one line if it fits, else each element in its own.

    `before`, `after`: what else is in the first and the last line.
    """
    opening, elements, closing = _parts(value)
    if not elements:
        return opening + closing
    single = len(elements) == 1 and type(value) is tuple
    flat = ", ".join(prefix + _flat(each) for prefix, each in elements) + ("," if single else "")
    if indent + before + len(opening + flat + closing) + after <= _WIDTH:
        return opening + flat + closing
    inner = indent + 4
    lines = [" " * inner + prefix + _source(each, inner, len(prefix), 1) + "," for prefix, each in elements]
    return "\n".join([opening, *lines, " " * indent + closing])


def _flat(value: Any) -> str:
    opening, elements, closing = _parts(value)
    single = len(elements) == 1 and type(value) is tuple
    return opening + ", ".join(prefix + _flat(each) for prefix, each in elements) + ("," if single else "") + closing


def _parts(value: Any) -> tuple[str, Sequence[tuple[str, Any]], str]:
    """The beginning of a value's source, its elements, each with the text before it, and the end."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}", (), ""
    if isinstance(value, Mapping):
        return "{", [(f"{_flat(key)}: ", each) for key, each in value.items()], "}"
    if has_fields(value):
        usual = defaults_of(value)
        elements = [("" if name not in usual else f"{name}=", each) for name, each in _arguments(value).items()]
        return f"{type(value).__name__}(", elements, ")"
    if isinstance(value, tuple | list):
        return "(", [("", each) for each in value], ")"
    if isinstance(value, str):
        return repr(value) if '"' in value and "'" not in value else json.dumps(value), (), ""
    return repr(value), (), ""
