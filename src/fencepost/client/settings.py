"""Checks of the settings of clients: pure functions that name the one that is wrong.

Each takes settings by their names.  Raises TypeError for what is of another kind, ValueError for what is out of range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost.client.arguments import INT32, INT64, text, whole_number
from fencepost.protocol.compression import Compression


def check_known(given: Iterable[str], known: Sequence[str]) -> None:
    """Names of settings.  Raises TypeError for one that is not `known`; its value, maybe a secret, is not shown."""
    for name in given:
        if name in known:
            continue
        from difflib import get_close_matches

        near = get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(known))}"
        raise TypeError(f"there is no setting {name!r}; {hint}")


def check_milliseconds(**settings: float) -> None:
    """Times from 0 on, whole or not.  Raises TypeError for what is no number, ValueError for one out of range."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name}={value!r}: it must be a number of milliseconds")
        if not value >= 0:
            raise ValueError(f"{name}={value!r}: it must be 0 milliseconds or more")
        if isinstance(value, int) and value > INT64:
            raise ValueError(f"{name}={value!r}: it must be {INT64} milliseconds or less, or math.inf")


def check_counts(least: int = 1, **settings: int) -> None:
    """Sizes in bytes and other whole numbers.  Raises TypeError for what is none, ValueError for less than `least`."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r}: it must be a whole number")
        if value < least:
            raise ValueError(f"{name}={value!r}: it must be {least} or more")


def check_sendable(**settings: float | None) -> None:
    """Whole numbers of 0 to 2**31 - 1; None: not given.  Raises TypeError, ValueError, as `arguments.whole_number`."""
    for name, value in settings.items():
        if value is not None:
            whole_number(name, value, 0, INT32)


def check_texts(**settings: str | None) -> None:
    """Settings that are strings; None: not given.  Raises TypeError and ValueError, as `arguments.text`."""
    for name, value in settings.items():
        if value is not None:
            text(name, value)


def check_switches(**settings: bool) -> None:
    """Settings that are True or False.  Raises TypeError for any other value, also for 0, 1 and None."""
    for name, value in settings.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: it must be True or False")


def check_topics(topics: object) -> None:
    """Names of topics, one or several.  Raises TypeError for what is no str, ValueError as `arguments.text` does."""
    for name in topics if isinstance(topics, list | tuple) else (topics,):
        if not isinstance(name, str):
            raise TypeError(f"topic {name!r}: it must be a str; give several topics one by one, as in *topics")
        text("topic", name)


def compression_named(name: str) -> Compression:
    """The codec of this name, in any case of its letters.  Raises ValueError."""
    try:
        return Compression[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Compression)
        raise ValueError(f"compression={name!r}: it must be one of {known}") from None
